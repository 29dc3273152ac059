"""Whatever is changed in a game under the same name, the hash of its task changes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent import prompt_formats
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.evaluation.suites import hash_of, task_hash
from msgrpo_hub.games import GAMES, Game, Transition, board_of, episode_seed, make_game, stream
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.seeds import Splits
from msgrpo_hub.games.snake import Item, Snake, SnakeState
from tests.evaluation.frozen_suites import LAKE, SNAKE

# ---- one name, eight games: whatever is changed, the hash changes


def built(kind: type, game: Any) -> Game:
    """A game of another class with the parameters of a game."""
    return kind(**{field.name: getattr(game, field.name) for field in fields(game)})  # type: ignore[no-any-return]


class GoalGivesTwo(FrozenLake):
    """Random play hardly ever sees it: on firm ice it wins 7 times in 1,000."""

    def step(self, state: LakeState, action: str | None, rng: np.random.Generator) -> Transition[LakeState]:
        after = super().step(state, action, rng)
        return replace(after, reward=2 * after.reward)


class HolesCost(FrozenLake):
    def step(self, state: LakeState, action: str | None, rng: np.random.Generator) -> Transition[LakeState]:
        after = super().step(state, action, rng)
        return replace(after, reward=-1.0) if after.state.player in after.state.holes else after


class SilenceSlips(FrozenLake):
    """An unreadable reply is played as Left, but not on the first turn."""

    def step(self, state: LakeState, action: str | None, rng: np.random.Generator) -> Transition[LakeState]:
        return super().step(state, action or ("Left" if state.turn else None), rng)


class WallsAreLegal(FrozenLake):
    def legal_actions(self, state: LakeState) -> tuple[str, ...]:  # noqa: ARG002
        return self.actions


class HolesAreSafe(FrozenLake):
    def safe_actions(self, state: LakeState) -> tuple[str, ...]:
        return self.legal_actions(state)


class SurvivalIsSuccess(FrozenLake):
    def succeeded(self, state: LakeState) -> bool:
        return state.player not in state.holes


class OtherMaps(FrozenLake):
    def initial_state(self, rng: np.random.Generator) -> LakeState:
        rng.random()
        return super().initial_state(rng)


class OneWord(FrozenLake):
    instructions = "You walk on a frozen lake. Reach the goal and do not fall in a hole."


class OtherGlyph(FrozenLake):
    def grid(self, state: LakeState) -> list[str]:
        return [row.replace("O", "0") for row in super().grid(state)]


class OtherOrder(FrozenLake):
    actions = ("Down", "Left", "Right", "Up")


class Rounder(FrozenLake):
    reward_range = (-1.0, 1.0)


@pytest.mark.parametrize(
    "kind",
    [
        GoalGivesTwo,
        HolesCost,
        SilenceSlips,
        WallsAreLegal,
        HolesAreSafe,
        SurvivalIsSuccess,
        OtherMaps,
        OneWord,
        OtherGlyph,
        OtherOrder,
        Rounder,
    ],
)
@pytest.mark.parametrize("game_id", [LAKE, "FrozenLake-Exactly8-v1"])
def test_a_lake_that_plays_otherwise_under_the_same_name_has_another_hash(game_id: str, kind: type) -> None:
    assert task_hash(built(kind, make_game(game_id))) != hash_of(game_id)


@pytest.mark.parametrize(("game_id", "kind"), [(LAKE, FrozenLake), ("Snake-Standard-v1", Snake)])
def test_a_game_that_is_built_anew_has_the_same_hash(game_id: str, kind: type) -> None:
    """The control of the tests around: what differs there is the rule, not the object."""
    assert task_hash(built(kind, make_game(game_id))) == hash_of(game_id)


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "X-v1"},
        {"size": 5},
        {"frozen_probability": 0.79},
        {"slippery": True},
        {"horizon": 9},
        {"exactly": True},
        {"view": "grid"},
    ],
    ids=str,
)
def test_every_parameter_of_a_lake_is_in_its_hash(changed: dict[str, Any]) -> None:
    assert task_hash(replace(make_game(LAKE), **changed)) != hash_of(LAKE)  # type: ignore[type-var]


class ApplesDoNotGrow(Snake):
    def _eat(self, state: SnakeState, cell: tuple[int, int]) -> tuple[SnakeState, Item | None]:
        after, eaten = super()._eat(state, cell)
        return after, eaten and replace(eaten, grows=False)


class MeetingHeadsAreFree(Snake):
    def step(self, state: SnakeState, action: str | None, rng: np.random.Generator) -> Transition[SnakeState]:
        after = super().step(state, action, rng)
        both = not after.state.alive and not after.state.opponent_alive
        return replace(after, reward=0.0) if both else after


class TheOpponentSDeathPays(Snake):
    def step(self, state: SnakeState, action: str | None, rng: np.random.Generator) -> Transition[SnakeState]:
        after = super().step(state, action, rng)
        return replace(after, reward=after.reward + 1.0) if not after.state.opponent_alive and after.state.alive else after


class SilenceKills(Snake):
    def step(self, state: SnakeState, action: str | None, rng: np.random.Generator) -> Transition[SnakeState]:
        after = super().step(state, action, rng)
        return replace(after, terminated=True, truncated=False) if action is None else after


@pytest.mark.parametrize("kind", [ApplesDoNotGrow, MeetingHeadsAreFree, TheOpponentSDeathPays, SilenceKills])
@pytest.mark.parametrize("game_id", [SNAKE, "Snake-PoisonApple-v1"])
def test_a_snake_that_plays_otherwise_under_the_same_name_has_another_hash(game_id: str, kind: type) -> None:
    assert task_hash(built(kind, make_game(game_id))) != hash_of(game_id)


APPLE = Item("apple", "A", 5, 1.0)


@pytest.mark.parametrize(
    "changed",
    [
        {"size": 9},
        {"horizon": 19},
        {"death_reward": -1.0},
        {"has_opponent": False},
        {"down_hill": True},
        {"items": (replace(APPLE, reward=1.5),)},
        {"items": (replace(APPLE, count=4),)},
        {"items": (replace(APPLE, name="pear"),)},
        {"items": (replace(APPLE, symbol="a"),)},
        {"items": (replace(APPLE, grows=False),)},
    ],
    ids=str,
)
def test_every_parameter_of_a_snake_is_in_its_hash(changed: dict[str, Any]) -> None:
    assert task_hash(replace(make_game(SNAKE), **changed)) != hash_of(SNAKE)  # type: ignore[type-var]


def test_each_word_of_the_rules_is_in_the_hash() -> None:
    game = make_game(LAKE)
    for number in range(len(game.rules)):

        class Reworded(FrozenLake):
            rules = (*game.rules[:number], game.rules[number].upper(), *game.rules[number + 1 :])

        assert task_hash(built(Reworded, game)) != hash_of(LAKE), game.rules[number]


def test_prompts_and_parsers_are_no_part_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a run's: see `test_whatever_decides_a_result_is_in_the_run_hash`."""
    before = task_hash(make_game(LAKE))
    monkeypatch.setattr(prompt_formats, "system_text", lambda game: "\n".join(game.rules))
    monkeypatch.setattr(prompt_formats, "parse_action", lambda *_: None)
    assert build_prompt(make_game(LAKE), make_game(LAKE).initial_state(stream(0, "initial_state"))).system.startswith("A cell")
    assert task_hash(make_game(LAKE)) == before


