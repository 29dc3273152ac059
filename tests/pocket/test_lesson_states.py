"""States of lessons are random and possible, are made without a step, and are asked as a player is asked."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.stats
from transformers import PreTrainedTokenizerFast

from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.agent.prompt_formats import user_text
from msgrpo_hub.games import GAMES, Game
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.snake import Snake, SnakeState
from msgrpo_hub.pocket.build import Encoder
from msgrpo_hub.pocket.lessons import Lesson, Task, lessons, play, random_state, random_task
from msgrpo_hub.pocket.tokenizer import build_tokenizer
from tests.pocket.lessons_oracle import samples, steps_between

# ---- states come from no play


class Unplayable(FrozenLake):
    """A lake on which nobody can move."""

    def step(self, *_: Any) -> Any:
        raise AssertionError("a lesson's state was reached by play")


class UnplayableSnake(Snake):
    def step(self, *_: Any) -> Any:
        raise AssertionError("a lesson's state was reached by play")


def test_states_and_lessons_are_made_without_a_single_step() -> None:
    rng = np.random.default_rng(0)
    for game in (Unplayable("lesson"), UnplayableSnake("lesson"), UnplayableSnake("lesson", has_opponent=False)):
        for _ in range(50):
            state = random_state(game, rng)
            assert state.turn == 0
            assert lessons(Task(game, game.actions), state, rng)


def test_the_player_stands_on_every_cell_of_the_ice_equally_often() -> None:
    """No way to the goal is followed: the places are uniform given the lake, with holes on it and off the goal."""
    game, ranks = FrozenLake("lesson", size=4), []
    for seed in range(3000):
        state = random_state(game, np.random.default_rng(seed))
        ice = [(r, c) for r in range(4) for c in range(4) if (r, c) not in state.holes and (r, c) != state.goal]
        ranks.append((ice.index(state.player) + 0.5) / len(ice))
    assert scipy.stats.kstest(ranks, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("game", [game for game in GAMES.values() if isinstance(game, Snake)], ids=lambda game: game.id)
def test_random_snakes_are_possible_ones(game: Snake) -> None:
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
    """Rules that the base was never told are not among the tests of it."""
    rng = np.random.default_rng(0)
    tasks = [random_task(rng) for _ in range(800)]
    fields = {(type(task.game).__name__, task.game.rows) for task in tasks}
    assert fields == {("FrozenLake", 4), ("FrozenLake", 6), ("FrozenLake", 8), ("Snake", 6), ("Snake", 10)}
    for task in tasks:
        low, high = task.game.reward_range
        assert -5 <= low <= high <= 10
        assert 5 <= task.game.horizon <= 40


# ---- lessons and prompts are one text


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    texts = [text for task, state, _ in samples(60, seed=1) for text in (task.system, user_text(task.game.observe(state)))]
    return build_tokenizer(texts, 700)


def test_lessons_are_encoded_token_for_token_as_the_chat_template_renders_them(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = Encoder(tokenizer)
    for task, state, rng in samples(25):
        taught = lessons(task, state, rng)
        users = [user_text(task.game.observe(state), lesson.request) for lesson in taught]
        for lesson, user, prompt in zip(taught, users, encoder.prompts(task.system, users), strict=True):
            chat = [{"role": "system", "content": task.system}, {"role": "user", "content": user}]
            assert prompt == tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
            for reply, ids in zip(lesson.replies, encoder.replies(lesson), strict=True):
                whole = tokenizer.apply_chat_template([*chat, {"role": "assistant", "content": reply}])["input_ids"]
                assert prompt + ids == whole


@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
def test_the_play_lesson_asks_what_a_player_of_a_registered_game_is_asked(game: Game) -> None:
    task = Task(game, game.actions)
    for seed in range(5):
        state = random_state(game, np.random.default_rng(seed))
        prompt = build_prompt(game, state)
        assert (task.system, user_text(game.observe(state), play(task, state).request)) == (prompt.system, prompt.user)


def test_a_lesson_is_a_function_of_its_seed() -> None:
    def made(seed: int) -> list[list[Lesson]]:
        return [lessons(task, state, rng) for task, state, rng in samples(20, seed)]

    assert made(0) == made(0) != made(1)
