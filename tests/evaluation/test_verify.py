"""An untouched run passes verification on any processor; a change of any step, episode, figure or claim is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.suites import HARNESS, load_suite
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.schema import COLUMNS
from msgrpo_hub.storage.shards import read_table
from tests.evaluation.tampering import (
    SLIPPERY,
    SNAKE,
    Rows,
    changed_at,
    copied,
    forged,
    found,
    other_action_and_reply,
    other_reply,
    other_values,
    paths,
    put,
    rewrite,
    rewrite_json,
)
from tests.identities import MODEL, batched


def test_an_untouched_run_passes_and_says_which_parts_were_checked(played: Path) -> None:
    unchecked = ["number of episodes not checked: mine is not a built-in suite"]
    assert [(row["player"], row["task"], row["episodes"], row["problems"], row["unchecked"]) for row in verify(played)] == [
        ("random", task, 32, [], unchecked) for task in (SLIPPERY, SNAKE, f"{SNAKE}:rotated")
    ]


def test_a_run_of_another_processor_passes(lake: Result) -> None:
    # BLAS adds in another order there, which changes the last digits of values, regrets and intervals.
    checks = "import sys; from pathlib import Path; from msgrpo_hub.evaluation.verify import verify"
    for core in ("Prescott", "Haswell"):
        command = [sys.executable, "-c", f"{checks}; print(verify(Path(sys.argv[1])))", lake.folder]
        done = subprocess.run(command, env=os.environ | {"OPENBLAS_CORETYPE": core}, capture_output=True, text=True)
        assert "'problems': []" in done.stdout, (core, done)


def test_values_may_differ_in_their_last_digits_and_in_no_others(lake: Result) -> None:
    def shift(by: float, *names: str) -> Callable[[Rows], Rows]:
        return lambda rows: [{**row, **{name: row[name] + by for name in names}} for row in rows]

    rewrite(lake.folder / "episodes.parquet", shift(1e-15, "regret", "luck_adjusted"))
    rewrite(lake.folder / "steps.parquet", shift(1e-15, "regret"))
    assert found(lake) == ""
    rewrite(lake.folder / "episodes.parquet", shift(1e-6, "regret", "luck_adjusted"))
    assert "its scores do not follow from its steps" in found(lake)


def without_episode(rows: Rows) -> Rows:
    return [row for row in rows if row["index"] != 3]


SCORES, APART, STEPS, EPISODES = "its scores do not follow", "not where they should be", ("steps",), ("episodes",)
CHANGES: dict[str, tuple[tuple[str, ...], Callable[[Rows], Any], str]] = {
    "a reward": (STEPS, put(0, reward=1.0), "reward 1 on turn 1, where the rules give 0"),
    "a reply": (STEPS, other_reply, "turn 1: its reply does not parse to"),
    "an action with its reply": (STEPS, other_action_and_reply, "episode 0: "),
    "an observation": (STEPS, put(0, observation=lambda old: f"{old} "), "another observation .* on turn 1"),
    "a missing step": (STEPS, lambda rows: rows[1:], APART),
    "the order of episodes": (EPISODES, lambda rows: rows[::-1], APART),
    "a missing episode": (STEPS + EPISODES, without_episode, "the tables have 31 of 32 episodes"),
    "a member": (STEPS + EPISODES, lambda rows: [row | {"member": 1} for row in rows], "are not those of the suite, each once"),
    "an index": (
        STEPS + EPISODES,
        lambda rows: [row | {"index": 40 if row["index"] == 31 else row["index"]} for row in rows],
        "other indices",
    ),
}
"""The files that are changed, the change, and a part of the message."""


@pytest.mark.parametrize(("names", "change", "words"), CHANGES.values(), ids=CHANGES)
def test_any_change_of_a_step_or_an_episode_is_found(
    names: tuple[str, ...], change: Callable[[Rows], Any], words: str, lake: Result
) -> None:
    for name in names:
        rewrite(lake.folder / f"{name}.parquet", change)
    said = found(lake)
    assert re.search(words, said), said


def of_a_model(lake: Result) -> Result:
    return forged(lake, player="org/model", identity=batched(MODEL))


@pytest.mark.parametrize("claim", [lambda lake: lake, of_a_model], ids=["scripted", "model"])
@pytest.mark.parametrize(("config", "name"), run_files.TABLES.items(), ids=["default", "steps"])
def test_another_value_or_none_in_any_column_is_found(
    config: str, name: str, claim: Callable[[Result], Result], lake: Result
) -> None:
    run = claim(lake)
    file = run.folder / name
    before, [row, *_] = file.read_bytes(), read_table(file, config).to_pylist()
    for column, (kind, _) in COLUMNS[config].items():
        for value in other_values(kind, row[column]):
            rewrite(file, put(0, **{column: value}))
            assert found(run), (column, value)
            file.write_bytes(before)
    assert found(run) == ""


def test_every_figure_of_a_summary_must_follow_from_the_episodes(lake: Result, played: Path, tmp_path: Path) -> None:
    def other(old: Any) -> Any:
        if isinstance(old, bool):
            return not old
        return "x" if old is None or isinstance(old, str) else old + (1 if isinstance(old, int) else 0.001)

    wrong, before = "the summary does not follow from the episodes", (lake.folder / "results.json").read_text()
    assert len(paths(lake.summary)) > 25
    for path in paths(lake.summary):
        for change in (other, None):
            rewrite_json(lake, "results.json", changed_at(path, change))
            assert found(lake), path
            (lake.folder / "results.json").write_text(before)
    assert found(lake) == ""
    rewrite_json(lake, "results.json", lambda values: values.update(note="best of all"))
    assert found(lake) == wrong
    for number, task in enumerate((SNAKE, f"{SNAKE}:rotated")):
        result = copied(played, tmp_path / str(number), task)
        assert found(result) == ""
        rewrite_json(result, "results.json", lambda values: values["references"].update(greedy=0.0))
        assert found(result) == wrong


@pytest.mark.parametrize("near", ["many", -5, 1.0, 10**6, None])
def test_a_number_of_near_draws_that_the_replies_cannot_have_is_found(near: object, lake: Result) -> None:
    rewrite_json(lake, "results.json", lambda values: values.update(near_draws=0))
    assert found(lake) == (wrong := "its number of near draws does not fit its replies")  # a scripted player has none
    run = of_a_model(lake)
    rewrite_json(run, "results.json", lambda values: values.update(near_draws=near))
    assert found(run) == wrong


def test_rewards_above_the_exact_optimum_are_flagged(lake: Result) -> None:
    won = [replace(score, reward=1.0) for score in lake.scores]
    seeds = [episode.seed for episode in lake.episodes]
    assert summarise(SLIPPERY, seeds, won, lake.steps, 0)["above_optimum"]
    assert not lake.summary["above_optimum"]
    draws = np.random.default_rng(0).random(len(won))
    fair = [replace(s, reward=float(draw < (s.value_optimal or 0))) for s, draw in zip(won, draws, strict=True)]
    assert not summarise(SLIPPERY, seeds, fair, lake.steps, 0)["above_optimum"]


def test_every_field_of_the_configuration_is_bound_to_the_folder(lake: Result) -> None:
    before = (lake.folder / "config.lock.json").read_text()
    for path in paths(lake.config):
        rewrite_json(lake, "config.lock.json", changed_at(path, lambda old: "validation" if old == "test" else old * 2))
        assert found(lake).startswith("the run hash of its configuration is ")
        (lake.folder / "config.lock.json").write_text(before)


def test_a_dropped_episode_is_found_whatever_number_of_episodes_the_run_claims(lake: Result) -> None:
    worst = min(range(31), key=lambda index: lake.scores[index].luck_adjusted or 0.0)
    missing = forged(lake, worst)
    assert found(missing) == "it is not complete: 1 of 32 episodes are missing, play it again"
    assert found(forged(missing, episodes=31)) == "its episodes are not those of the suite, each once and in order"


CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "a suite of another size": (
        {"suite": "standard"},
        "the suite standard has 200 test episodes, its configuration says 32 test episodes: give a suite of your own another",
    ),
    "a suite of another split": ({"suite": "quick", "episodes": 50}, "has 50 validation episodes"),
    "another split": ({"split": "validation"}, "not those of the suite"),
    "another game": ({"task_hash": "0123"}, "it was played on 0123, but the hash"),
    "another player": ({"player": "optimal"}, "the player is called 'optimal', but its identity is that of another player"),
    "a model without batch size": ({"player": "org/model", "identity": MODEL}, "language model without a valid batch_size"),
    "a scripted player that plays otherwise": (
        {"player": "greedy", "identity": {"kind": "scripted", "player": "greedy", "version": 1}},
        "episode 1: the player greedy plays otherwise",
    ),
    "a field that no such player has": (
        {"identity": {"kind": "scripted", "player": "random", "version": 1, "temperature": 0.5}},
        "its identity has 'temperature', which no player of kind scripted has",
    ),
    "another key": ({"note": "best of all"}, "its config.lock.json has other keys"),
    "a shorter limit of replies": ({"player": "org/model", "identity": batched(MODEL | {"max_new_tokens": 7})}, "these tokens"),
    "another harness": ({"harness": HARNESS + 1}, f"it was made by version {HARNESS + 1} of the harness, this is {HARNESS}"),
    "no kind of player": ({"identity": {}}, "its identity does not say what kind of player it is"),
    "no name of a player": ({"identity": {"kind": "scripted"}}, "its identity is incomplete"),
}


@pytest.mark.parametrize(("changes", "words"), CLAIMS.values(), ids=CLAIMS)
def test_a_forged_claim_is_found(changes: dict[str, Any], words: str, lake: Result) -> None:
    assert words in found(forged(lake, **changes))


def test_a_model_with_its_batch_size_passes_and_a_suite_must_have_the_task(lake: Result, played: Path, tmp_path: Path) -> None:
    assert found(of_a_model(lake)) == ""
    other = copied(played, tmp_path / "other", SNAKE)
    size = load_suite("standard").episodes
    assert found(forged(other, suite="standard", episodes=size)) == f"the suite standard has no task {SNAKE}"
