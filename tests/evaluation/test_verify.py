"""Verification: an untouched run passes, on any processor; a run in which anything was changed does not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import Result, load_result, run_hash, run_tables
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage import run_files

SLIPPERY, SNAKE = "FrozenLake-Slippery-v1", "Snake-Short-v1"
SUITE = Suite(name="mine", tasks=(SLIPPERY, SNAKE, f"{SNAKE}:rotated"), episodes=32)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("played")
    evaluate("random", SUITE, folder)
    return folder


@pytest.fixture
def lake(played: Path, tmp_path: Path) -> Result:
    """A copy of the run on the lake, to tamper with."""
    return copied(played, tmp_path, SLIPPERY)


def copied(played: Path, to: Path, task: str) -> Result:
    [folder] = [path.parent for path in played.rglob("results.json") if task.replace(":", "-") == path.parts[-3]]
    shutil.copytree(folder, to / "run" / folder.name)
    return load_result(to / "run" / folder.name)


def found(result: Result) -> str:
    """What verification says of a run, as one text; empty where all agrees."""
    [row] = verify(result.folder)
    return "; ".join(row["problems"])


Rows = list[dict[str, Any]]


def rewrite(result: Result, name: str, change: Callable[[Rows], Any]) -> None:
    """Rewrites a Parquet file with pyarrow; a change may return other rows."""
    file = result.folder / f"{name}.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    other = change(rows)
    pq.write_table(pa.Table.from_pylist(rows if other is None else other, schema=table.schema), file)


def rewrite_json(result: Result, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    file = result.folder / name
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))


def put(row: int, **values: Any) -> Callable[[Rows], None]:
    return lambda rows: rows[row].update(values)


def test_an_untouched_run_passes_and_says_what_was_checked(played: Path) -> None:
    rows = verify(played)
    assert [(row["player"], row["task"], row["episodes"], row["problems"]) for row in rows] == [
        ("random", task, 32, []) for task in (SLIPPERY, SNAKE, f"{SNAKE}:rotated")
    ]


def test_a_rewritten_file_with_the_same_content_passes(lake: Result) -> None:
    for name in ("episodes", "steps"):
        rewrite(lake, name, list)
    for name in ("results.json", "config.lock.json"):
        rewrite_json(lake, name, dict)
    assert found(lake) == ""


def test_a_run_of_another_processor_passes(lake: Result) -> None:
    """BLAS adds in another order there: values differ in their last digits, and with them regrets and intervals."""
    checks = "import sys; from pathlib import Path; from msgrpo_hub.evaluation.verify import verify"
    for core in ("Prescott", "Haswell"):
        environment = os.environ | {"OPENBLAS_CORETYPE": core}
        done = subprocess.run(
            [sys.executable, "-c", f"{checks}; print(verify(Path(sys.argv[1])))", lake.folder],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert "'problems': []" in done.stdout, (core, done)


def test_values_may_differ_in_their_last_digits_and_in_no_others(lake: Result) -> None:
    def shift(by: float, *names: str) -> Callable[[Rows], Rows]:
        return lambda rows: [{**row, **{name: row[name] + by for name in names}} for row in rows]

    rewrite(lake, "episodes", shift(1e-15, "regret", "luck_adjusted"))
    rewrite(lake, "steps", shift(1e-15, "regret"))
    assert found(lake) == ""
    rewrite(lake, "episodes", shift(1e-6, "regret", "luck_adjusted"))
    assert "its scores do not follow from its play" in found(lake)


# ---- each single tampering

ACTIONS = ("Left", "Down", "Right", "Up")


def other_action(rows: Rows) -> None:
    rows[0]["action"] = next(a for a in ACTIONS if a != rows[0]["action"])


def other_reply(rows: Rows) -> None:
    rows[0]["reply"] = f"<action>{next(a for a in ACTIONS if a != rows[0]['action'])}</action>"


def other_action_and_reply(rows: Rows) -> None:
    other_action(rows)
    rows[0]["reply"] = f"<action>{rows[0]['action']}</action>"


def without_episode(rows: Rows) -> Rows:
    return [row for row in rows if row["index"] != 3]


def swapped(rows: Rows) -> Rows:
    return [{**row, "index": {2: 3, 3: 2}.get(row["index"], row["index"])} for row in rows]


STEPS: dict[str, tuple[Callable[[Rows], Any], str]] = {
    "a reward": (put(0, reward=1.0), "reward 1 on turn 1, where the rules give 0"),
    "a reward by one in the last place": (put(0, reward=5e-324), "on turn 1, where the rules give 0"),
    "an action": (other_action, "episode 0: "),
    "a reply": (other_reply, "turn 1: its reply does not say"),
    "an action with its reply": (other_action_and_reply, "episode 0: "),
    "a reply made unreadable": (put(0, reply="?"), "turn 1: its reply does not say"),
    "an action taken away": (put(0, action=None, reply="?", status="unreadable", legal=False), "episode 0: "),
    "an action that there is none": (put(0, action="Jump"), "no action 'Jump'"),
    "an observation": (lambda rows: put(0, observation=rows[0]["observation"] + " ")(rows), "another observation .* on turn 1"),
    "a legal flag": (lambda rows: put(0, legal=not rows[0]["legal"])(rows), "turn 1: its status or its legality"),
    "a status": (put(0, status="truncated_reply"), "turn 1: its status or its legality"),
    "the legal actions": (put(0, legal_actions=["Left"]), "its scores do not follow"),
    "the optimal actions": (put(0, optimal_actions=["Left", "Up"]), "its scores do not follow"),
    "a regret": (lambda rows: put(0, regret=rows[0]["regret"] + 0.01)(rows), "its scores do not follow"),
    "a turn's number": (put(0, turn=7), "numbers its episodes or turns otherwise"),
    "a step dropped": (lambda rows: rows[1:], "episode 0: "),
    "the last step dropped": (lambda rows: rows[:-1], "episode 31: "),
    "a step twice": (lambda rows: [rows[0], *rows], "episode 0: "),
    "the order of steps": (lambda rows: [rows[1], rows[0], *rows[2:]], "episode 0: "),
    "steps of an episode dropped": (without_episode, "episode 3: "),
    "steps of two episodes swapped": (swapped, "episode 2: "),
}
"""What is changed in steps.parquet, and what must be said."""


@pytest.mark.parametrize(("change", "words"), STEPS.values(), ids=STEPS)
def test_any_change_of_a_step_is_found(change: Callable[[Rows], Any], words: str, lake: Result) -> None:
    rewrite(lake, "steps", change)
    said = found(lake)
    assert re.search(words, said), said


EPISODES: dict[str, tuple[Callable[[Rows], Any], str]] = {
    "a seed": (put(0, seed=7), "its episodes are not those of the suite"),
    "another seed of the suite": (put(0, seed=episode_seed(SLIPPERY, "test", 1)), "its episodes are not those of the suite"),
    "a seed of the next split": (put(0, seed=episode_seed(SLIPPERY, "validation", 0)), "its episodes are not those of the suite"),
    "another chance": (put(0, member=1), "its episodes are not those of the suite"),
    "its number": (put(0, index=40), "numbers|episode 0"),
    "its end": (lambda rows: put(0, terminated=not rows[0]["terminated"])(rows), "another end"),
    "its truncation": (lambda rows: put(0, truncated=not rows[0]["truncated"])(rows), "another end"),
    "its success": (lambda rows: put(0, success=not rows[0]["success"])(rows), "success = "),
    "its reward": (lambda rows: put(0, reward=rows[0]["reward"] + 1)(rows), "its scores do not follow"),
    "its regret": (lambda rows: put(0, regret=rows[0]["regret"] + 0.01)(rows), "its scores do not follow"),
    "its luck-adjusted score": (lambda rows: put(0, luck_adjusted=1.0)(rows), "its scores do not follow"),
    "its steps": (put(0, steps=1_000), "its scores do not follow"),
    "its unreadable replies": (put(0, unreadable=1), "its scores do not follow"),
    "its illegal actions": (put(0, illegal=99), "its scores do not follow"),
    "its tokens": (put(0, prompt_tokens=5), "its scores do not follow"),
    "an episode dropped": (without_episode, "numbers its episodes"),
    "an episode twice": (lambda rows: [*rows, rows[0]], "its episodes are not those of the suite, each once"),
    "the order of episodes": (lambda rows: rows[::-1], "its episodes are not those of the suite, each once and in order"),
}


@pytest.mark.parametrize(("change", "words"), EPISODES.values(), ids=EPISODES)
def test_any_change_of_an_episode_is_found(change: Callable[[Rows], Any], words: str, lake: Result) -> None:
    rewrite(lake, "episodes", change)
    said = found(lake)
    assert re.search(words, said), said


@pytest.mark.parametrize("name", ["steps", "episodes"])
def test_a_column_more_is_found(name: str, lake: Result) -> None:
    file = lake.folder / f"{name}.parquet"
    table = pq.read_table(file)
    pq.write_table(table.append_column("note", pa.array(["trust me"] * len(table))), file)
    assert "has other columns" in found(lake)


def paths(values: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where the figures of a summary are."""
    if isinstance(values, dict):
        return [path for key, value in values.items() for path in paths(value, (*at, key))]
    return [at]


