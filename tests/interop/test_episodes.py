"""Episodes for the loops of other frameworks: the same as `play_groups` plays, by default on training boards."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.games.environment import TextGameEnv
from msgrpo_hub.games.seeds import split_of
from msgrpo_hub.interop.episodes import start_play
from msgrpo_hub.interop.trl import rollout_dataset, start_of, trl_environment
from msgrpo_hub.rollout import play_groups
from tests.interop.replies import Mixed

LAKE, INTEROP, importorskip = make_game("FrozenLake-Slippery-v1"), "msgrpo_hub.interop", pytest.importorskip


@pytest.mark.parametrize("game_id", [LAKE.id, "Snake-Standard-v1", "Taxi-Gymnasium-v1", "Snake-Solo-v1:reflected"])
def test_the_same_seeds_members_and_replies_give_the_episodes_of_play_groups(game_id: str) -> None:
    game = make_game(game_id)
    seeds = [episode_seed(game_id, "train", index) for index in range(2)]
    for group in play_groups(game, Mixed(), seeds, 4):
        for episode in group.episodes:
            play = start_play(game, THINK_ACTION, episode.seed, episode.member)
            for step in episode.steps:
                assert play.live
                play.advance(game.observe(play.state), step.completion)
            assert play.episode() == episode


DEFAULTS = dict.fromkeys(["gymnasium", "test_openenv_served", "TRL tool", "TRL rows", "test_verifiers_taskset"], "train")
DEFAULTS["test_inspect_task"] = "test"  # it evaluates, and nothing trains with it
"""Socket → the split of its boards by default; the name of a test module selects its environment in `make test-interop`."""


def starts_of(socket: str, split: dict[str, str]) -> list[Any]:
    """The states that 30 seeds, tasks or samples start from."""
    suite = {"suite": "quick"} if split else {}  # validation boards
    if socket == "gymnasium":
        env = TextGameEnv(LAKE.id, **split)  # type: ignore[arg-type]
        return [(env.reset(seed=seed), env.state)[1] for seed in range(30)]
    if socket in ("test_openenv_served", "TRL tool"):
        openenv = socket != "TRL tool" and importorskip(f"{INTEROP}.openenv_server")
        server = openenv.GameEnvironment(LAKE.id) if openenv else trl_environment(LAKE)()
        return [(server.reset(seed, **split), server._play.state)[1] for seed in range(30)]
    if socket == "TRL rows":
        by_hand = [f"{LAKE.id}#{seed}" for seed in range(30)]
        seeds = [start_of(prompt)[1] for prompt in (rollout_dataset(LAKE.id, 30, **split)["prompt"] if split else by_hand)]
    elif socket == "test_verifiers_taskset":
        module = importorskip(f"{INTEROP}.verifiers_taskset")
        tasks = module.GameTaskset(module.GameTasksetConfig(game=LAKE.id, **suite)).load()
        seeds = [task.data.seed for task in islice(tasks, 30)]
    else:
        task = importorskip(f"{INTEROP}.inspect_task").text_game(LAKE.id, **suite)
        seeds = [int(sample.metadata["seed"]) for sample in task.dataset[:30]]
    return [LAKE.initial_state(stream(seed, "initial_state")) for seed in seeds]


@pytest.mark.parametrize("socket", DEFAULTS)
def test_every_socket_that_trains_starts_on_training_boards_unless_a_split_is_named(socket: str) -> None:
    for split, expected in (({}, DEFAULTS[socket]), ({"split": "validation"}, "validation")):
        assert {split_of(LAKE, state) for state in starts_of(socket, split)} == {expected}


def test_a_seed_of_another_split_is_the_number_of_an_episode() -> None:
    seeds = range(30)
    trained = [split_of(LAKE, LAKE.initial_state(stream(seed, "initial_state"))) == "train" for seed in seeds]
    expected = [seed if own else episode_seed(LAKE.id, "train", seed) for seed, own in zip(seeds, trained, strict=True)]
    assert [start_play(LAKE, THINK_ACTION, seed=seed).seed for seed in seeds] == expected
    assert {split_of(LAKE, start_play(LAKE, THINK_ACTION).state) for _ in seeds} == {"train"}
