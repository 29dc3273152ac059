"""A running OpenEnv environment as a game: its state is (seed, member, actions), and a client is a cache of it.

Nothing is installed or imported from an environment's repository.
"""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Literal

import numpy as np

from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.games import Transition, stream
from msgrpo_hub.games.game import check_turn

_LEGAL = re.compile(r"^Legal actions: (.*)$", re.MULTILINE)
_SEEDS = 2**31
_ROUNDING = 1e-6
_MOST = 64
"""Clients of one game that are open at once; each has a thread."""
_TRIES = 4
"""Attempts at a step whose connection is lost."""
_PATIENCE = 5.0
"""Seconds to wait for a free session of the server."""

Key = tuple[int, int | None, tuple[str, ...]]
"""The seed, the member, and the actions sent."""


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


def meaning(error: BaseException) -> Literal["lost", "full", "refused", ""]:
    """The meaning of a client's error: a lost connection, no free session, a late answer or refusal, or something else."""
    if isinstance(error, ConnectionError) or type(error).__name__.startswith("ConnectionClosed"):
        return "lost"
    if isinstance(error, RuntimeError) and "CAPACITY_REACHED" in str(error):
        return "full"
    return "refused" if isinstance(error, TimeoutError | RuntimeError) else ""


class Clients:
    """The open clients of a server, by the states of their episodes. It is the context of a rollout; the last one closes all."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect, self._limit, self._rollouts = connect, _MOST, 0
        self.open: OrderedDict[Key, Any] = OrderedDict()
        self._idle: list[Any] = []
        self.lock = threading.RLock()
        weakref.finalize(self, _close, self.open, self._idle)

    @contextmanager
    def rollout(self) -> Iterator[None]:
        with self.lock:
            self._rollouts += 1
        try:
            yield
        finally:
            with self.lock:
                self._rollouts -= 1
                if not self._rollouts:
                    _close(self.open, self._idle)
                    self._limit = _MOST

    def keep(self, key: Key | None, client: Any) -> None:
        """Stores a client under the state of its episode; None if the episode has ended."""
        if other := self.open.pop(key, None) if key else client:
            self._idle.append(other)
        if key:
            self.open[key] = client

    def started(self, **start: Any) -> tuple[Any, Any]:
        """A client after a reset, and the result: an idle client, a new one, or the one whose episode is needed last.

        Raises:
            UserError: no server answers, or it refuses, or it has no free session.
        """
        began = time.monotonic()
        while True:
            if self._idle:
                client = self._idle.pop()
            else:
                client = self.open.popitem()[1] if len(self.open) >= self._limit else self._connect()
            try:
                return client, client.reset(**start)
            except BaseException as error:
                client.close()
                problem = meaning(error)
                if problem == "refused":
                    raise UserError(f"the OpenEnv server does not answer or refuses ({error})") from error
                if not problem:
                    raise
                if problem == "full" and self.open:
                    self._limit = len(self.open)
                elif time.monotonic() - began > _PATIENCE:
                    full = "has no free session: end its other clients, or raise its max_concurrent_envs"
                    reason = full if problem == "full" else "closes every session: see its log"
                    raise UserError(f"the OpenEnv server {reason}") from error
                else:
                    time.sleep(0.1)


def _close(clients: OrderedDict[Key, Any], idle: list[Any]) -> None:
    while clients or idle:
        (idle.pop() if idle else clients.popitem()[1]).close()


@dataclass(frozen=True, slots=True)
class OpenEnvState:
    """The seeds and actions of an episode, and the server's last observation."""

    seed: int
    """For the environment's reset."""
    member: int | None
    """Also for its reset, if it separates dynamics from the start; None before the first turn."""
    actions: tuple[str | None, ...]
    """One a turn; None is a reply without an action; it is not sent."""
    observation: str
    ended: bool = False
    success: bool = False

    @property
    def turn(self) -> int:
        return len(self.actions)

    @property
    def key(self) -> Key:
        return self.seed, self.member, tuple(action for action in self.actions if action is not None)