def test_every_figure_of_a_summary_must_follow_from_the_episodes(lake: Result) -> None:
    assert len(paths(lake.summary)) > 25
    for path in paths(lake.summary)[::2]:

        def change(values: dict[str, Any], path: tuple[str, ...] = path) -> None:
            for key in path[:-1]:
                values = values[key]
            old = values[path[-1]]
            values[path[-1]] = not old if isinstance(old, bool) else "x" if old is None or isinstance(old, str) else old + 0.001

        before = (lake.folder / "results.json").read_text()
        rewrite_json(lake, "results.json", change)
        assert found(lake) == "the summary does not follow from the episodes", path
        (lake.folder / "results.json").write_text(before)
    assert found(lake) == ""
    rewrite_json(lake, "results.json", lambda values: values.update(note="best of all"))
    assert found(lake) == "the summary does not follow from the episodes"


def test_a_figure_of_a_snake_cannot_be_changed_either(played: Path, tmp_path: Path) -> None:
    for number, task in enumerate((SNAKE, f"{SNAKE}:rotated")):
        result = copied(played, tmp_path / str(number), task)
        assert found(result) == ""
        rewrite_json(result, "results.json", lambda values: values["references"].update(greedy=0.0))
        assert found(result) == "the summary does not follow from the episodes"


