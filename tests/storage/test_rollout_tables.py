"""Rollout tables: episodes come back equal, scores follow from the rules, and `verify` finds changed records."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import Prompt, ScriptedPolicy, build_prompt
from msgrpo_hub.cli import main
from msgrpo_hub.episode import Completion, Episode, Step
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.verify import NOT_CHECKED, verify_folder
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_groups, replayed_states
from msgrpo_hub.storage import shards as shard_files
from msgrpo_hub.storage.schema import COLUMNS, CONFIGS, SCHEMAS
from msgrpo_hub.storage.shards import read_table, shards, write_table
from msgrpo_hub.storage.tables import Origin, Rollout, read_rollouts, tables
from tests.evaluation.tampering import other_action_and_reply, other_values, put, rewrite

LAKE, SNAKE = "FrozenLake-Slippery-v1", "Snake-Short-v1:rotated"
ORIGIN = Origin(
    split="train",
    player="training",
    run="0123456789abcdef",
    base="pocket",
    base_revision="0" * 64,
    temperature=1.0,
    max_new_tokens=32,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


class Typist(ScriptedPolicy):
    """A scripted player whose replies have tokens."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        tokens: dict[str, Any] = {"prompt_ids": (1,), "token_ids": (2, 3), "log_probs": (-0.5, 0.0), "entropies": (0.5, 0.0)}
        return [replace(reply, **tokens) for reply in super().complete(prompts, rngs)]


def played(game: str, groups: int = 2, update: int = 1) -> list[Rollout]:
    """Random play with invented tokens and advantages."""
    seeds = [episode_seed(game, "train", index) for index in range(groups)]
    return [
        Rollout(
            episode=episode,
            update=update,
            advantage=0.5 - episode.member,
            step_advantages=tuple(turn - 0.5 for turn in range(len(episode.steps))),
            selected=bool(episode.member % 2),
        )
        for group in play_groups(make_game(game), Typist(choose_random), seeds, 3)
        for episode in group.episodes
    ]


def read_all(folder: Path) -> list[list[Rollout]]:
    return [read_rollouts(read_table(heads, "default"), read_table(steps, "steps")) for heads, steps in shards(folder)]


def save(folder: Path, rollouts: list[Rollout], origin: Origin | None = ORIGIN, name: str = "train-1.parquet") -> Path:
    scores = [judged(rollout.episode) for rollout in rollouts] if origin else None
    for config, table in tables(rollouts, origin, scores).items():
        (folder / config).mkdir(parents=True, exist_ok=True)
        write_table(table, folder / config / name)
    return folder


# ---- there and back


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    count = draw(st.integers(0, 4))
    own: Any = {name: tuple(draw(st.lists(NUMBERS, min_size=count, max_size=count))) for name in ("log_probs", "entropies")}
    own["token_ids"] = tuple(draw(st.lists(st.integers(0, 2**31 - 1), min_size=count, max_size=count)))
    own["prompt_ids"] = tuple(draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4)))
    usage = draw(st.none() | st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))
    tokens = own if draw(st.booleans()) else {"usage": usage}  # of a model here, or of a server or a scripted player
    return Completion(text=draw(TEXT), finish=draw(st.sampled_from(["stop", "length"])), **tokens)


STATUS = st.sampled_from(["ok", "unreadable", "truncated_reply"])
STEPS = st.builds(
    Step, observation=TEXT, completion=completions(), action=st.none() | TEXT, status=STATUS, legal=st.booleans(), reward=NUMBERS
)
EPISODES = st.builds(
    Episode,
    game_id=st.sampled_from([LAKE, SNAKE]),
    seed=st.integers(0, 2**63 - 1),
    member=st.integers(0, 10**6),
    steps=st.lists(STEPS, max_size=3).map(tuple),
    terminated=st.booleans(),
    truncated=st.booleans(),
    success=st.booleans(),
    error=TEXT,
)


@st.composite
def rollouts_of(draw: st.DrawFn) -> Rollout:
    episode = draw(EPISODES)
    steps = len(episode.steps)
    given = {"advantage": draw(NUMBERS), "step_advantages": tuple(draw(st.lists(NUMBERS, min_size=steps, max_size=steps)))}
    return Rollout(
        episode=episode,
        index=draw(st.none() | st.integers(0, 10**6)),
        prompt_format=draw(st.sampled_from(["think-action", "json"])),
        update=draw(st.none() | st.integers(1, 10**6)),
        selected=draw(st.none() | st.booleans()),
        **(given if draw(st.booleans()) else {}),
    )


