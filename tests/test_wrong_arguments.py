"""The Python API refuses wrong types, sizes of 0 and −1 and unknown names with `ValueError`, most often a `UserError`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.hub import load_rollouts, push_adapter, push_rollouts, read_leaderboard, supervised
from msgrpo_hub.msgrpo import group_advantages, select_episodes
from msgrpo_hub.players import PlayerSettings, make_player
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training import TrainConfig, train

LAKE = "FrozenLake-NotSlippery-v1"
SMALL = Suite(name="small", tasks=(LAKE,), episodes=1)
HUGE = 10**5000


def play(group_size: Any, seeds: Any = (1,)) -> object:
    return play_groups(make_game(LAKE), ScriptedPolicy(choose_random), seeds, group_size)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a game that is a number": (lambda: make_game(3), "game_id = 3: expected str"),  # type: ignore[arg-type]
    "a game that is nothing": (lambda: make_game(None), "game_id = None: expected str"),  # type: ignore[arg-type]
    "an unknown split": (lambda: episode_seed(LAKE, "tset", 0), "unknown split 'tset': did you mean 'test'"),  # type: ignore[arg-type]
    "a split that is a list": (lambda: episode_seed(LAKE, [], 0), r"unknown split '\[\]'"),  # type: ignore[arg-type]
    "an episode below 0": (lambda: episode_seed(LAKE, "test", -1), "index = -1: expected at least 0"),
    "half an episode": (lambda: episode_seed(LAKE, "test", 0.5), "index = 0.5: expected int"),  # type: ignore[arg-type]
    "a run below 0": (lambda: episode_seed(LAKE, "test", 0, -1), "run = -1: expected at least 0"),
    "a player that is a number": (lambda: make_player(3), "name = 3: expected str"),  # type: ignore[arg-type]
    "settings that are a dictionary": (lambda: make_player("pocket", {}), "settings = {}: expected PlayerSettings or None"),  # type: ignore[arg-type]
    "a temperature as text": (lambda: PlayerSettings(temperature="hot"), "temperature = 'hot': expected float"),  # type: ignore[arg-type]
    "a truth as length": (lambda: PlayerSettings(max_new_tokens=True), "max_new_tokens = True: expected int"),
    "no reply": (lambda: PlayerSettings(max_new_tokens=0), "max_new_tokens = 0: expected at least 1"),
    "a group of none": (lambda: play(0), "group_size = 0: expected at least 1"),
    "a group of less": (lambda: play(-1), "group_size = -1: expected at least 1"),
    "seeds that are one": (lambda: play(1, 7), "seeds = 7: expected Sequence"),
    "a seed as text": (lambda: play(1, ["7"]), "seeds = .*expected Sequence of int"),
    "no players": (lambda: evaluate([], SMALL), "no players: expected the name of at least one"),
    "players that are numbers": (lambda: evaluate([1], SMALL), "players = "),  # type: ignore[list-item]
    "a suite that is nothing": (lambda: evaluate("random", None), "suite = None: expected str or Suite"),  # type: ignore[arg-type]
    "a batch of none": (lambda: evaluate("random", SMALL, batch_size=0), "batch_size = 0: expected at least 1"),
    "a batch of less": (lambda: evaluate("random", SMALL, batch_size=-1), "batch_size = -1: expected at least 1"),
    "no repeats": (lambda: evaluate("random", SMALL, repeats=0), "repeats = 0: expected at least 1"),
    "a suite of no episodes": (lambda: Suite(name="x", tasks=(LAKE,), episodes=0), "episodes = 0: expected at least 1"),
    "a suite of less": (lambda: Suite(name="x", tasks=(LAKE,), episodes=-1), "episodes = -1: expected at least 1"),
    "a suite of no tasks": (lambda: Suite(name="x", tasks=(), episodes=1), "a suite of no tasks"),
    "results that are a number": (lambda: compare(3, 4), "first = 3: expected"),  # type: ignore[arg-type]
    "an update as text": (lambda: TrainConfig(updates="3"), "updates = '3': expected int"),  # type: ignore[arg-type]
    "no updates": (lambda: TrainConfig(updates=0), "updates = 0: expected at least 1"),
    "a model that is nothing": (lambda: TrainConfig(model=None), "model = None: expected str"),  # type: ignore[arg-type]
    "a seed of 2^64": (lambda: TrainConfig(seed=2**64), "seed = 18446744073709551616: expected at most"),
    "a seed of 5000 digits": (lambda: TrainConfig(seed=HUGE), "seed = a number of thousands of digits"),
    "a rank beyond all adapters": (lambda: TrainConfig(lora_rank=10**8), "lora_rank = 100000000: expected at most 1024"),
    "a rate that grows": (lambda: TrainConfig(learning_rate_end=1e9), "learning_rate_end = 1000000000.0: expected at most 1"),
    "weights of 16 bits": (lambda: TrainConfig(dtype="float16"), "unknown dtype 'float16'"),  # type: ignore[arg-type]
    "switches as a list": (lambda: TrainConfig(chat_template_kwargs=[]), "expected dict"),  # type: ignore[arg-type]
    "a configuration that is a dictionary": (lambda: train({}, "out"), "config = {}: expected TrainConfig"),  # type: ignore[arg-type]
    "an output folder that is a number": (lambda: train(TrainConfig(), 3), "output_dir = 3: expected str or Path"),  # type: ignore[arg-type]
    "an unknown split of rollouts": (lambda: load_rollouts("runs", split="tset"), "unknown|expected one of"),  # type: ignore[arg-type]
    "rollouts that are nothing": (lambda: load_rollouts(None), "repo_or_path = None"),  # type: ignore[arg-type]
    "episodes that are a number": (lambda: supervised(3), "episodes = 3: expected Iterable"),  # type: ignore[arg-type]
    "a repository that is a number": (lambda: push_adapter("run", 3), "repo_id = 3: expected str"),  # type: ignore[arg-type]
    "a folder that is nothing": (lambda: push_rollouts(None, "a/b"), "expected str or Path"),  # type: ignore[arg-type]
    "a leaderboard that is a number": (lambda: read_leaderboard(3), "source = 3: expected str or Path"),  # type: ignore[arg-type]
    "returns as a list": (lambda: group_advantages([1.0, 0.0]), "expected Tensor"),  # type: ignore[arg-type]
    "no selected episodes": (
        lambda: select_episodes([], [], [], 0, lambda *_: torch.tensor([]), torch.Generator()),
        "count = 0: expected at least 1",
    ),
}
"""A call with a wrong argument, and what the error must say."""


@pytest.mark.parametrize(("call", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_a_value_error_that_says_what_was_expected(
    call: Callable[[], object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
