"""An untouched run passes verification, on any processor, and what is bound together cannot be changed apart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import scores
from msgrpo_hub.evaluation.results import Result, load_result, run_hash, run_tables
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.games import make_game
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_episodes, replayed_states
from msgrpo_hub.storage import run_files
from tests.evaluation.tampering import SLIPPERY, SNAKE, Rows, found, paths, put, rewrite, rewrite_json


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
    assert "its scores do not follow from its steps" in found(lake)


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
    figures = summarise(SLIPPERY, [e.seed for e in episodes], scores, steps, int(run_hash(lake.config), 16))
    rewrite_json(lake, "results.json", lambda values: values.update(figures))
    assert found(lake) == "its episodes are not those of the suite, each once and in order"


def test_one_wrong_run_among_others_is_the_one_that_is_named(played: Path, tmp_path: Path) -> None:
    shutil.copytree(played, tmp_path / "all")
    [file] = [path for path in (tmp_path / "all").rglob("steps.parquet") if SLIPPERY in path.parts]
    rewrite(load_result(file.parent), "steps", put(0, reward=1.0))
    assert [bool(row["problems"]) for row in verify(tmp_path / "all")] == [True, False, False]


@pytest.mark.parametrize("near", ["many", {"of": 1}, [1], -5, 1.0, True, 10**6])
def test_a_number_of_near_draws_that_the_replies_cannot_have_is_found(near: object, lake: Result) -> None:
    rewrite_json(lake, "results.json", lambda values: values.update(near_draws=near))
    assert found(lake) == "its number of near draws does not fit its replies"
    rewrite_json(lake, "results.json", lambda values: values.update(near_draws=0))
    assert found(lake) == ""


@pytest.mark.parametrize("name", ["score_steps", "score_episode", "run_summary"])
def test_a_fault_of_our_scoring_is_not_blamed_on_the_run(name: str, lake: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr(f"msgrpo_hub.evaluation.verify.{name}", faulty)
    with pytest.raises(KeyError, match="a fault"):
        verify(lake.folder)


@pytest.mark.parametrize("column", ["reply", "observation", "reward", "game"])
def test_a_row_without_a_value_is_one_line(column: str, lake: Result) -> None:
    rewrite(lake, "episodes" if column == "game" else "steps", put(0, **{column: None}))
    assert found(lake).startswith("no readable run in ")


def test_each_episode_is_replayed_once(lake: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    monkeypatch.setattr(scores, "replayed_states", lambda game, episode: played.append(episode) or replayed_states(game, episode))
    assert found(lake) == ""
    assert played == lake.episodes


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
    assert summarise(SLIPPERY, seeds, won, lake.steps, 0)["above_optimum"]
    assert not lake.summary["above_optimum"]
    draws = np.random.default_rng(0).random(len(won))
    fair = [replace(s, reward=float(draw < (s.value_optimal or 0))) for s, draw in zip(won, draws, strict=True)]
    assert not summarise(SLIPPERY, seeds, fair, lake.steps, 0)["above_optimum"]
