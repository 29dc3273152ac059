"""A run of which any step, episode or figure was changed does not pass verification."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.games import episode_seed
from tests.evaluation.tampering import SLIPPERY, SNAKE, Rows, copied, found, paths, put, rewrite, rewrite_json

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
    "a reply": (other_reply, "turn 1: its reply does not parse to"),
    "an action with its reply": (other_action_and_reply, "episode 0: "),
    "a reply made unreadable": (put(0, reply="?"), "turn 1: its reply does not parse to"),
    "an action taken away": (put(0, action=None, reply="?", status="unreadable", legal=False), "episode 0: "),
    "an action that there is none": (put(0, action="Jump"), "no action 'Jump'"),
    "an observation": (lambda rows: put(0, observation=rows[0]["observation"] + " ")(rows), "another observation .* on turn 1"),
    "a legal flag": (lambda rows: put(0, legal=not rows[0]["legal"])(rows), "turn 1: its status or its legality"),
    "a status": (put(0, status="truncated_reply"), "turn 1: its status or its legality"),
    "the legal actions": (put(0, legal_actions=["Left"]), "its scores do not follow"),
    "the optimal actions": (put(0, optimal_actions=["Left", "Up"]), "its scores do not follow"),
    "a regret": (lambda rows: put(0, regret=rows[0]["regret"] + 0.01)(rows), "its scores do not follow"),
    "a turn's number": (put(0, turn=7), "has other indices or turn numbers"),
    "a step dropped": (lambda rows: rows[1:], "episode 0: "),
    "the last step dropped": (lambda rows: rows[:-1], "episode 31: "),
    "a step twice": (lambda rows: [rows[0], *rows], "episode 0: "),
    "the order of steps": (lambda rows: [*rows[:-2], rows[-1], rows[-2]], "episode 31: "),
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
    "an episode dropped": (without_episode, "has other indices"),
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
