"""What a run plays: the starts of its updates and the same validation episodes each time; never a board it is tested on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, episode_seed
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.start_states import StartStates
from tests.training.trainers import trainer_of

pytestmark = pytest.mark.lowest


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
    assert StartStates(replace(config, seed=1)).validation(config.game) == StartStates(config).validation(config.game)


def test_training_never_starts_from_a_board_of_validation_or_test(config: TrainConfig) -> None:
    starts = StartStates(replace(config, eval_episodes=50, test_episodes=200))
    game = config.game
    held_out = {starts.observation_of(game, seed) for seed in [*starts.validation(game), *starts.test(game)]}

    def boards(starts: StartStates) -> set[str]:
        return {starts.observation_of(*start) for index in range(1, 101) for start in starts.of_update(index)}

    assert not boards(starts) & held_out
    assert boards(StartStates(replace(starts.config, exclude_test_starts=False))) & held_out


def test_no_start_left_to_train_on_is_said_with_its_remedy(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GAMES, "Pond-v0", FrozenLake("Pond-v0", size=2))
    with pytest.raises(UserError, match="lower --test-episodes, or allow them with --no-exclude-test-starts"):
        StartStates(replace(config, game="Pond-v0", test_episodes=50)).of_update(1)
    assert StartStates(replace(config, game="Pond-v0", exclude_test_starts=False)).of_update(1)


def test_splits_games_and_runs_share_no_seed() -> None:
    splits = [("train", 0), ("train", 1), ("validation", 0), ("test", 0)]
    seeds = [episode_seed(game, split, index, run) for game in GAMES for split, run in splits for index in range(1000)]  # type: ignore[arg-type]
    assert len(set(seeds)) == len(seeds)


def test_every_update_starts_from_boards_of_its_own(config: TrainConfig) -> None:
    seeds = [seed for index in range(1, 101) for _, seed in StartStates(config).of_update(index)]
    assert len(set(seeds)) == len(seeds) == 200
    assert not set(seeds) & {
        start[1] for index in range(1, 101) for start in StartStates(replace(config, seed=1)).of_update(index)
    }