def test_another_recipe_of_seeds_changes_every_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = task_hash(make_game(LAKE))
    seed = Splits.seed
    monkeypatch.setattr(Splits, "seed", lambda splits, split, index: seed(splits, split, index + 1))
    assert task_hash(make_game(LAKE)) != before


def test_another_rule_of_which_board_is_tested_changes_the_hash() -> None:
    """A common board is a training board: with another, other lakes are tested."""

    class Commoner(FrozenLake):
        common_boards = frozenset(board_of(make_game(LAKE), tested) for tested in [first_tested()])

    assert task_hash(built(Commoner, make_game(LAKE))) != hash_of(LAKE)


def first_tested() -> LakeState:
    return make_game(LAKE).initial_state(stream(episode_seed(LAKE, "test", 0), "initial_state"))  # type: ignore[no-any-return]


def test_the_hash_does_not_depend_on_what_was_hashed_before() -> None:
    games = [make_game(id) for id in (LAKE, "FrozenLake-Slippery-v1", "Snake-Solo-v1")]
    assert [task_hash(game) for game in games] == [task_hash(game) for game in reversed(games)][::-1]
    assert [hash_of(game.id) for game in games] == [task_hash(game) for game in games]


def test_every_registered_game_can_be_hashed() -> None:
    assert len({hash_of(id) for id in GAMES}) == len(GAMES)
