"""A forged column of a training run's episodes is found, and what cannot be computed again is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.verify_rollouts import verify_rollouts
from msgrpo_hub.hub.rollouts import load_rollouts
from msgrpo_hub.storage.shards import shards
from tests.hub.pushed_rollouts import EPISODES

Rows = list[dict[str, Any]]
Change = Callable[[Rows, Rows], Any]
"""Changes the rows of episodes and of steps."""


def copy_of(saved: Path, folder: Path, change: Change, rules: Callable[[dict[str, Any]], Any] = dict) -> Path:
    """The episodes of the run's first update with changed rows, and perhaps with other rules of its updates."""
    tables = [pq.ParquetFile(path).read() for path in shards(saved)[0]]
    heads, steps = (table.to_pylist() for table in tables)
    change(heads, steps)
    for config, table, rows in zip(("default", "steps"), tables, (heads, steps), strict=True):
        metadata = dict(table.schema.metadata)
        stored = json.loads(metadata[b"update_rules"])
        rules(stored)
        changed = table.schema.with_metadata({**metadata, b"update_rules": json.dumps(stored).encode()})
        (folder / config).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=changed), folder / config / "train-00001.parquet")
    return folder


def untouched(heads: Rows, steps: Rows) -> None:
    pass


def found(folder: Path) -> str:
    return "; ".join(problem for row in verify_rollouts(folder) for problem in row["problems"])


def test_the_episodes_of_a_run_pass_with_everything_checked(saved: Path) -> None:
    """Tokens by the tokenizer, advantages and selection by the rules that the run stored."""
    [row] = verify_rollouts(saved)
    assert (row["episodes"], row["problems"], row["unchecked"]) == (EPISODES, [], [])


# ---- forged columns


def own_steps(head: dict[str, Any], steps: Rows) -> Rows:
    return [row for row in steps if (row["seed"], row["member"]) == (head["seed"], head["member"])]


def varied(heads: Rows) -> Rows:
    """A group whose returns differ, so that some of its episodes were selected."""
    seed = next(head["seed"] for head in heads if head["selected"])
    return [head for head in heads if head["seed"] == seed]


def a_better_advantage(heads: Rows, steps: Rows) -> None:
    for row in (heads[0], *own_steps(heads[0], steps)):
        row["advantage"] += 0.5


def better_steps(heads: Rows, steps: Rows) -> None:
    own_steps(heads[0], steps)[-1]["advantage"] += 0.5


def choose(head: dict[str, Any], steps: Rows, selected: bool) -> None:
    for row in (head, *own_steps(head, steps)):
        row["selected"] = selected


def other_choice(heads: Rows, steps: Rows) -> None:
    """An episode that was not selected takes the place of one of its group that was."""
    chosen, left = (next(head for head in varied(heads) if head["selected"] is value) for value in (True, False))
    choose(chosen, steps, False)
    choose(left, steps, True)


def one_more(heads: Rows, steps: Rows) -> None:
    choose(next(head for head in varied(heads) if not head["selected"]), steps, True)


def without_the_worst(heads: Rows, steps: Rows) -> None:
    worst = min(heads, key=lambda head: head["advantage"])
    for row in own_steps(worst, steps):
        steps.remove(row)
    heads.remove(worst)


def without_a_group(heads: Rows, steps: Rows) -> None:
    dropped = heads[-1]["seed"]
    for rows in (heads, steps):
        rows[:] = [row for row in rows if row["seed"] != dropped]


def another_update(heads: Rows, steps: Rows) -> None:
    for row in (*heads, *steps):
        row["update"] = 2


def other_tokens(heads: Rows, steps: Rows) -> None:  # noqa: ARG001
    steps[0]["token_ids"] = [7, *steps[0]["token_ids"][1:]]


def no_such_tokens(heads: Rows, steps: Rows) -> None:  # noqa: ARG001
    steps[0]["token_ids"] = [10**9, *steps[0]["token_ids"][1:]]


def a_wiser_thought(heads: Rows, steps: Rows) -> None:  # noqa: ARG001
    row = next(row for row in steps if row["action"])
    row["reply"] = "<think>The goal is below and to the right.</think>" + row["reply"].rpartition("</think>")[2]


def fewer_log_probs(heads: Rows, steps: Rows) -> None:  # noqa: ARG001
    steps[0]["log_probs"] = steps[0]["log_probs"][1:]


def another_prompt(heads: Rows, steps: Rows) -> None:  # noqa: ARG001
    other = next(row for row in steps if row["observation"] != steps[0]["observation"])
    steps[0]["prompt_ids"] = other["prompt_ids"]


