"""A running OpenEnv environment as a game: its state is (seed, member, actions), of which a live session is a cache.

Nothing is installed or imported from an environment's repository: a game needs the address of a server that runs, and says
which actions it has and how its observations read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.games import Transition, stream
from msgrpo_hub.games.game import check_turn
from msgrpo_hub.interop.openenv_client import connect
from msgrpo_hub.interop.openenv_sessions import Lost, Session, Sessions, Shown

_LEGAL = re.compile(r"^Legal actions: (.*)$", re.MULTILINE)
_SEEDS = 2**31
_TRIES = 4
"""Sessions that may be lost in one turn."""
_ROUNDING = 1e-6
"""How far a reward may lie outside its range, as a share of the range's larger bound: a server may compute in float32."""


@dataclass(frozen=True, slots=True)
class OpenEnvState:
    """How an episode was begun, and what was done; the rest repeats what the server showed then."""

    seed: int
    """Given to the environment's reset."""
    member: int | None
    """Given to it as well, for an environment that tells chance from start; None before the first turn."""
    actions: tuple[str | None, ...]
    """One a turn; None is a reply without an action, of which the server hears nothing."""
    observation: str
    ended: bool = False
    success: bool = False

    @property
    def turn(self) -> int:
        return len(self.actions)

    @property
    def sent(self) -> tuple[str, ...]:
        """The actions that the server was sent."""
        return tuple(action for action in self.actions if action is not None)


def as_text(observation: Mapping[str, Any]) -> str:
    """The fields of an observation but `metadata`, one a line; a list of lists is a grid, an empty field is left out.

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


def gave_reward(observation: Mapping[str, Any], reward: float) -> bool:  # noqa: ARG001
    """The default of `OpenEnvGame.won`: whether the last turn's reward was above 0."""
    return reward > 0


