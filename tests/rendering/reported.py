"""Results for the tests of a report: two models with faulty and hostile replies, two scripted players, three games."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from examples import own_game
from msgrpo_hub.agent.policy import Prompt, ScriptedPolicy
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.games import GAMES
from msgrpo_hub.players.registry import Player, identify
from msgrpo_hub.players.scripted import choose_greedy, choose_random
from msgrpo_hub.players.settings import PlayerSettings

HOSTILE = "</script><script>pwned = 1</script><img src=x onerror='pwned = 1'><!-- {{ 7 * 7 }} \u2028 ]]> &lt;"
BASE, ADAPTER = "org/base", "me/<img src=x onerror=pwned=1>"
LAKE, MIRRORED, CORRIDOR = "FrozenLake-Slippery-v1", "Snake-PoisonApple-v1:reflected", "Corridor-v1"


@dataclass(frozen=True)
class Model:
    """Plays greedily with some probability, else at random. Some replies are truncated, and some are an attack."""

    skill: float

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        return [self._reply(prompt, rng) for prompt, rng in zip(prompts, rngs, strict=True)]

    def _reply(self, prompt: Prompt, rng: np.random.Generator) -> Completion:
        luck, greedy = rng.random(2)
        if luck < 0.1:
            return Completion(text=HOSTILE)
        if luck < 0.2:
            return Completion(text="<think>On the one hand,", finish="length")
        able = greedy < self.skill and prompt.game.id != CORRIDOR
        (reply,) = ScriptedPolicy(choose_greedy if able else choose_random).complete([prompt], [rng])
        return Completion(text=f"<think>Why not?</think>{reply.text}", usage=(100, 10))


@dataclass(frozen=True)
class FailingServer:
    """A random player whose server fails one in `every` prompts of the first turn."""

    every: int

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = ScriptedPolicy(choose_random).complete(prompts, rngs)
        down = [len(prompts) == 30 and index % self.every == 0 for index in range(30)]
        return [replace(reply, error="503") if is_down else reply for reply, is_down in zip(replies, down, strict=False)]


def failed_run(folder: Path, every: int) -> Result:
    """A run of 30 episodes on the lake; the server never answered some of them."""
    player = Player(name="down", policy=FailingServer(every), identity={"kind": "endpoint"}, folder="down/1")
    return run_task(player, Suite(name="mine", tasks=(LAKE,), episodes=30), LAKE, folder)


class Corridor(own_game.Corridor):
    """A game of another package: no symbol has a picture, and the door is not explained."""

    symbols = MappingProxyType({".": "floor", "@": "you"})


def model(name: str, skill: float, **identity: Any) -> Player:
    told = {"kind": "language model", "base": BASE, "base_commit": "b" * 40, "temperature": 0.5, **identity}
    return Player(name=name, policy=Model(skill), identity=told, folder=f"{'adapter' if 'adapter' in identity else 'base'}/1")


@pytest.fixture(scope="module")
def corridor() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GAMES, CORRIDOR, Corridor())  # type: ignore[arg-type]
        yield CORRIDOR


@pytest.fixture(scope="module")
def report_folder(tmp_path_factory: pytest.TempPathFactory, corridor: str) -> Path:
    """A folder of results, as `msgrpo eval` writes it."""
    path = tmp_path_factory.mktemp("results")
    suite = Suite(name="mine", tasks=(LAKE, MIRRORED, corridor), episodes=30)
    players = [model(BASE, 0.1), model(ADAPTER, 0.8, adapter=ADAPTER, adapter_commit="a" * 40)]
    for player in [*players, identify("random", PlayerSettings())]:
        for task in suite.tasks:
            run_task(player, suite, task, path)
    run_task(identify("optimal", PlayerSettings()), suite, LAKE, path)
    return path


@pytest.fixture(scope="module")
def report_results(report_folder: Path) -> list[Result]:
    return find_results(report_folder)


def of(results: list[Result], player: str, task: str = LAKE) -> Result:
    """One result among several."""
    return next(result for result in results if result.player == player and result.task == task)