def cut(heads: Rows, steps: Rows) -> None:  # noqa: ARG001
    row = next(row for row in steps if row["finish"] == "stop" and row["action"] and len(row["token_ids"]) < 32)
    row["finish"] = "length"


FORGED: dict[str, tuple[Change, str]] = {
    "an advantage": (a_better_advantage, "the returns of its group give"),
    "an advantage of a step": (better_steps, "its steps have other advantages than the credit whole-episode gives them"),
    "a selection": (other_choice, "it selected other episodes than the sampler absolute-advantage"),
    "one more selected": (one_more, "it selected other episodes than the sampler absolute-advantage"),
    "the worst episode dropped": (without_the_worst, "has not each of its 8 members once and in order"),
    "a group dropped": (without_a_group, "it has 1 groups, its run plays 2"),
    "another update": (another_update, "does not start where its run starts group 2"),
    "other tokens": (other_tokens, "turn 1: its tokens do not say its reply"),
    "no tokens": (no_such_tokens, "turn 1: its tokens do not say its reply"),
    "another text": (a_wiser_thought, "its tokens do not say its reply"),
    "fewer log-probabilities": (fewer_log_probs, "its tokens, log-probabilities and entropies differ in number"),
    "another prompt": (another_prompt, "turn 1: the tokens of its prompt do not say the prompt"),
    "a finish": (cut, "tokens and finish length, its limit is 32"),
}


@pytest.mark.parametrize(("change", "words"), FORGED.values(), ids=FORGED)
def test_a_forged_column_is_found(change: Change, words: str, saved: Path, tmp_path: Path) -> None:
    folder = copy_of(saved, tmp_path, change)
    assert words in found(folder)
    with pytest.raises(UserError, match=r"is refused .*: expected what was played; `msgrpo verify` shows details"):
        load_rollouts(folder)


def forged_success(heads: Rows, steps: Rows) -> None:
    lost = next(head for head in heads if not head["success"])
    for row in (lost, *own_steps(lost, steps)):
        row["success"] = True


def test_a_forged_success_is_not_loaded(saved: Path, tmp_path: Path) -> None:
    assert len(load_rollouts(copy_of(saved, tmp_path / "first", untouched))) == 16
    with pytest.raises(UserError, match="the record has success = True, where the rules say otherwise"):
        load_rollouts(copy_of(saved, tmp_path / "forged", forged_success))


# ---- what cannot be computed again

OWN_CREDIT, OLD_TORCH = {"credit": "mine:credit"}, {"torch": "9.9"}


@pytest.mark.parametrize(
    ("rules", "change", "said"),
    [
        (OWN_CREDIT, better_steps, "advantages of steps not checked: the credit mine:credit is not built in"),
        ({"sampler": "mine:s"}, one_more, "selection not checked: the sampler mine:s is not built in"),
        ({"advantage_scale": "m:s"}, a_better_advantage, "advantages and selection not checked: the scale m:s is not built in"),
        (OLD_TORCH, other_choice, "only the number of selected episodes checked: they were drawn by torch 9.9 on"),
        ({"base": "org/model", "base_revision": "0" * 40}, other_tokens, "tokens not checked: the tokenizer of org/model is not"),
    ],
)
def test_what_cannot_be_checked_is_said(rules: dict[str, Any], change: Change, said: str, saved: Path, tmp_path: Path) -> None:
    """Each change would be found under the rules that the run stored."""
    [row] = verify_rollouts(copy_of(saved, tmp_path, change, lambda stored: stored.update(rules)))
    assert row["problems"] == []
    assert [line.startswith(said) for line in row["unchecked"]] == [True]


@pytest.mark.parametrize(
    ("rules", "change", "words"),
    [(OWN_CREDIT, a_better_advantage, "the returns of its group give"), (OLD_TORCH, one_more, "it selected other episodes")],
)
def test_what_can_be_checked_besides_is_checked(
    rules: dict[str, Any], change: Change, words: str, saved: Path, tmp_path: Path
) -> None:
    assert words in found(copy_of(saved, tmp_path, change, lambda stored: stored.update(rules)))


@pytest.mark.parametrize("rules", [{"seed": "0"}, {"more": 1}])
def test_rules_that_cannot_be_read_are_refused(rules: dict[str, Any], saved: Path, tmp_path: Path) -> None:
    folder = copy_of(saved, tmp_path, untouched, lambda stored: stored.update(rules))
    assert "the rules of its updates cannot be read" in found(folder)