@dataclass(frozen=True, eq=False)
class OpenEnvGame:
    """A game whose rules run on an OpenEnv server.

    A reply without an action passes the turn, and the server hears nothing of it. All episodes of a group start alike, or the
    group is refused. A session that is lost is led to its state again by the same reset and the same actions; an environment
    that then shows anything else is refused, because it cannot be repeated. Exact values do not exist, and `msgrpo verify`
    cannot simulate episodes again.
    """

    id: str
    """The versioned id."""
    base_url: str
    """The address of the running server, such as `http://localhost:8000`."""
    actions_sent: Mapping[str, Mapping[str, Any]]
    """The name of each action, and the fields that the server is sent for it."""
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
    """What a player is shown of an observation."""
    legal: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """The legal actions that an observation names. None: all are legal."""
    won: Callable[[Mapping[str, Any], float], bool] = gave_reward
    """Whether an episode that ends with this observation and this reward is a success."""
    connect: Callable[[str], Session] = connect
    """Opens a session at an address."""
    _sessions: Sessions = field(init=False, repr=False)

    rows: ClassVar[int] = 1
    columns: ClassVar[int] = 1
    symbols: ClassVar[Mapping[str, str]] = {".": "see the observation"}

    def __post_init__(self) -> None:
        if not re.match(r"https?://[^/\s]", self.base_url):
            raise UserError(
                f"base_url = {shown(self.base_url)}: expected the address of a running OpenEnv server, such as "
                "http://localhost:8000 (nothing is installed from a Space: run it, or give the address where it runs)"
            )
        object.__setattr__(self, "_sessions", Sessions(lambda: self.connect(self.base_url)))

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(self.actions_sent)

    @property
    def rules(self) -> tuple[str, ...]:
        return *self.told, f"The game ends after {self.horizon} turns."

    def sessions(self) -> Sessions:
        """The time in which sessions may stay open; none is open afterwards, however it ends."""
        return self._sessions

    def initial_state(self, rng: np.random.Generator) -> OpenEnvState:
        seed = int(rng.integers(_SEEDS))
        session, start = self._sessions.started(seed=seed)
        self._sessions.release(session)
        if start.done:
            raise UserError(f"{self.id}: the environment says that the episode is over when it begins: expected a turn to play")
        return OpenEnvState(seed=seed, member=None, actions=(), observation=self._told(start))

    def step(self, state: OpenEnvState, action: str | None, rng: np.random.Generator) -> Transition[OpenEnvState]:
        check_turn(self, action, state.ended or state.turn >= self.horizon)
        member = int(rng.integers(_SEEDS)) if state.member is None else state.member
        state = replace(state, member=member)
        actions = (*state.actions, action)
        over = len(actions) >= self.horizon
        if action is None:
            return Transition(replace(state, actions=actions), 0.0, False, over)
        session, answer = self._played(state, action)
        if answer.done or over:
            self._sessions.release(session)
        else:
            self._sessions.keep((state.seed, member, (*state.sent, action)), session)
        won = answer.done and self.won(answer.observation, answer.reward)
        after = OpenEnvState(state.seed, member, actions, self._told(answer), ended=answer.done, success=won)
        return Transition(after, answer.reward, answer.done, over and not answer.done)

    def _played(self, state: OpenEnvState, action: str) -> tuple[Session, Shown]:
        """A session after one more action; where it is lost, another is led to the state again."""
        session = self._sessions.take((state.seed, state.member, state.sent))
        for _ in range(_TRIES):
            try:
                session = session or self._led_to(state)
                return session, self._sent(session, action)
            except Lost:
                session = None
        raise UserError(f"{self.id}: {self.base_url} closed {_TRIES} sessions in one turn: look at the server's log")

    def _led_to(self, state: OpenEnvState) -> Session:
        """A session that stands in a state: reset as it was, and sent the same actions."""
        session, answer = self._sessions.started(seed=state.seed, member=state.member)
        for action in state.sent:
            if answer.done:
                break
            answer = self._sent(session, action)
        with self._sessions.closed_on_error(session):
            if answer.done or self._told(answer) != state.observation:
                raise UserError(self._unlike(state))
        return session

    def _unlike(self, state: OpenEnvState) -> str:
        if state.sent:
            return (
                f"{self.id}: a session was lost on turn {state.turn + 1}, and the same seed and actions lead to another "
                "observation now: expected an environment that can be repeated, or a server with a session for every episode"
            )
        return (
            f"{self.id}: two resets with seed {state.seed} start differently, and the episodes of a group must start alike: "
            "expected an environment whose reset takes a seed, or that has one start"
        )

    def _sent(self, session: Session, action: str) -> Shown:
        """What an action leads to, with a reward of the range: one that rounding took out of it is the range's bound."""
        low, high = self.reward_range
        with self._sessions.closed_on_error(session):
            answer = session.step(self.actions_sent[action])
            if not self._gives(answer.reward):
                raise UserError(
                    f"{self.id}: {self.base_url} gave the reward {answer.reward:.9g} for {action}: expected {low:g} to {high:g}; "
                    "set the game's reward_range (and return_range) to what the environment gives"
                )
        return replace(answer, reward=min(max(answer.reward, low), high))

    def _gives(self, reward: float) -> bool:
        """Whether the environment may give a reward, but for rounding."""
        low, high = self.reward_range
        slack = _ROUNDING * max(abs(low), abs(high))
        return low - slack <= reward <= high + slack

    def _told(self, answer: Shown) -> str:
        text = self.text(answer.observation)
        if self.legal is None or answer.done:
            return text
        return f"{text}\nLegal actions: {', '.join(self.legal(answer.observation))}"

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
        """The states of a stored episode, as far as the record tells them; the last one's observation is not recorded.

        Raises:
            ValueError: the record contradicts itself.
        """
        where, turns = f"{self.id}, seed {episode.seed}, member {episode.member}", len(episode.steps)
        cut = turns == self.horizon and not episode.terminated
        if not 0 < turns <= self.horizon or episode.truncated != cut or not (episode.terminated or cut):
            raise ValueError(f"{where}: the record has another end than {self.horizon} turns allow")
        if not all(self._gives(step.reward) if step.action else step.reward == 0 for step in episode.steps):
            low, high = self.reward_range
            raise ValueError(f"{where}: the record has a reward that the game does not give (expected {low:g} to {high:g})")
        seed = int(stream(episode.seed, "initial_state").integers(_SEEDS))
        member = int(stream(episode.seed, "dynamics", episode.member).integers(_SEEDS))
        states = []
        for turn, step in enumerate(episode.steps):
            done = tuple(before.action for before in episode.steps[:turn])
            states.append(OpenEnvState(seed, member if turn else None, done, step.observation))
        every = tuple(step.action for step in episode.steps)
        return [*states, OpenEnvState(seed, member, every, "", ended=episode.terminated, success=episode.success)]
