"""States of pretraining tasks are random and valid, no play leads to them, and players get the same prompts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from benchmark.pocket.build import encoded
from benchmark.pocket.tasks import PLAY_REQUEST, GameVariant, play, pretraining_tasks, random_state
from benchmark.pocket.tokenizer import build_tokenizer
from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.agent.prompt_formats import USER_TEXT
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


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    texts = [
        text
        for variant, state, _ in samples(60, seed=1)
        for text in (variant.system, USER_TEXT.format(variant.game.observe(state), PLAY_REQUEST))
    ]
    return build_tokenizer(texts, 700)


def test_tasks_are_encoded_token_for_token_as_the_chat_template_renders_them(tokenizer: PreTrainedTokenizerFast) -> None:
    for variant, state, rng in samples(25):
        tasks = pretraining_tasks(variant, state, rng)
        observation = variant.game.observe(state)
        for task, (prompt, replies) in zip(tasks, encoded(tokenizer, variant.system, observation, tasks), strict=True):
            user = USER_TEXT.format(observation, task.request)
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
        user = USER_TEXT.format(game.observe(state), play(variant, state).request)
        assert (variant.system, user) == (prompt.system, prompt.user)
