"""States of pretraining tasks are random and valid, no play leads to them, and players get the same prompts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.stats
from transformers import PreTrainedTokenizerFast

from benchmark.pocket.build import encoded
from benchmark.pocket.tasks import PLAY_REQUEST, GameVariant, play, pretraining_tasks, random_state, random_variant
from benchmark.pocket.tokenizer import build_tokenizer
from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.agent.prompt_formats import user_text
from msgrpo_hub.games import GAMES, Game
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.snake import Snake, SnakeState
from tests.pocket.tasks_oracle import samples, steps_between


@pytest.mark.parametrize("game", [FrozenLake("task"), Snake("task"), Snake("task", has_opponent=False)])
def test_states_and_tasks_are_made_without_a_step(game: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(game), "step", None)
    rng = np.random.default_rng(0)
    for _ in range(50):
        state = random_state(game, rng)
        assert state.turn == 0
        assert pretraining_tasks(GameVariant(game, game.actions), state, rng)


def test_the_player_stands_on_every_cell_of_the_ice_equally_often() -> None:
    game, ranks = FrozenLake("task", size=4), []
    for seed in range(3000):
        state = random_state(game, np.random.default_rng(seed))
        ice = [(r, c) for r in range(4) for c in range(4) if (r, c) not in state.holes and (r, c) != state.goal]
        ranks.append((ice.index(state.player) + 0.5) / len(ice))
    assert scipy.stats.kstest(ranks, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("game", [game for game in GAMES.values() if isinstance(game, Snake)], ids=lambda game: game.id)
def test_random_snakes_are_valid(game: Snake) -> None:
    lengths = set()
    for seed in range(150):
        state = random_state(game, np.random.default_rng(seed))
        assert isinstance(state, SnakeState)
        for body in (state.snake, state.opponent):
            assert all(steps_between(a, b) == 1 for a, b in pairwise(body))
        cells = [*state.snake, *state.opponent, *(c for cells in state.items for c in cells)]
        assert len(cells) == len(set(cells))
        assert all(0 <= r < game.rows and 0 <= c < game.rows for r, c in cells)
        assert [len(cells) for cells in state.items] == [item.count for item in game.items]
        assert bool(state.opponent) == game.has_opponent
        lengths.add(len(state.snake))
    assert lengths == set(range(1, 9))


def test_the_random_games_are_those_of_the_registry_with_other_numbers() -> None:
    """The base is not tested on rules outside its training."""
    rng = np.random.default_rng(0)
    variants = [random_variant(rng) for _ in range(800)]
    fields = {(type(variant.game).__name__, variant.game.rows) for variant in variants}
    assert fields == {("FrozenLake", 4), ("FrozenLake", 6), ("FrozenLake", 8), ("Snake", 6), ("Snake", 10)}
    for variant in variants:
        low, high = variant.game.reward_range
        assert -5 <= low <= high <= 10
        assert 5 <= variant.game.horizon <= 40


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    texts = [
        text
        for variant, state, _ in samples(60, seed=1)
        for text in (variant.system, user_text(variant.game.observe(state), PLAY_REQUEST))
    ]
    return build_tokenizer(texts, 700)


def test_tasks_are_encoded_token_for_token_as_the_chat_template_renders_them(tokenizer: PreTrainedTokenizerFast) -> None:
    for variant, state, rng in samples(25):
        tasks = pretraining_tasks(variant, state, rng)
        observation = variant.game.observe(state)
        for task, (prompt, replies) in zip(tasks, encoded(tokenizer, variant.system, observation, tasks), strict=True):
            user = user_text(observation, task.request)
            chat = [{"role": "system", "content": variant.system}, {"role": "user", "content": user}]
            assert prompt == tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
            for reply, ids in zip(task.replies, replies, strict=True):
                whole = tokenizer.apply_chat_template([*chat, {"role": "assistant", "content": reply}])["input_ids"]
                assert prompt + ids == whole


@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
def test_the_play_task_has_the_prompt_of_a_player_of_a_registered_game(game: Game) -> None:
    variant = GameVariant(game, game.actions)
    for seed in range(5):
        state = random_state(game, np.random.default_rng(seed))
        prompt = build_prompt(game, state)
        assert (variant.system, user_text(game.observe(state), play(variant, state).request)) == (prompt.system, prompt.user)
