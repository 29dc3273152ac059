"""What a run plays: the starts of its updates and the same validation episodes each time; never a board it is tested on."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.games import GAMES, board_of, episode_seed, make_game, stream
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.presets import PRESETS
from msgrpo_hub.training.starts import Start
from tests.training.trainers import starts_of, trainer_of

pytestmark = pytest.mark.lowest
LAKE = "FrozenLake-NotSlippery-v1"
SUITES = Path(__file__).parents[2] / "benchmark" / "suites"


@pytest.fixture
def config(tiny_model: Path) -> TrainConfig:
    small: dict[str, int] = {"groups": 2, "group_size": 8, "selected_per_group": 4, "max_new_tokens": 4}
    return TrainConfig(model=str(tiny_model), updates=4, lora_rank=4, eval_episodes=10, test_episodes=10, **small)


def test_validation_plays_the_same_episodes_each_time(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, game="Snake-Solo-v1", eval_temperature=0.7))
    first = trainer.evaluate()
    trainer.act(trainer.starts.of_update(1))
    assert trainer.evaluate() == first
    agent = replace(trainer.agent, temperature=0.7)
    seeds = trainer.starts.validation("Snake-Solo-v1")
    episodes = play_episodes(trainer.starts.games["Snake-Solo-v1"], agent, [(seed, 0) for seed in seeds])
    assert first["validation_reward"] == np.mean([episode.reward for episode in episodes]) != 0
    assert starts_of(replace(config, seed=1)).validation(config.game) == starts_of(config).validation(config.game)


def boards(seeds: Iterable[Start]) -> set[str]:
    """Canonical boards of initial states."""
    return {board_of(make_game(game), make_game(game).initial_state(stream(seed, "initial_state"))) for game, seed in seeds}


@pytest.fixture(scope="module")
def suite_boards() -> dict[str, set[str]]:
    """Suite → the boards of its episodes; of Snake those of the first 100, since each of its boards comes up only once."""
    found: dict[str, set[str]] = {}
    for path in SUITES.glob("*.toml"):  # not by `load_suite`, which plays episodes to check the hashes
        suite = tomllib.loads(path.read_text())
        for task in dict.fromkeys(task.partition(":")[0] for task in suite["tasks"]):  # a variant has its game's episodes
            count = min(suite["episodes"], 100) if task.startswith("Snake") else suite["episodes"]
            starts = [(task, episode_seed(task, suite["split"], index)) for index in range(count)]
            found[path.stem] = found.get(path.stem, set()) | boards(starts)
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_trains_on_a_board_of_any_suite(name: str, suite_boards: dict[str, set[str]]) -> None:
    """The trap: 264 of the 1,000 boards of `precise` were training starts of the quickstart."""
    for seed in (0, 1):
        starts = starts_of(replace(preset(name), seed=seed))
        trained = boards(start for index in range(1, preset(name).updates + 1) for start in starts.of_update(index))
        assert len(trained) > (80 if name == "quickstart-slippery" else 100)  # the first has fewer starts
        assert len(suite_boards) == 5
        for suite, found in suite_boards.items():
            assert len(found) > 50
            assert not trained & found, suite


@pytest.mark.parametrize("game", GAMES)
def test_no_id_trains_on_a_board_of_any_suite(game: str, suite_boards: dict[str, set[str]]) -> None:
    """The trap: training on NotSlippery20 showed 63 of the 200 test boards of NotSlippery."""
    starts = starts_of(TrainConfig(game=game, updates=10, groups=10))
    trained = boards(start for index in range(1, 11) for start in starts.of_update(index))
    assert not any(trained & found for found in suite_boards.values())
    assert not trained & boards((game, seed) for seed in [*starts.validation(game), *starts.test(game)[:50]])


def test_a_game_with_a_single_board_is_trained_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class OneLake(FrozenLake):
        def initial_state(self, rng: np.random.Generator) -> LakeState:  # noqa: ARG002
            return LakeState(self.size, ((1, 1),))

    monkeypatch.setitem(GAMES, "OneLake-v0", OneLake("OneLake-v0"))
    starts = starts_of(TrainConfig(game="OneLake-v0", groups=3))
    assert len(set(starts.of_update(1))) == 3
    assert len(boards(starts.of_update(1))) == 1
