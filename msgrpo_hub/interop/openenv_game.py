"""A running OpenEnv environment as a game: its state is (seed, member, actions), and a client is a cache of it.

Nothing is installed or imported from an environment's repository.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.games import Game, Transition, stream
from msgrpo_hub.games.game import check_turn

_LEGAL = re.compile(r"^Legal actions: (.*)$", re.MULTILINE)
_SEEDS = 2**31
_ROUNDING = 1e-6
_MOST = 64
"""Clients of one game that are open at once; each has a thread."""
_TRIES = 50
"""Attempts at a turn while the server has no free session or closes the connection, a tenth of a second apart."""


def connect(base_url: str) -> Any:
    """OpenEnv's generic client, connected. Raises `UserError` if openenv is not installed, or no server answers."""
    try:
        openenv = import_module("openenv.core")
    except ImportError as error:
        raise UserError("this game needs the package 'openenv': pip install 'msgrpo-hub[openenv]'") from error

    class OneConnection(openenv.GenericEnvClient):  # type: ignore[misc,name-defined]
        """Never reconnects: a new connection has another environment, without an episode."""

        async def _ensure_connected(self) -> None:
            if self._ws is None:
                raise ConnectionError("the connection is closed")

    client = OneConnection(base_url=base_url).sync()
    try:
        client.connect()
    except (OSError, TimeoutError) as error:
        client.close()
        raise UserError(f"no OpenEnv server answers at {base_url}: start it there, or give the address where it runs") from error
    return client


@dataclass(frozen=True, slots=True)
class OpenEnvState:
    """The seeds and actions of an episode, and the server's last observation."""

    seed: int
    member: int | None
    """For the environment's reset, like the seed, if it separates dynamics from the start; None before the first turn."""
    sent: tuple[str, ...]
    """The actions so far. A reply without an action is not sent."""
    turn: int
    observation: str
    ended: bool = False
    success: bool = False


