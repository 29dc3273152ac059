"""The main result: its units, other ways to train, and its headline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.experiments.experiment import Values, load, read_rows, values_of
from benchmark.experiments.main_result.runs import CEILING, best_value, ceiling, moves_left, run, trained
from benchmark.experiments.training import configured
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.solving import solve
from msgrpo_hub.training.config import TrainConfig, preset

MAIN = load("main_result")
LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


def test_the_preset_of_the_slippery_lake_has_the_settings_of_the_main_result() -> None:
    [stage] = MAIN.units["slippery-taught-and-reinforced-longer-seed0"]["stages"]
    assert replace(configured(stage), eval_every=20, test_episodes=200) == preset("quickstart-slippery")


def test_a_stage_with_taught_updates_is_a_run_and_the_next_starts_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = MAIN.units["snake-standard-taught-and-reinforced-seed1"]["stages"]
    assert [configured(stage).taught for stage in stages] == [150, 0]
    begun = []

    def adapter_of(config: TrainConfig, _: Path) -> Path:
        begun.append(config)
        return tmp_path / str(len(begun))

    monkeypatch.setattr("benchmark.experiments.main_result.runs.adapter_of", adapter_of)
    assert trained(stages, 1, tmp_path) == tmp_path / "2"
    assert [(config.seed, config.init_adapter) for config in begun] == [(1, ""), (1, str(tmp_path / "1"))]


def test_a_ceiling_is_the_best_of_the_moves_left_and_with_all_moves_the_optimum() -> None:
    lake = make_game("FrozenLake-Slippery-v1")
    assert is_solvable(lake)
    start = lake.initial_state(stream(7, "initial_state"))
    assert best_value(lake, start, lambda _: lake.actions) == pytest.approx(solve(lake, start).best(start))
    # Two turns before the end beside the goal, above it: Down reaches it with chance 1/3, else slips left, or stays at the wall.
    beside = replace(start, player=(2, 3), turn=lake.horizon - 2, holes=())
    assert best_value(lake, beside, lambda _: ("Down",)) == pytest.approx(1 / 3 + 1 / 3 * 1 / 3)
    # Right is into the wall: it stays, or slips up or down.
    assert best_value(lake, beside, moves_left(lake, "best with Down and Right alone")) == pytest.approx(1 / 3 + 1 / 3 * 1 / 3)
    assert "Right" not in moves_left(lake, "best with Down and Right alone and without moves into walls")(beside)


def test_ceilings_of_the_test_boards_are_the_stored_ones() -> None:
    rows, slippery = values_of(read_rows(MAIN)), "FrozenLake-Slippery-v1"
    for name in (name for name in MAIN.config["players"][slippery] if name.startswith(CEILING)):
        found = rows[f"{slippery}-{name.replace(' ', '-')}"]["games"][slippery]
        assert ceiling(name, slippery, episodes=20) == {score: values[:20] for score, values in found.items()}


@pytest.mark.slow
def test_a_dqn_is_trained_once_and_plays_the_test_episodes(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra dqn is not installed")
    unit = {**MAIN.units[f"dqn-{LAKE}-20000-seed0"], "steps": 64, "episodes": 8}
    found = run(unit, tmp_path)
    assert found["player"] == "DQN, 64 steps"
    assert len(found["games"][LAKE]["rewards"]) == len(found["games"][LAKE]["luck_adjusted"]) == 8
    assert run(unit, tmp_path)["games"] == found["games"]


@pytest.mark.slow
def test_trl_trains_for_the_seconds_of_our_run_and_its_adapter_plays(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra trl is not installed")
    from benchmark.experiments.main_result.with_trl import MOST

    small = {"updates": 2, "groups": 1, "group_size": 4, "selected_per_group": 2, "token_budget": 4096}
    unit = MAIN.units["trl-snake alone-seed0"]  # returns of four episodes differ here, so that the adapter changes
    found = run({**unit, "stages": [{**unit["stages"][0], **small}], "episodes": 4}, tmp_path)
    assert 1 <= found["updates"] <= 2 * MOST, "it stops after the seconds"
    assert found["training_episodes"] == 4 * found["updates"]
    assert len(found["games"][SOLO]["rewards"]) == 4


def test_the_headline_has_shares_of_the_best_player() -> None:
    means = {"trained: x": (2.0, 3.0, 4.0), "planner": (4.0,), "greedy": (3.5,), "DQN, 8 steps": (1.0, 1.0, 1.0)}
    rows: dict[str, Values] = {
        f"{name}-seed{seed}": {"player": name, "games": {SOLO: {"rewards": [mean]}}, "training_episodes": 4_000}
        for name, of in means.items()
        for seed, mean in enumerate(of)
    }
    assert MAIN.headline({name: row for name, row in rows.items() if "seed0" in name}) == "", "one seed of each is too few"
    assert MAIN.headline(rows).splitlines()[-1] == (
        "- **Snake-Solo**, of *planner*: greedy 88%; trained: x 75% (worst of 3 seeds 50%, from 4,000 episodes); "
        "DQN, 8 steps 25% (worst of 3 seeds 25%, from 4,000 episodes)."
    )
