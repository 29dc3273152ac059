"""Presets, and the boards of a run: the starts of its updates, the same validation episodes, never a board of a suite."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.games import GAMES, board_of, episode_seed, make_game, stream
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.presets import ORIGINS, PAPER_PRESETS, PRESETS, SCENARIOS, preset_settings
from msgrpo_hub.training.trainer import Start, StartStates
from tests.games.test_splits import OneLake
from tests.training.runs import trainer_of

pytestmark = pytest.mark.lowest

LAKE, SNAKE, SHORT = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1", "Snake-Short-v1"
SUITES = Path(__file__).parents[2] / "benchmark" / "suites"


@pytest.mark.parametrize("weights", [{LAKE: 1}, {LAKE: 1, SNAKE: 1}, {LAKE: 3, SNAKE: 1}, {LAKE: 5, SNAKE: 2, SHORT: 1}])
def test_groups_are_dealt_by_weight_and_as_evenly_as_whole_numbers_allow(weights: dict[str, int]) -> None:
    order = StartStates(",".join(f"{name}={weight}" for name, weight in weights.items())).order
    total = sum(weights.values())
    assert Counter(order) == weights
    for length in range(total + 1):
        assert all(abs(order[:length].count(name) - length * weight / total) < 1.01 for name, weight in weights.items())


def test_a_game_has_the_same_starts_alone_and_beside_another() -> None:
    alone, both = StartStates(LAKE, groups=4).of_update(1), StartStates(f"{LAKE},{SNAKE}", groups=4).of_update(1)
    assert [game for game, _ in alone] == [LAKE] * 4
    assert [game for game, _ in both] == [LAKE, SNAKE, LAKE, SNAKE]
    assert both[::2] == alone[::2]


def test_validation_plays_the_same_episodes_each_time(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, game=SNAKE, eval_temperature=0.7))
    first = trainer.evaluate()
    trainer.act(trainer.starts.of_update(1))
    assert trainer.evaluate() == first
    keys = [(episode_seed(SNAKE, "validation", index), 0) for index in range(config.eval_episodes)]
    episodes = play_episodes(trainer.starts.games[SNAKE], replace(trainer.agent, temperature=0.7), keys)
    assert first["validation_reward"] == np.mean([episode.reward for episode in episodes]) != 0


@pytest.mark.parametrize("name", PAPER_PRESETS)
def test_every_field_of_a_preset_of_the_paper_has_a_label(name: str) -> None:
    settings = preset_settings(name)
    assert set(settings) == {field.name for field in fields(TrainConfig)}
    assert {setting.origin for setting in settings.values()} == set(ORIGINS)
    assert asdict(preset(name)) == {field: setting.value for field, setting in settings.items()}
    assert set(SCENARIOS) == set(load_suite("paper").tasks)


def boards(starts: Iterable[Start]) -> set[str]:
    """Canonical boards of initial states."""
    return {board_of(make_game(game), make_game(game).initial_state(stream(seed, "initial_state"))) for game, seed in starts}


@pytest.fixture(scope="module")
def suite_boards() -> dict[str, set[str]]:
    """Suite → the boards of its episodes; of Snake only the first 100, because none of its boards comes up twice."""
    found: dict[str, set[str]] = {}
    for path in SUITES.glob("*.toml"):  # not by `load_suite`, which plays episodes to check the hashes
        suite = tomllib.loads(path.read_text())
        for task in dict.fromkeys(task.partition(":")[0] for task in suite["tasks"]):  # a variant has its game's episodes
            count = min(suite["episodes"], 100) if task.startswith("Snake") else suite["episodes"]
            starts = [(task, episode_seed(task, suite["split"], index)) for index in range(count)]
            found[path.stem] = found.get(path.stem, set()) | boards(starts)
    assert len(found) == 5
    assert min(map(len, found.values())) > 50
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_trains_on_a_board_of_any_suite(name: str, suite_boards: dict[str, set[str]]) -> None:
    """The trap: 264 of the 1,000 boards of `precise` were training starts of the quickstart."""
    config = preset(name)
    for seed in (0, 1):
        starts = StartStates(config.game, seed, config.groups)
        trained = boards(start for index in range(1, config.updates + 1) for start in starts.of_update(index))
        assert len(trained) > (80 if name == "quickstart-slippery" else 100)  # the first has fewer starts
        for suite, found in suite_boards.items():
            assert not trained & found, suite


@pytest.mark.parametrize("game", GAMES)
def test_no_id_trains_on_a_board_of_any_suite(game: str, suite_boards: dict[str, set[str]]) -> None:
    """The trap: training on NotSlippery20 showed 63 of the 200 test boards of NotSlippery."""
    starts = StartStates(game, groups=10)
    trained = boards(start for index in range(1, 11) for start in starts.of_update(index))
    assert not any(trained & found for found in suite_boards.values())
    assert not trained & boards((game, episode_seed(game, split, k)) for split in ("validation", "test") for k in range(50))


def test_a_game_with_a_single_board_is_trained_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GAMES, "OneLake-v0", OneLake("OneLake-v0"))
    starts = StartStates("OneLake-v0", groups=3).of_update(1)
    assert len(set(starts)) == 3
    assert len(boards(starts)) == 1