def test_every_field_of_the_configuration_is_bound_to_the_folder(lake: Result) -> None:
    for path in paths(lake.config):

        def change(values: dict[str, Any], path: tuple[str, ...] = path) -> None:
            for key in path[:-1]:
                values = values[key]
            values[path[-1]] = values[path[-1]] * 2

        before = (lake.folder / "config.lock.json").read_text()
        rewrite_json(lake, "config.lock.json", change)
        if path == ("task",):
            assert "run hash" in found(lake)
        else:
            assert found(lake).startswith("the run hash of its configuration is ")
        (lake.folder / "config.lock.json").write_text(before)
    rewrite_json(lake, "config.lock.json", lambda values: values.pop("split"))
    assert found(lake).startswith("the run hash of its configuration is ")


def renamed(result: Result, change: Callable[[dict[str, Any]], Any]) -> Result:
    """A forged configuration in a folder that has the name for it, and the summary too."""
    rewrite_json(result, "config.lock.json", change)
    hash = run_hash(json.loads((result.folder / "config.lock.json").read_text()))
    rewrite_json(result, "results.json", lambda values: values.update(run=hash))
    return load_result(result.folder.rename(result.folder.with_name(hash)))


def test_a_forged_task_hash_is_found_even_where_the_folder_is_renamed(lake: Result) -> None:
    assert "it was played on 0123, this version of the game is " in found(renamed(lake, lambda c: c.update(task_hash="0123")))