def as_text(observation: Mapping[str, Any]) -> str:
    """The fields of an observation except `metadata`, one a line; a list of lists is a grid, an empty field is left out.

    >>> print(as_text({"x": 0, "message": "Go on.", "board": [[0, 1], [0, 0]], "hint": None}))
    x: 0
    message: Go on.
    board:
    0 1
    0 0
    """
    lines = []
    for name, value in observation.items():
        if name == "metadata" or value in (None, "", [], {}):
            continue
        if isinstance(value, list) and all(isinstance(row, list) for row in value):
            lines += [f"{name}:", *(" ".join(map(str, row)) for row in value)]
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class OpenEnvGame:
    """A game whose rules run on an OpenEnv server.

    A reply without an action passes the turn and is not sent. All episodes of a group must start alike. After a lost
    connection, a new client repeats the reset and the actions; an environment that then shows another observation raises
    `UserError`. Such a game has no exact values, and `msgrpo verify` cannot replay its episodes.
    """

    id: str
    """The versioned id."""
    base_url: str
    """The address of the running server, such as `http://localhost:8000`."""
    actions_sent: Mapping[str, Mapping[str, Any]]
    """The name of each action, and the fields that are sent for it."""
    horizon: int
    """Turns after which an episode is truncated."""
    instructions: str
    """The task in a sentence or two."""
    _: KW_ONLY
    told: tuple[str, ...] = ()
    """The rules, without the number of turns."""
    reward_range: tuple[float, float]
    """The smallest and largest reward of one turn."""
    return_range: tuple[float, float]
    """The smallest and largest return of an episode."""
    text: Callable[[Mapping[str, Any]], str] = as_text
    """Renders an observation for the player."""
    legal: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """The legal actions that an observation names. None: all are legal."""
    won: Callable[[Mapping[str, Any], float], bool] = lambda _, reward: reward > 0
    """Whether an episode that ends with this observation and this reward is a success: by default, if the reward is above 0."""
    connect: Callable[[str], Any] = connect
    """Opens a client for an address: `reset`, `step` and `close`, as OpenEnv's."""
    sessions: Callable[[], Any] = field(init=False, repr=False)
    """The context of a rollout, after which no client is open."""
    _clients: Clients = field(init=False, repr=False)

    rows: ClassVar[int] = 1
    columns: ClassVar[int] = 1
    symbols: ClassVar[Mapping[str, str]] = {".": "see the observation"}

    def __post_init__(self) -> None:
        if not re.match(r"https?://[^/\s]", self.base_url):
            raise UserError(
                f"base_url = {shown(self.base_url)}: expected the address of a running OpenEnv server, such as "
                "http://localhost:8000 (nothing is installed from a Space: run it, or give the address where it runs)"
            )
        clients = Clients(partial(self.connect, self.base_url))
        vars(self).update(_clients=clients, sessions=clients.rollout)

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(self.actions_sent)

    @property
    def rules(self) -> tuple[str, ...]:
        return *self.told, f"The game ends after {self.horizon} turns."

    def initial_state(self, rng: np.random.Generator) -> OpenEnvState:
        seed = int(rng.integers(_SEEDS))
        with self._clients.lock:
            client, start = self._clients.started(seed=seed)
            self._clients.keep(None, client)
        if start.done:
            raise UserError(f"{self.id}: the environment is done after its reset: expected a turn to play")
        return OpenEnvState(seed=seed, member=None, actions=(), observation=self._rendered(start))

    def step(self, state: OpenEnvState, action: str | None, rng: np.random.Generator) -> Transition[OpenEnvState]:
        check_turn(self, action, state.ended or state.turn >= self.horizon)
        before = replace(state, member=int(rng.integers(_SEEDS)) if state.member is None else state.member)
        after = replace(before, actions=(*state.actions, action))
        over = after.turn >= self.horizon
        if action is None:
            return Transition(after, 0.0, False, over)
        with self._clients.lock:
            client, result, reward = self._played(before, action)
            self._clients.keep(None if result.done or over else after.key, client)
        won = result.done and self.won(result.observation, reward)
        after = replace(after, observation=self._rendered(result), ended=result.done, success=won)
        return Transition(after, reward, result.done, over and not result.done)

    def _played(self, state: OpenEnvState, action: str) -> tuple[Any, Any, float]:
        """The client, result and reward of one more action. A lost client is replaced, and the new one repeats the episode."""
        client = self._clients.open.pop(state.key, None)
        for _ in range(_TRIES):
            try:
                if client is None:
                    client, result = self._clients.started(seed=state.seed, member=state.member)
                    for sent in state.key[2]:
                        result = result if result.done else client.step(dict(self.actions_sent[sent]))
                    if result.done or self._rendered(result) != state.observation:
                        raise UserError(
                            f"{self.id}: seed {state.seed} and the actions of {state.turn} turns lead to another observation "
                            "than before: expected an environment that can be repeated (whose reset takes a seed), or a server "
                            "with a session for every episode"
                        )
                result = client.step(dict(self.actions_sent[action]))
                reward, (low, high) = float(result.reward or 0.0), self.reward_range
                if not self._in_range(reward):
                    raise UserError(
                        f"{self.id}: {self.base_url} gave the reward {reward:.9g} for {action}: expected {low:g} to {high:g}; "
                        "set the game's reward_range (and return_range) to what the environment gives"
                    )
                return client, result, min(max(reward, low), high)
            except BaseException as error:
                if client is not None:
                    client.close()
                    client = None
                problem = meaning(error)
                if problem in ("refused", "full"):
                    raise UserError(f"the OpenEnv server at {self.base_url} does not answer or refuses ({error})") from error
                if not problem:
                    raise
        raise UserError(f"{self.id}: {self.base_url} closed {_TRIES} sessions in one turn: see the server's log")

    def _in_range(self, reward: float) -> bool:
        """Whether a reward is within `reward_range`, up to rounding: a server may compute in float32."""
        low, high = self.reward_range
        slack = _ROUNDING * max(abs(low), abs(high))
        return low - slack <= reward <= high + slack

    def _rendered(self, result: Any) -> str:
        text = self.text(result.observation)
        if self.legal is None or result.done:
            return text
        return f"{text}\nLegal actions: {', '.join(self.legal(result.observation))}"

    def observe(self, state: OpenEnvState) -> str:
        return state.observation

    def grid(self, state: OpenEnvState) -> list[str]:  # noqa: ARG002
        return ["."]

    def legal_actions(self, state: OpenEnvState) -> tuple[str, ...]:
        named = _LEGAL.findall(state.observation)
        if self.legal is None or not named:
            return () if state.ended else self.actions
        return tuple(action for action in self.actions if action in named[-1].split(", "))

    safe_actions = legal_actions

    def succeeded(self, state: OpenEnvState) -> bool:
        return state.success

    def recorded_states(self, episode: Episode) -> list[OpenEnvState]:
        """The states of a stored episode as far as its record shows them; the last observation is not recorded.

        Raises:
            ValueError: the record contradicts itself.
        """
        where, turns = f"{self.id}, seed {episode.seed}, member {episode.member}", len(episode.steps)
        cut = turns == self.horizon and not episode.terminated
        if not 0 < turns <= self.horizon or episode.truncated != cut or not (episode.terminated or cut):
            raise ValueError(f"{where}: the record has another end than {self.horizon} turns allow")
        if not all(self._in_range(step.reward) if step.action else step.reward == 0 for step in episode.steps):
            low, high = self.reward_range
            raise ValueError(f"{where}: the record has a reward that the game does not give (expected {low:g} to {high:g})")
        seed = int(stream(episode.seed, "initial_state").integers(_SEEDS))
        member = int(stream(episode.seed, "dynamics", episode.member).integers(_SEEDS))
        actions = tuple(step.action for step in episode.steps)
        seen = [step.observation for step in episode.steps]
        states = [OpenEnvState(seed, member if turn else None, actions[:turn], text) for turn, text in enumerate(seen)]
        return [*states, OpenEnvState(seed, member, actions, "", ended=episode.terminated, success=episode.success)]
