"""An untouched run passes verification on any processor; a change of any step, episode, figure or claim is found."""

from __future__ import annotations

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
from msgrpo_hub.evaluation import scores
from msgrpo_hub.evaluation.results import Result, load_result, run_hash, run_tables
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.evaluation.suites import HARNESS, load_suite
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_episodes, replayed_states
from msgrpo_hub.storage import run_files
from tests.evaluation.tampering import (
    SLIPPERY,
    SNAKE,
    Rows,
    changed_at,
    copied,
    forged,
    found,
    paths,
    put,
    renamed,
    rewrite,
    rewrite_json,
)
from tests.identities import MODEL, batched

# ---- untouched runs


def test_an_untouched_run_passes_and_says_which_parts_were_checked(played: Path) -> None:
    unchecked = ["number of episodes not checked: mine is not a built-in suite"]
    assert [(row["player"], row["task"], row["episodes"], row["problems"], row["unchecked"]) for row in verify(played)] == [
        ("random", task, 32, [], unchecked) for task in (SLIPPERY, SNAKE, f"{SNAKE}:rotated")
    ]


def test_a_rewritten_file_with_the_same_content_passes(lake: Result) -> None:
    for name in ("episodes", "steps"):
        rewrite(lake, name, list)
    for name in ("results.json", "config.lock.json"):
        rewrite_json(lake, name, dict)
    assert found(lake) == ""


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

    rewrite(lake, "episodes", shift(1e-15, "regret", "luck_adjusted"))
    rewrite(lake, "steps", shift(1e-15, "regret"))
    assert found(lake) == ""
    rewrite(lake, "episodes", shift(1e-6, "regret", "luck_adjusted"))
    assert "its scores do not follow from its steps" in found(lake)


