"""A game on a server: its state is seed, member and actions, and lost or few sessions change no episode."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import Suite, task_hash
from msgrpo_hub.evaluation.tables import results_table
from msgrpo_hub.games import registry, render_text, stream
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.seeds import Splits
from msgrpo_hub.interop import openenv_game
from msgrpo_hub.interop.openenv_game import OpenEnvGame
from msgrpo_hub.models.http_client import in_threads
from msgrpo_hub.rollout import play_episodes, play_groups, replayed_states
from tests.interop.replies import Mixed, Stops

LENGTH = 6
SEEDS = [1, 2, 3]
GAME: dict[str, Any] = {
    "actions_sent": {"Left": {"by": -1}, "Right": {"by": 1}},
    "horizon": 8,
    "instructions": "Walk to the right end.",
    "reward_range": (0.0, 1.0),
    "return_range": (0.0, 1.0),
}


@dataclass
class Server:
    """A walk of six cells, with the faults of real servers: the seed gives the start, and the member when a step slips."""

    capacity: int = 64
    loses_every: int = 0
    """A session is lost at every so-many-th step of the server; 0 is never."""
    seeded: bool = True
    repeatable: bool = True
    cost: float = 0.0
    """Taken from the reward of each step."""
    open: list[Walk] = field(default_factory=list)
    steps: int = 0
    resets: list[dict[str, Any]] = field(default_factory=list)
    most: int = 0

    def connect(self, url: str) -> Walk:
        assert url == "http://walk"
        self.open.append(Walk(self))
        return self.open[-1]

    def game(self, **changes: Any) -> OpenEnvGame:
        return OpenEnvGame("Walk-v1", "http://walk", connect=self.connect, **GAME | changes)


@dataclass(eq=False)
class Walk:
    server: Server
    cell: int = 0
    chance: np.random.Generator = field(default_factory=np.random.default_rng)

    def reset(self, **start: Any) -> Any:
        server = self.server
        if self not in server.open:
            raise ConnectionError
        if server.open.index(self) >= server.capacity:
            raise RuntimeError("CAPACITY_REACHED")
        server.most = max(server.most, len(server.open))
        server.resets.append(start)
        self.cell = int(np.random.default_rng(start["seed"] if server.seeded else None).integers(1, LENGTH - 1))
        self.chance = np.random.default_rng([start["seed"], start.get("member", 0)] if server.repeatable else None)
        return self._shown(0.0)

    def step(self, action: Mapping[str, Any]) -> Any:
        self.server.steps += 1
        if self.server.loses_every and self.server.steps % self.server.loses_every == 0:
            self.server.open.remove(self)
        if self not in self.server.open:
            raise ConnectionError
        slips = self.chance.random() < 0.3
        self.cell = max(self.cell + (0 if slips else action["by"]), 0)
        return self._shown(float(self.cell == LENGTH - 1))

    def close(self) -> None:
        if self in self.server.open:
            self.server.open.remove(self)

    def _shown(self, reward: float) -> Any:
        shown = {"cell": self.cell, "of": LENGTH}
        return SimpleNamespace(observation=shown, reward=float(np.float32(reward - self.server.cost)), done=bool(reward))


def episodes(game: OpenEnvGame, group_size: int = 6) -> list[Episode]:
    return [episode for group in play_groups(game, Mixed(), SEEDS, group_size) for episode in group.episodes]


def lefts(game: OpenEnvGame) -> Episode:
    [episode] = play_groups(game, ScriptedPolicy(lambda *_: "Left"), [4], 1)[0].episodes
    return episode


def test_a_group_shares_its_start_and_every_member_has_a_chance_of_its_own() -> None:
    server = Server()
    played = episodes(server.game())
    for group in (played[:6], played[6:12], played[12:]):
        assert len({(episode.seed, episode.steps[0].observation) for episode in group}) == 1
        assert len({tuple(step.observation for step in episode.steps) for episode in group}) > 1
    members = [start["member"] for start in server.resets if "member" in start]
    assert len(members) == len(set(members)) == len(played)
    assert {start["seed"] for start in server.resets} == {int(stream(seed, "initial_state").integers(2**31)) for seed in SEEDS}


@pytest.mark.parametrize("server", [Server(capacity=1), Server(loses_every=9), Server(capacity=3, loses_every=11)])
def test_few_sessions_and_lost_ones_change_no_episode(server: Server) -> None:
    assert episodes(server.game()) == episodes(Server().game())
    assert server.most <= server.capacity
    assert server.open == []


def test_a_reply_without_an_action_passes_the_turn_and_the_server_hears_nothing_of_it() -> None:
    server = Server()
    [group] = play_groups(server.game(), ScriptedPolicy(lambda *_: None), [1], 2)
    assert server.steps == 0
    for episode in group.episodes:
        assert (len(episode.steps), episode.truncated, episode.reward) == (8, True, 0.0)
        assert len({step.observation for step in episode.steps}) == 1


@pytest.mark.parametrize(
    "server",
    [Server(seeded=False), Server(repeatable=False, capacity=1), Server(repeatable=False, loses_every=20)],
    ids=["other starts in a group", "few sessions", "lost sessions"],
)
def test_an_environment_that_cannot_be_repeated_is_refused_only_when_it_must_be(server: Server) -> None:
    with pytest.raises(UserError, match="expected an environment that can be repeated"):
        episodes(server.game(), 30)
    assert server.open == []
    assert len(episodes(Server(repeatable=False).game())) == 18


def test_sessions_are_closed_however_a_rollout_ends() -> None:
    server = Server()
    with pytest.raises(KeyboardInterrupt):
        play_groups(server.game(), Stops(3, KeyboardInterrupt()), SEEDS, 4)
    assert server.most >= 8  # a reply without an action needs no session
    assert server.open == []


def test_rollouts_at_their_own_pace_keep_each_others_sessions() -> None:
    class Pauses(Mixed):
        def complete(self, prompts: Any, rngs: Any) -> list[Completion]:
            time.sleep(0.001)  # for the other threads
            return super().complete(prompts, rngs)

    keys = [(seed, member) for seed in SEEDS for member in range(6)]
    together, apart = Server(), Server()
    game = apart.game()
    played = in_threads(lambda key: play_episodes(game, Pauses(), [key])[0], keys, 6)
    assert played == play_episodes(together.game(), Mixed(), keys)
    assert apart.steps == together.steps
    assert apart.open == []


def test_a_server_without_a_free_session_is_waited_for_and_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openenv_game, "_TRIES", 3)
    server = Server(capacity=0)
    with pytest.raises(UserError, match="has none free"):
        episodes(server.game())
    assert server.open == []


@pytest.mark.parametrize("error", [TimeoutError("no answer within 60 s"), RuntimeError("EXECUTION_ERROR: no such level")])
@pytest.mark.parametrize("method", ["reset", "step"])
def test_a_late_answer_and_a_refusal_are_one_line_and_close_the_session(
    method: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    server = Server()
    monkeypatch.setattr(Walk, method, fails)
    with pytest.raises(UserError, match=f"the OpenEnv server .*does not answer or refuses .{error}"):
        episodes(server.game())
    assert server.open == []


def test_the_record_tells_the_states_where_nothing_can_be_simulated_again() -> None:
    server = Server()
    game = server.game()
    played, before = episodes(game), server.steps
    for episode in played:
        states = replayed_states(game, episode)
        assert [game.observe(state) for state in states[:-1]] == [step.observation for step in episode.steps]
        assert (states[-1].success, states[-1].ended) == (episode.success, episode.terminated)
        _, score = judged(episode, game)
        assert (score.reward, score.success, score.value_optimal, score.regret) == (episode.reward, episode.success, None, None)
    assert server.steps == before
    assert not is_solvable(game)
    assert render_text(game, states[0]) == played[-1].steps[0].observation


@pytest.mark.parametrize(
    "change",
    [
        lambda e: replace(e, terminated=False, truncated=False),
        lambda e: replace(e, steps=()),
        lambda e: replace(e, steps=e.steps * 9),
        lambda e: replace(e, steps=(*e.steps[:-1], replace(e.steps[-1], reward=7.0))),
        lambda e: replace(e, game_id="Walk-v2"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change: Callable[[Episode], Episode]) -> None:
    game = Server().game()
    with pytest.raises(ValueError, match="Walk-v"):
        replayed_states(game, change(lefts(game)))


def test_a_reward_that_rounding_took_out_of_the_range_is_its_bound_and_one_farther_out_ends_the_run() -> None:
    server = Server(cost=0.1)  # the server computes in float32
    assert {step.reward for step in lefts(server.game(reward_range=(-0.1, 1.0))).steps} == {-0.1}
    with pytest.raises(UserError, match=r"http://walk gave the reward -0\.100000001 for Left: expected -0.0999 to 1"):
        lefts(server.game(reward_range=(-0.0999, 1.0)))
    assert server.open == []


def test_a_heading_has_no_boards_and_no_references_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.OWN, "Walk-v1", Server().game())
    results = evaluate("random", Suite(name="walk", tasks=("Walk-v1",), episodes=3), tmp_path)
    assert results_table(results).startswith("Walk-v1   3 test episodes\nThe rules of the game run elsewhere: ")


def test_splits_and_the_task_hash_ask_no_server() -> None:
    server = Server()
    game = server.game()
    seeds = {Splits(game).seed(split, index) for split in ("train", "validation", "test") for index in range(20)}
    assert len(seeds) == 60
    assert task_hash(game) == task_hash(Server().game())
    assert task_hash(game) != task_hash(Server().game(horizon=9))
    assert task_hash(game) != task_hash(Server().game(told=("A step may slip.",)))
    assert server.resets == []


def test_legal_actions_stand_in_the_observation_and_are_read_from_it() -> None:
    game = Server().game(legal=lambda shown: ["Right"] if shown["cell"] == 0 else ["Left", "Right"])
    episode = lefts(game)
    assert {step.observation for step in episode.steps if not step.legal} == {"cell: 0\nof: 6\nLegal actions: Right"}
    legal = [game.legal_actions(state) for state in replayed_states(game, episode)[:-1]]
    assert ["Left" in allowed for allowed in legal] == [step.legal for step in episode.steps]


def test_an_address_is_needed_and_nothing_is_installed_from_a_space() -> None:
    with pytest.raises(UserError, match="nothing is installed from a Space"):
        OpenEnvGame("Walk-v1", "openenv/echo_env", **GAME)