@settings(max_examples=60)
@given(rollouts=st.lists(rollouts_of(), max_size=4, unique_by=lambda r: (r.episode.seed, r.episode.member, r.update)))
def test_written_rollouts_come_back_equal(rollouts: list[Rollout], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = save(tmp_path_factory.getbasetemp() / "shards", rollouts, origin=None)
    assert read_all(folder) == [rollouts]


def test_equal_episodes_are_equal_bytes_and_row_groups_are_small(tmp_path: Path) -> None:
    rollouts = [replace(rollout, update=update) for update in range(1, 61) for rollout in played(LAKE)]
    first, second = save(tmp_path / "1", rollouts), save(tmp_path / "2", rollouts)
    for config in CONFIGS:
        assert (first / config / "train-1.parquet").read_bytes() == (second / config / "train-1.parquet").read_bytes()
    with pq.ParquetFile(first / "steps" / "train-1.parquet") as file:
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    assert max(sizes) == 1000 < sum(sizes)


def test_rows_agree_with_the_rules(tmp_path: Path) -> None:
    rollouts = played(LAKE)
    [paths] = shards(save(tmp_path, rollouts))
    heads, steps = (read_table(path, config).to_pylist() for path, config in zip(paths, CONFIGS, strict=True))
    game = make_game(LAKE)
    by_episode = {head["episode"]: [row for row in steps if row["episode"] == head["episode"]] for head in heads}
    assert len(by_episode) == len(rollouts)
    for head, rollout in zip(heads, rollouts, strict=True):
        episode, rows = rollout.episode, by_episode[head["episode"]]
        scores, states = judged(episode)[0], replayed_states(game, episode)
        assert [row["optimal_actions"] for row in rows] == [list(score.optimal_actions) for score in scores]
        assert [row["prompt"] for row in rows] == [build_prompt(game, state).messages for state in states[: len(rows)]]
        assert [row["turn"] for row in rows] == list(range(len(rows)))
        assert head["regret"] == pytest.approx(sum(row["regret"] for row in rows))
        assert head["actions"] == [step.action for step in episode.steps]
        assert tuple(row["advantage"] for row in rows) == rollout.step_advantages
        told = ("seed", "member", "update", "selected", "success")
        assert {tuple(row[name] for name in told) for row in rows} == {tuple(head[name] for name in told)}
        assert (head["run"], head["base"], head["split"]) == (ORIGIN.run, "pocket", "train")


# ---- refused


@pytest.mark.parametrize("config", CONFIGS)
def test_columns_must_be_exactly_those_of_the_format(config: str, tmp_path: Path) -> None:
    fields, path = list(SCHEMAS[config]), tmp_path / "x.parquet"
    spoiled = [
        pa.schema(fields[1:]),
        pa.schema([*fields, pa.field("more", pa.int32())]),
        pa.schema([pa.field(fields[0].name, pa.binary()), *fields[1:]]),
        pa.schema([fields[1], fields[0], *fields[2:]]),
        pa.schema(fields, {"format": "msgrpo-episodes-v9"}),
    ]
    for columns in spoiled:
        pq.write_table(columns.empty_table(), path)
        with pytest.raises(UserError, match="has other columns: expected those of msgrpo-episodes-v2"):
            read_table(path, config)
    pq.write_table(SCHEMAS[config].empty_table(), path)
    assert read_table(path, config).schema.equals(SCHEMAS[config])


def test_a_small_file_of_one_large_text_that_is_repeated_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, played(LAKE)) / "steps" / "train-1.parquet"
    table = pq.ParquetFile(path).read()
    row = table.slice(0, 1).set_column(table.schema.get_field_index("reply"), "reply", [["x" * 10**6]])
    pq.write_table(pa.concat_tables([row.cast(table.schema)] * 400), path, compression="zstd")
    assert path.stat().st_size < 50_000
    monkeypatch.setattr(shard_files, "LARGEST", 10**7)
    with pytest.raises(UserError, match=r"unpacks to more than 10,000,000 bytes"):
        read_all(tmp_path)


