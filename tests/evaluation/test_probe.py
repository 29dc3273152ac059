"""The time of an evaluation, told from its first turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import estimate
from msgrpo_hub.games import make_game
from msgrpo_hub.players.registry import SCRIPTED

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
KEYS = [(seed, 0) for seed in range(100)]


@dataclass
class Model:
    """Plays as a scripted player, or says nothing, and takes a second per reply."""

    player: str = ""
    now: float = 0.0
    turns: list[int] = field(default_factory=list)
    """Replies of each turn."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.now += len(prompts)
        self.turns.append(len(prompts))
        if self.player:
            return ScriptedPolicy(SCRIPTED[self.player]).complete(prompts, rngs)
        return [Completion(text="", usage=(100, 7)) for _ in prompts]


def probed(model: Model, monkeypatch: pytest.MonkeyPatch, game: str = LAKE, deadline: float = 0.0) -> tuple[float, float | None]:
    monkeypatch.setattr(estimate, "time", SimpleNamespace(monotonic=lambda: model.now))
    return estimate.probe(model, make_game(game), KEYS, 50, THINK_ACTION, deadline)


def test_a_slow_model_plays_two_turns_of_a_whole_batch_and_its_other_turns_count_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model()
    seconds, tokens = probed(model, monkeypatch)
    assert model.turns == [50, 50]
    assert seconds == pytest.approx(100 * make_game(LAKE).horizon)  # nobody moves, so every episode has all its turns
    assert tokens == 7


def test_a_fast_model_plays_its_first_batch_and_the_others_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model("random")
    seconds, tokens = probed(model, monkeypatch, deadline=1e9)
    assert seconds == 2 * sum(model.turns)
    assert tokens is None


@pytest.mark.parametrize("game", [LAKE, SNAKE])
@pytest.mark.parametrize("player", ["random", "random-safe", "greedy"])
def test_two_turns_tell_the_time_of_all_within_a_factor_of_one_and_a_half(
    player: str, game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, _ = probed(Model(player), monkeypatch, game)
    true, _ = probed(Model(player), monkeypatch, game, deadline=1e9)
    assert true / 1.5 < told < true * 1.5


def test_nothing_is_played_where_nothing_is_missing() -> None:
    assert estimate.probe(Model(), make_game(LAKE), [], 50, THINK_ACTION, 0.0) == (0.0, None)