def test_a_run_that_claims_to_be_another_split_or_a_shorter_suite_is_found(lake: Result) -> None:
    assert "not those of the suite" in found(renamed(lake, lambda c: c.update(split="validation")))


def test_a_shorter_suite_does_not_hide_bad_episodes(lake: Result) -> None:
    assert "not those of the suite" in found(renamed(lake, lambda c: c.update(episodes=31)))


def test_bad_episodes_left_out_of_every_file_leave_a_run_that_says_that_it_is_not_complete(lake: Result) -> None:
    """The forger rewrites tables and summary alike: all that is left to them is an honest word about what is missing."""
    lucky = [i for i, score in enumerate(lake.scores) if score.success]
    assert 0 < len(lucky) < 32
    for name in ("episodes", "steps"):
        rewrite(lake, name, lambda rows: [row for row in rows if row["index"] in lucky])
    scores = [lake.scores[i] for i in lucky]
    figures = summarise(SLIPPERY, [lake.episodes[i].seed for i in lucky], scores, int(run_hash(lake.config), 16))
    summary = {"run": run_hash(lake.config), "complete": True, "failed": 0, **figures}
    (lake.folder / "results.json").write_text(json.dumps(summary))
    assert found(lake) == "the summary does not follow from the episodes"
    (lake.folder / "results.json").write_text(json.dumps(summary | {"complete": False, "failed": 32 - len(lucky)}))
    assert found(lake) == ""


def test_a_lucky_member_in_the_place_of_an_unlucky_one_is_found(lake: Result) -> None:
    """The same lake with other slips: a forger could play each seed until it is won."""
    game, seed = make_game(SLIPPERY), lake.episodes[0].seed
    tries = play_episodes(game, ScriptedPolicy(choose_random), [(seed, member) for member in range(1, 400)])
    best = max(tries, key=lambda episode: episode.reward)
    score = score_episode(game, best, score_steps(game, best))
    assert best.reward == 1.0
    episodes, scores = [best, *lake.episodes[1:]], [score, *lake.scores[1:]]
    steps = [score_steps(game, episode) for episode in episodes]
    run_files.write_tables(lake.folder, run_tables(lake.config, range(32), episodes, scores, steps))
    figures = summarise(SLIPPERY, [e.seed for e in episodes], scores, int(run_hash(lake.config), 16))
    rewrite_json(lake, "results.json", lambda values: values.update(figures))
    assert found(lake) == "its episodes are not those of the suite, each once and in order"


def test_one_wrong_run_among_others_is_the_one_that_is_named(played: Path, tmp_path: Path) -> None:
    shutil.copytree(played, tmp_path / "all")
    [file] = [path for path in (tmp_path / "all").rglob("steps.parquet") if SLIPPERY in path.parts]
    rewrite(load_result(file.parent), "steps", put(0, reward=1.0))
    assert [bool(row["problems"]) for row in verify(tmp_path / "all")] == [True, False, False]


def test_an_episode_of_nothing_is_found(lake: Result) -> None:
    rewrite(lake, "steps", lambda rows: rows[:0])
    assert "episode 0: " in found(lake)


def test_a_folder_without_runs_is_refused_in_one_line(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=r"no runs under .*expected a folder that `msgrpo eval --output-dir` has filled"):
            verify(folder)


def test_rewards_above_the_exact_optimum_are_flagged_as_such(lake: Result) -> None:
    """Several printed results lie above the optimum of the game that they name."""
    won = [replace(score, reward=1.0) for score in lake.scores]
    seeds = [episode.seed for episode in lake.episodes]
    assert summarise(SLIPPERY, seeds, won, 0)["above_optimum"]
    assert not lake.summary["above_optimum"]
    draws = np.random.default_rng(0).random(len(won))
    fair = [replace(s, reward=float(draw < (s.value_optimal or 0))) for s, draw in zip(won, draws, strict=True)]
    assert not summarise(SLIPPERY, seeds, fair, 0)["above_optimum"]
