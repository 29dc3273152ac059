"""The other ways to train of the main result: a DQN, and TRL's GRPO for as many seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.experiments.experiment import Values, configuration, load
from benchmark.experiments.main_result.ceilings import CEILING, best_value, ceiling, moves_left
from benchmark.experiments.main_result.page import COMPARED, headline, tables
from benchmark.experiments.main_result.runs import dqn, run, trained, with_trl
from benchmark.experiments.training import configured
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.solving import solve
from msgrpo_hub.training.config import TrainConfig, preset

UNITS = load("main_result").units
LAKE = "FrozenLake-NotSlippery-v1"


def test_every_seed_of_every_other_way_to_train_is_a_unit_of_its_own() -> None:
    assert {f"dqn-{LAKE}-20000-seed{seed}" for seed in range(3)} <= set(UNITS)
    assert UNITS["trl-lake-seed4"]["stages"] == UNITS["lake-seed4"]["stages"]
    assert {f"trained: {unit['trl']}" for unit in UNITS.values() if "trl" in unit} == set(COMPARED)


@pytest.mark.parametrize(("name", "seeds"), [("lake", 8), ("slippery", 5), ("snake alone", 5), ("snake", 5)])
def test_a_run_is_trained_with_its_own_seeds_or_else_with_all(name: str, seeds: int) -> None:
    of_run = [unit for unit in UNITS.values() if unit.get("run") == name]
    assert [unit["seed"] for unit in of_run] == list(range(seeds))
    assert all("seeds" not in stage for unit in of_run for stage in unit["stages"])


def test_the_preset_of_the_slippery_lake_is_what_the_main_result_has() -> None:
    [stage] = UNITS["slippery-taught-and-reinforced-longer-seed0"]["stages"]
    assert replace(configured(stage), eval_every=20, test_episodes=200) == preset("quickstart-slippery")


def test_a_run_with_a_teacher_is_a_run_and_not_what_is_taught_before_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = UNITS["snake-standard-taught-and-reinforced-seed1"]["stages"]
    assert [configured(stage).taught for stage in stages] == [150, 0]
    begun = []

    def adapter_of(config: TrainConfig, _: Path) -> Path:
        begun.append(config)
        return tmp_path / str(len(begun))

    monkeypatch.setattr("benchmark.experiments.main_result.runs.adapter_of", adapter_of)
    assert trained(stages, 1, tmp_path) == tmp_path / "2"
    assert [(config.seed, config.init_adapter) for config in begun] == [(1, ""), (1, str(tmp_path / "1"))]


def test_a_ceiling_is_the_best_of_what_is_left_by_hand_and_all_moves_are_the_optimum() -> None:
    lake = make_game("FrozenLake-Slippery-v1")
    assert is_solvable(lake)
    start = lake.initial_state(stream(7, "initial_state"))
    best = best_value(lake, start, lambda _: lake.actions)
    assert best == pytest.approx(solve(lake, start).best(start))
    # Two turns before the end beside the goal, above it: Down reaches it with chance 1/3, else slips left, or stays at the wall.
    beside = replace(start, player=(2, 3), turn=lake.horizon - 2, holes=())
    assert best_value(lake, beside, lambda _: ("Down",)) == pytest.approx(1 / 3 + 1 / 3 * 1 / 3)
    # Right is into the wall: it stays, or slips up or down. Off walls that move is not made.
    assert best_value(lake, beside, moves_left(lake, "best with Down and Right alone")) == pytest.approx(1 / 3 + 1 / 3 * 1 / 3)
    assert "Right" not in moves_left(lake, "best with Down and Right alone and without moves into walls")(beside)


def test_players_with_fewer_moves_reach_less_on_the_test_boards() -> None:
    found = {
        name: ceiling(name, "FrozenLake-Slippery-v1", episodes=20)
        for name in configuration("main_result")["players"]["FrozenLake-Slippery-v1"]
        if name.startswith(CEILING)
    }
    off_walls, ahead, both = (sum(played["rewards"]) for played in found.values())
    assert both < min(off_walls, ahead)
    assert all(played["rewards"] == played["luck_adjusted"] for played in found.values()), "luck has no part in an expectation"


@pytest.mark.slow
def test_a_dqn_plays_the_test_episodes_as_every_other_player(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra dqn is not installed")
    unit = {**UNITS[f"dqn-{LAKE}-20000-seed0"], "steps": 64, "episodes": 8}
    found = dqn(unit, tmp_path)
    assert found["player"] == "DQN, 64 steps"
    assert len(found["games"][LAKE]["rewards"]) == len(found["games"][LAKE]["luck_adjusted"]) == 8
    assert dqn(unit, tmp_path)["games"] == found["games"], "it is trained once"


@pytest.mark.slow
def test_trl_trains_for_the_seconds_of_our_run_and_its_adapter_plays_as_any_other(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra trl is not installed")
    from benchmark.experiments.main_result.with_trl import MOST

    small = {"updates": 2, "groups": 1, "group_size": 4, "selected_per_group": 2, "token_budget": 4096}
    unit = UNITS["trl-snake alone-seed0"]  # returns of four episodes differ here, so that the adapter changes
    found = with_trl({**unit, "stages": [{**unit["stages"][0], **small}], "episodes": 4}, tmp_path)
    assert 1 <= found["updates"] <= 2 * MOST, "it stops when the seconds are over"
    assert found["training_episodes"] == 4 * found["updates"]
    assert len(found["games"]["Snake-Solo-v1"]["rewards"]) == 4


def test_a_model_plays_at_two_temperatures_which_have_a_line_each(tmp_path: Path) -> None:
    snake = "Snake-Solo-v1"
    base, greedy = (run({"game": snake, "player": player, "episodes": 10}, tmp_path) for player in ("base", "greedy"))
    assert base["games"][snake]["rewards"] != base["cooler"][snake]["rewards"], "the same boards, other replies"
    assert "cooler" not in greedy, "it samples nothing"
    named = [line.split(" | ")[0] for line in tables({"base": base, "greedy": greedy}).splitlines()[4:]]
    assert named == ["| base", "| base at 0.5", "| greedy"]


def test_a_share_of_the_best_player_is_said_only_where_that_player_gains_something() -> None:
    def rows(whole: float) -> dict[str, Values]:
        played: Values = {"player": "trained: x", "games": {"Snake-PoisonApple-v1": {"rewards": [-1.0, -3.0]}}}
        best: Values = {"player": "planner", "games": {"Snake-PoisonApple-v1": {"rewards": [whole, whole]}}}
        return {"trained-seed0": played, "planner": best}

    assert tables(rows(0.0)).splitlines()[4].endswith("| -2.000 (no interval) | – | – | – | – | – | – |")
    assert tables(rows(4.0)).splitlines()[4].endswith("| -2.000 (no interval) | – | – | – | – | – | -50% |")


def test_a_run_on_a_game_that_it_was_not_trained_on_has_a_line_of_its_own() -> None:
    games = {game: {"rewards": [reward, reward]} for game, reward in (("Snake-Standard-v1", 4.0), ("Snake-PoisonApple-v1", -4.0))}
    rows: dict[str, Values] = {f"seed{seed}": {"player": "trained: x", "games": games} for seed in range(3)}
    rows["planner"] = {"player": "planner", "games": {game: {"rewards": [5.0, 5.0]} for game in list(games)[1:]}}
    assert "| trained: x, not on this game | 3 |" in tables(rows)
    assert headline(rows).splitlines()[-1].startswith("- **Snake-PoisonApple**, of *planner*: trained: x, not on this game -80%")


def test_of_runs_of_a_kind_the_headline_has_the_best_and_the_one_that_trl_is_compared_with() -> None:
    def row(player: str, reward: float) -> Values:
        return {"player": player, "games": {"Snake-Solo-v1": {"rewards": [reward, reward]}}}

    runs = (("x", 2.0), ("y", 3.0), ("snake alone", 2.6))
    rows = {f"{name}{seed}": row(f"trained: {name}", reward) for name, reward in runs for seed in range(3)}
    rows |= {"planner": row("planner", 4.0), "random": row("random", 1.0)}
    told = "trained: y 75% (worst of 3 seeds 75%); trained: snake alone 65% (worst of 3 seeds 65%); random 25%"
    assert headline(rows).splitlines()[-1] == f"- **Snake-Solo**, of *planner*: {told}."


def test_where_the_best_player_gains_nothing_the_headline_tells_rewards() -> None:
    game = "Snake-PoisonApple-v1"
    rows: dict[str, Values] = {
        f"trained-seed{seed}": {"player": "trained: x", "games": {game: {"rewards": [-seed, -3.0]}}, "training_episodes": 5120}
        for seed in (0, 1, 2)
    }
    rows |= {
        name: {"player": name, "games": {game: {"rewards": [reward] * 2}}} for name, reward in (("planner", 0.0), ("base", -4.0))
    }
    told = "trained: x -2.00 (worst of 3 seeds -2.50, from 5,120 episodes); base -4.00"
    assert headline(rows).splitlines()[-1] == f"- **Snake-PoisonApple**, rewards; *planner* 0.00: {told}."