def test_each_episode_is_replayed_once(lake: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    monkeypatch.setattr(scores, "replayed_states", lambda game, episode: played.append(episode) or replayed_states(game, episode))
    assert found(lake) == ""
    assert played == lake.episodes


@pytest.mark.parametrize("name", ["score_steps", "score_episode", "run_summary"])
def test_a_fault_of_our_scoring_is_not_blamed_on_the_run(name: str, lake: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr(f"msgrpo_hub.evaluation.verify.{name}", faulty)
    with pytest.raises(KeyError, match="a fault"):
        verify(lake.folder)


def test_a_folder_without_runs_is_refused_in_one_line(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=r"no runs under .*expected a folder that `msgrpo eval --output-dir` has filled"):
            verify(folder)


# ---- one change


def other_action(rows: Rows) -> None:
    rows[0]["action"] = next(action for action in ("Left", "Down") if action != rows[0]["action"])


def other_reply(rows: Rows) -> None:
    rows[0]["reply"] = f"<action>{next(action for action in ('Left', 'Down') if action != rows[0]['action'])}</action>"


def other_action_and_reply(rows: Rows) -> None:
    other_action(rows)
    rows[0]["reply"] = f"<action>{rows[0]['action']}</action>"


def without_episode(rows: Rows) -> Rows:
    return [row for row in rows if row["index"] != 3]


def swapped(rows: Rows) -> Rows:
    return [{**row, "index": {2: 3, 3: 2}.get(row["index"], row["index"])} for row in rows]


def flipped(value: bool) -> bool:
    return not value


SCORES, SUITE = "its scores do not follow", "its episodes are not those of the suite"
CHANGES: dict[str, tuple[str, Callable[[Rows], Any], str]] = {
    "a reward": ("steps", put(0, reward=1.0), "reward 1 on turn 1, where the rules give 0"),
    "a reward in its last digit": ("steps", put(0, reward=5e-324), "on turn 1, where the rules give 0"),
    "an action": ("steps", other_action, "episode 0: "),
    "a reply": ("steps", other_reply, "turn 1: its reply does not parse to"),
    "an action with its reply": ("steps", other_action_and_reply, "episode 0: "),
    "an unreadable reply": ("steps", put(0, reply="?"), "turn 1: its reply does not parse to"),
    "no action": ("steps", put(0, action=None, reply="?", status="unreadable", legal=False), "episode 0: "),
    "an unknown action": ("steps", put(0, action="Jump"), "no action 'Jump'"),
    "an observation": ("steps", put(0, observation=lambda old: f"{old} "), "another observation .* on turn 1"),
    "a legal flag": ("steps", put(0, legal=flipped), "turn 1: its status or its legality"),
    "a status": ("steps", put(0, status="truncated_reply"), "turn 1: its status or its legality"),
    "the legal actions": ("steps", put(0, legal_actions=["Left"]), SCORES),
    "the optimal actions": ("steps", put(0, optimal_actions=["Left", "Up"]), SCORES),
    "the regret of a step": ("steps", put(0, regret=lambda old: old + 0.01), SCORES),
    "the number of a turn": ("steps", put(0, turn=7), "has other indices or turn numbers"),
    "a missing step": ("steps", lambda rows: rows[1:], "episode 0: "),
    "a missing last step": ("steps", lambda rows: rows[:-1], "episode 31: "),
    "no steps": ("steps", lambda rows: rows[:0], "episode 0: "),
    "a step twice": ("steps", lambda rows: [rows[0], *rows], "episode 0: "),
    "the order of steps": ("steps", lambda rows: [*rows[:-2], rows[-1], rows[-2]], "episode 31: "),
    "the steps of an episode": ("steps", without_episode, "episode 3: "),
    "swapped steps of two episodes": ("steps", swapped, "episode 2: "),
    "a seed": ("episodes", put(0, seed=7), SUITE),
    "another seed of the suite": ("episodes", put(0, seed=episode_seed(SLIPPERY, "test", 1)), SUITE),
    "a seed of another split": ("episodes", put(0, seed=episode_seed(SLIPPERY, "validation", 0)), SUITE),
    "another member": ("episodes", put(0, member=1), SUITE),
    "an index": ("episodes", put(0, index=40), "numbers|episode 0"),
    "the end": ("episodes", put(0, terminated=flipped), "another end"),
    "the truncation": ("episodes", put(0, truncated=flipped), "another end"),
    "the success": ("episodes", put(0, success=flipped), "success = "),
    "the return": ("episodes", put(0, reward=lambda old: old + 1), SCORES),
    "the regret": ("episodes", put(0, regret=lambda old: old + 0.01), SCORES),
    "the luck-adjusted score": ("episodes", put(0, luck_adjusted=1.0), SCORES),
    "the number of steps": ("episodes", put(0, steps=1_000), SCORES),
    "the unreadable replies": ("episodes", put(0, unreadable=1), SCORES),
    "the illegal actions": ("episodes", put(0, illegal=99), SCORES),
    "the tokens": ("episodes", put(0, prompt_tokens=5), SCORES),
    "a missing episode": ("episodes", without_episode, "has other indices"),
    "an episode twice": ("episodes", lambda rows: [*rows, rows[0]], f"{SUITE}, each once"),
    "the order of episodes": ("episodes", lambda rows: rows[::-1], f"{SUITE}, each once and in order"),
    **{f"no {name}": ("steps", put(0, **{name: None}), "^no readable run in ") for name in ("reply", "observation", "reward")},
    "no game": ("episodes", put(0, game=None), "^no readable run in "),
}
"""The file that is changed, the change, and a part of the message."""


@pytest.mark.parametrize(("name", "change", "words"), CHANGES.values(), ids=CHANGES)
def test_any_change_of_a_step_or_an_episode_is_found(name: str, change: Callable[[Rows], Any], words: str, lake: Result) -> None:
    rewrite(lake, name, change)
    said = found(lake)
    assert re.search(words, said), said


def test_a_changed_run_among_others_is_the_one_that_is_named(played: Path, tmp_path: Path) -> None:
    shutil.copytree(played, tmp_path / "all")
    [file] = [path for path in (tmp_path / "all").rglob("steps.parquet") if SLIPPERY in path.parts]
    rewrite(load_result(file.parent), "steps", put(0, reward=1.0))
    assert [bool(row["problems"]) for row in verify(tmp_path / "all")] == [True, False, False]


@pytest.mark.parametrize("name", ["steps", "episodes"])
def test_another_column_is_found(name: str, lake: Result) -> None:
    file = lake.folder / f"{name}.parquet"
    table = pq.read_table(file)
    pq.write_table(table.append_column("note", pa.array(["trust me"] * len(table))), file)
    assert "has other columns" in found(lake)


def test_every_figure_of_a_summary_must_follow_from_the_episodes(lake: Result, played: Path, tmp_path: Path) -> None:
    def other(old: Any) -> Any:
        return not old if isinstance(old, bool) else "x" if old is None or isinstance(old, str) else old + 0.001

    wrong, before = "the summary does not follow from the episodes", (lake.folder / "results.json").read_text()
    assert len(paths(lake.summary)) > 25
    for path in paths(lake.summary)[::2]:
        rewrite_json(lake, "results.json", changed_at(path, other))
        assert found(lake) == wrong, path
        (lake.folder / "results.json").write_text(before)
    assert found(lake) == ""
    rewrite_json(lake, "results.json", lambda values: values.update(note="best of all"))
    assert found(lake) == wrong
    for number, task in enumerate((SNAKE, f"{SNAKE}:rotated")):
        result = copied(played, tmp_path / str(number), task)
        assert found(result) == ""
        rewrite_json(result, "results.json", lambda values: values["references"].update(greedy=0.0))
        assert found(result) == wrong


@pytest.mark.parametrize("near", ["many", {"of": 1}, [1], -5, 1.0, True, 10**6])
def test_a_number_of_near_draws_that_the_replies_cannot_have_is_found(near: object, lake: Result) -> None:
    rewrite_json(lake, "results.json", lambda values: values.update(near_draws=near))
    assert found(lake) == "its number of near draws does not fit its replies"
    rewrite_json(lake, "results.json", lambda values: values.update(near_draws=0))
    assert found(lake) == ""


def test_rewards_above_the_exact_optimum_are_flagged(lake: Result) -> None:
    won = [replace(score, reward=1.0) for score in lake.scores]
    seeds = [episode.seed for episode in lake.episodes]
    assert summarise(SLIPPERY, seeds, won, lake.steps, 0)["above_optimum"]
    assert not lake.summary["above_optimum"]
    draws = np.random.default_rng(0).random(len(won))
    fair = [replace(s, reward=float(draw < (s.value_optimal or 0))) for s, draw in zip(won, draws, strict=True)]
    assert not summarise(SLIPPERY, seeds, fair, lake.steps, 0)["above_optimum"]


# ---- forged claims: hash, folder, tables and summary agree with them


def test_every_field_of_the_configuration_is_bound_to_the_folder(lake: Result) -> None:
    before = (lake.folder / "config.lock.json").read_text()
    for path in paths(lake.config):
        rewrite_json(lake, "config.lock.json", changed_at(path, lambda old: old * 2))
        assert found(lake).startswith("the run hash of its configuration is ") or (
            path == ("task",) and "run hash" in found(lake)
        )
        (lake.folder / "config.lock.json").write_text(before)
    rewrite_json(lake, "config.lock.json", lambda values: values.pop("split"))
    assert found(lake).startswith("the run hash of its configuration is ")


def test_a_lucky_member_in_the_place_of_an_unlucky_one_is_found(lake: Result) -> None:
    game, seed = make_game(SLIPPERY), lake.episodes[0].seed  # a forger could play each lake until it is won
    tries = play_episodes(game, ScriptedPolicy(choose_random), [(seed, member) for member in range(1, 400)])
    best = max(tries, key=lambda episode: episode.reward)
    score = score_episode(game, best, score_steps(game, best))
    assert best.reward == 1.0
    episodes, scored = [best, *lake.episodes[1:]], [score, *lake.scores[1:]]
    steps = [score_steps(game, episode) for episode in episodes]
    run_files.write_tables(lake.folder, run_tables(lake.config, range(32), episodes, scored, steps))
    figures = summarise(SLIPPERY, [e.seed for e in episodes], scored, steps, int(run_hash(lake.config), 16))
    rewrite_json(lake, "results.json", lambda values: values.update(figures))
    assert found(lake) == "its episodes are not those of the suite, each once and in order"


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
    "the training split": ({"split": "train"}, "another split"),
    "another game": ({"task_hash": "0123"}, "it was played on 0123, but the hash"),
    "another player": (
        {"player": "optimal"},
        "the player is called 'optimal', but its identity is that of another player of kind scripted",
    ),
    "a model without batch size": (
        {"player": "org/model", "identity": MODEL},
        "its identity is incomplete: language model without a valid batch_size",
    ),
    **{
        f"harness {harness!r}": (
            {"harness": harness},
            f"it was made by version {str(harness)!r} of the harness, this is {HARNESS}",
        )
        for harness in (HARNESS + 1, 0, -1, True, float(HARNESS), str(HARNESS), None)
    },
    **{
        f"identity {number}": ({"identity": identity}, "its identity ")
        for number, identity in enumerate(({}, {"kind": "scripted"}, {"kind": "model"}, {"player": "random"}, {"kind": ["a"]}))
    },
}


@pytest.mark.parametrize(("changes", "words"), CLAIMS.values(), ids=CLAIMS)
def test_a_forged_claim_is_found(changes: dict[str, Any], words: str, lake: Result) -> None:
    assert words in found(forged(lake, **changes))


def test_a_model_with_its_batch_size_passes_and_a_suite_must_have_the_task(lake: Result, played: Path, tmp_path: Path) -> None:
    assert found(forged(lake, player="org/model", identity=batched(MODEL))) == ""
    other = copied(played, tmp_path / "other", SNAKE)
    size = load_suite("standard").episodes
    assert found(forged(other, suite="standard", episodes=size)) == f"the suite standard has no task {SNAKE}"


NAMES = ["suite", "identity", "player", "prompt_format", "prompt_format_hash"]


@pytest.mark.parametrize("name", [*NAMES, "split", "task", "task_hash"])
def test_a_missing_value_and_a_value_of_another_type_are_found(name: str, lake: Result) -> None:
    wrong = renamed(lake, lake.config | {name: [1]})
    assert name == "split" or found(wrong).startswith(f"its configuration has {name} = [1]: expected ")
    if name not in ("task", "task_hash"):
        config = {key: value for key, value in lake.config.items() if key != name}
        assert f"its configuration lacks {name}" in found(renamed(wrong, config))