@dataclass(eq=False)
class OpenEnvGame(Game):
    """A game whose rules run on an OpenEnv server.

    A reply without an action passes the turn and is not sent. All episodes of a group must start alike. After a lost
    connection, a new client repeats the reset and the actions; an environment that then shows another observation raises
    `UserError`. Such a game has no exact values, and `msgrpo verify` cannot replay its episodes.
    """

    id: str
    base_url: str
    """The address of the running server, such as `http://localhost:8000`."""
    actions_sent: Mapping[str, Mapping[str, Any]]
    """The name of each action, and the fields that are sent for it."""
    horizon: int
    instructions: str
    _: KW_ONLY
    told: tuple[str, ...] = ()
    """The rules, without the number of turns."""
    reward_range: tuple[float, float]
    """The smallest and largest reward of one turn."""
    return_range: tuple[float, float]
    """The smallest and largest return of an episode."""
    text: Callable[[Mapping[str, Any]], str] | None = None
    """Renders an observation for the player. None: its fields except `metadata` and empty ones, one a line."""
    legal: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """The legal actions that an observation names. None: all are legal."""
    won: Callable[[Mapping[str, Any], float], bool] = lambda _, reward: reward > 0
    """Whether an episode that ends with this observation and this reward is a success: by default, if the reward is above 0."""
    connect: Callable[[str], Any] = connect
    """Opens a client for an address: `reset`, `step` and `close`, as OpenEnv's."""
    actions: tuple[str, ...] = field(init=False)
    rules: tuple[str, ...] = field(init=False)
    observe: Callable[[OpenEnvState], str] = field(init=False, repr=False, default=attrgetter("observation"))
    succeeded: Callable[[OpenEnvState], bool] = field(init=False, repr=False, default=attrgetter("success"))
    _open: dict[tuple[Any, ...], Any] = field(init=False, repr=False, default_factory=dict)
    """(seed, member, actions) → the client whose episode is there; the last is needed last."""
    _idle: list[Any] = field(init=False, repr=False, default_factory=list)
    _limit: int = field(init=False, repr=False, default=_MOST)
    _rollouts: int = field(init=False, repr=False, default=0)
    _lock: Any = field(init=False, repr=False, default_factory=threading.RLock)

    rows = columns = 1
    symbols = MappingProxyType({".": "see the observation"})

    def __post_init__(self) -> None:
        if not re.match(r"https?://[^/\s]", self.base_url):
            raise UserError(
                f"base_url = {shown(self.base_url)}: expected the address of a running server, such as http://localhost:8000; "
                "nothing is installed from a Space"
            )
        self.actions = tuple(self.actions_sent)
        self.rules = (*self.told, f"The game ends after {self.horizon} turns.")

    @contextmanager
    def sessions(self) -> Iterator[None]:
        """The context of a rollout. After the last of several at the same time, no client is open."""
        with self._lock:
            self._rollouts += 1
        try:
            yield
        finally:
            with self._lock:
                self._rollouts -= 1
                if not self._rollouts:
                    self._limit = _MOST
                while not self._rollouts and (self._open or self._idle):
                    (self._idle.pop() if self._idle else self._open.popitem()[1]).close()

    def initial_state(self, rng: np.random.Generator) -> OpenEnvState:
        state = OpenEnvState(seed=int(rng.integers(_SEEDS)), member=None, sent=(), turn=0, observation="")
        with self._lock:
            client, start = self._asked(state)
            self._idle.append(client)
        return replace(state, observation=self._rendered(start))

    def step(self, state: OpenEnvState, action: str | None, rng: np.random.Generator) -> Transition[OpenEnvState]:
        check_turn(self, action, state.ended or state.turn >= self.horizon)
        before = replace(state, member=int(rng.integers(_SEEDS)) if state.member is None else state.member)
        after = replace(before, turn=state.turn + 1)
        over = after.turn >= self.horizon
        if action is None:
            return Transition(after, 0.0, False, over)
        after = replace(after, sent=(*state.sent, action))
        with self._lock:
            client, result = self._asked(before, action)
            if result.done or over:
                self._idle.append(client)
            else:
                key = after.seed, after.member, after.sent
                self._idle += [self._open.pop(key)] if key in self._open else []
                self._open[key] = client
        reward, (low, high) = float(result.reward or 0.0), self.reward_range
        slack = _ROUNDING * max(abs(low), abs(high))  # a server may compute in float32
        if not low - slack <= reward <= high + slack:
            given = f"{self.id}: {self.base_url} gave the reward {reward:.9g} for {action}: expected {low:g} to {high:g}; "
            raise UserError(f"{given}set the game's reward_range (and return_range) to what the environment gives")
        reward = min(max(reward, low), high)
        won = result.done and self.won(result.observation, reward)
        after = replace(after, observation=self._rendered(result), ended=result.done, success=won)
        return Transition(after, reward, result.done, over and not result.done)

    def _asked(self, state: OpenEnvState, action: str | None = None) -> tuple[Any, Any]:
        """A client and its result after one more action, or without an action after the reset.

        The client is the one whose episode is there, or an idle one, a new one, or the one whose episode is needed last. It
        then repeats the episode. A lost client is replaced.
        """
        for _ in range(_TRIES):
            client = self._open.pop((state.seed, state.member, state.sent), None) if action else None
            try:
                if client is None:
                    if self._idle or len(self._open) >= self._limit:
                        client = self._idle.pop() if self._idle else self._open.popitem()[1]
                    else:
                        client = self.connect(self.base_url)
                    result = client.reset(seed=state.seed, **({} if state.member is None else {"member": state.member}))
                    for sent in state.sent:
                        result = result if result.done else client.step(dict(self.actions_sent[sent]))
                    if action and (result.done or self._rendered(result) != state.observation):
                        raise UserError(
                            f"{self.id}: seed {state.seed} and the actions of {state.turn} turns lead to another observation "
                            "than before: expected an environment that can be repeated (whose reset takes a seed), or a server "
                            "with a session for every episode"
                        )
                return client, client.step(dict(self.actions_sent[action])) if action else result
            except BaseException as error:
                if client is not None:
                    client.close()
                lost = isinstance(error, ConnectionError) or type(error).__name__.startswith("ConnectionClosed")
                if "CAPACITY_REACHED" in str(error) and self._open:
                    self._limit = len(self._open)
                elif lost or "CAPACITY_REACHED" in str(error):
                    time.sleep(0.1)
                elif isinstance(error, TimeoutError | RuntimeError):
                    raise UserError(f"the OpenEnv server at {self.base_url} does not answer or refuses ({error})") from error
                else:
                    raise
        raise UserError(
            f"{self.id}: {self.base_url} closes every session or has none free: see its log, end its other clients, or raise its "
            "max_concurrent_envs"
        )

    def _rendered(self, result: Any) -> str:
        fields = {k: v for k, v in result.observation.items() if k != "metadata" and v not in (None, "", [], {})}
        text = self.text(result.observation) if self.text else "\n".join(f"{name}: {value}" for name, value in fields.items())
        if self.legal is None or result.done:
            return text
        return f"{text}\nLegal actions: {', '.join(self.legal(result.observation))}"

    def grid(self, state: OpenEnvState) -> list[str]:  # noqa: ARG002
        return ["."]

    def legal_actions(self, state: OpenEnvState) -> tuple[str, ...]:
        named = _LEGAL.findall(state.observation)
        if self.legal is None or not named:
            return () if state.ended else self.actions
        return tuple(action for action in self.actions if action in named[-1].split(", "))

    safe_actions = legal_actions

    def recorded_states(self, episode: Episode) -> list[OpenEnvState]:
        """The states of a stored episode without the last. Raises `ValueError` for an end or a reward that cannot be."""
        turns, (low, high) = len(episode.steps), self.reward_range
        has_end = turns and episode.truncated != episode.terminated and (turns == self.horizon or episode.terminated)
        if not has_end or turns > self.horizon or not all(low <= step.reward <= high for step in episode.steps if step.action):
            raise ValueError(f"{self.id}, seed {episode.seed}, member {episode.member}: the record has another end or reward")
        seed = int(stream(episode.seed, "initial_state").integers(_SEEDS))
        member = int(stream(episode.seed, "dynamics", episode.member).integers(_SEEDS))
        states, sent = [], tuple[str, ...]()
        for turn, step in enumerate(episode.steps):
            states.append(OpenEnvState(seed, member if turn else None, sent, turn, step.observation))
            sent += (step.action,) if step.action else ()
        return [*states, OpenEnvState(seed, member, sent, turns, "", ended=episode.terminated, success=episode.success)]