def test_a_small_file_of_one_long_list_of_equal_values_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, played(LAKE)) / "steps" / "train-1.parquet"
    rows = pq.ParquetFile(path).read().to_pylist()
    pq.write_table(pa.Table.from_pylist([rows[0] | {"token_ids": [0] * 10**7}], schema=SCHEMAS["steps"]), path)
    assert path.stat().st_size < 50_000
    monkeypatch.setattr(shard_files, "LARGEST", 3 * 10**7)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    with pytest.raises(UserError, match=r"unpacks to more than 30,000,000 bytes"):
        read_table(path, "steps")


# ---- verified


@pytest.mark.parametrize("origin", [ORIGIN, None], ids=["data set", "log of a training"])
def test_untouched_episodes_pass_and_are_counted(origin: Origin | None, tmp_path: Path) -> None:
    save(tmp_path, played(LAKE), origin)
    save(tmp_path, played(SNAKE), origin, name="train-2.parquet")
    rows = verify_folder(tmp_path)
    assert [(row["player"], row["task"], row["episodes"], row["problems"]) for row in rows] == [
        ("training", LAKE, 6, []),
        ("training", SNAKE, 6, []),
    ]


def problems(folder: Path) -> str:
    return "; ".join(problem for row in verify_folder(folder) for problem in row["problems"])


@pytest.mark.parametrize("origin", [ORIGIN, None], ids=["data set", "log of a training"])
@pytest.mark.parametrize("config", CONFIGS)
def test_another_value_or_none_in_any_column_is_found(config: str, origin: Origin | None, tmp_path: Path) -> None:
    path = save(tmp_path, played(LAKE), origin) / config / "train-1.parquet"
    before, [row, *_] = path.read_bytes(), read_table(path, config).to_pylist()
    for column, (kind, _) in COLUMNS[config].items():
        for value in other_values(kind, row[column]):
            rewrite(path, put(0, **{column: value}))
            plausible = column == "advantage" and value is not None and math.isfinite(value)
            assert problems(tmp_path) or plausible, (column, value)
            path.write_bytes(before)
    assert not problems(tmp_path)
    assert "tokens, log-probabilities, advantages" in NOT_CHECKED


def swap(first: Path, second: Path) -> None:
    first.rename(first.with_suffix(".old"))
    second.rename(first)
    first.with_suffix(".old").rename(second)


def keep(kept: Callable[[int, int], bool]) -> Callable[[Path, Path], None]:
    """Keeps episodes of the first update by the number of their group and their member."""

    def change(first: Path, _: Path) -> None:
        table = pq.ParquetFile(first).read()
        rows, groups = table.to_pylist(), list(dict.fromkeys(table["seed"].to_pylist()))
        mask = [kept(groups.index(row["seed"]), row["member"]) for row in rows]
        pq.write_table(table.filter(pa.array(mask)), first)

    return change


WRONG_SHARDS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "copied": (shutil.copy, "it does not belong in train-.*; update 1 lacks episodes, or has some twice"),
    "exchanged": (swap, "it does not belong in train-"),
    "renamed": (lambda _, second: second.rename(second.with_name("train-8.parquet")), "^$"),
    "missing": (lambda first, _: first.unlink(), "^the episodes of update 1 are missing$"),
    "without a member": (keep(lambda group, member: (group, member) != (1, 2)), "^update 1 lacks episodes"),
    "without a group": (keep(lambda group, _: group == 0), "^update 1 lacks episodes"),
}


@pytest.mark.parametrize("origin", [ORIGIN, None], ids=["data set", "log of a training"])
@pytest.mark.parametrize(("change", "words"), WRONG_SHARDS.values(), ids=WRONG_SHARDS)
def test_a_shard_is_known_by_what_is_in_it(
    change: Callable[[Path, Path], object], words: str, origin: Origin | None, tmp_path: Path
) -> None:
    middle = f"{ORIGIN.run}-0000{{0}}-" if origin else ""
    names = [f"train-{middle}0000{{0}}{'-0123abcd' * bool(origin)}.parquet".format(n) for n in (1, 2, 3)]
    for update, name in enumerate(names, 1):
        save(tmp_path, played(LAKE, update=update), origin, name)
    for config in CONFIGS:
        change(*(tmp_path / config / name for name in names[:2]))
    assert re.search(words, problems(tmp_path))


def test_an_action_that_is_changed_with_its_reply_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite(save(tmp_path, played(LAKE)) / "steps" / "train-1.parquet", other_action_and_reply)
    assert re.search("the record has another|does not follow", problems(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        main(["verify", str(tmp_path)])
    assert "WRONG" in capsys.readouterr().out
