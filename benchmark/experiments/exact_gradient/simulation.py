"""Episodes sampled from the exact probabilities of a policy, by the game's own rules and without the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmark.experiments.exact_gradient.exact import Floats
from msgrpo_hub.episode import Completion, Episode, Group, Step
from msgrpo_hub.games.game import Solvable

# Shapes: N prompts, O options.


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """Plays a game with a policy that is a table."""

    game: Solvable
    row_of: dict[str, int]
    """Observation → row of its prompt."""
    probabilities: Floats
    """(N, O) the probabilities of the actions of the game, then of "no action"."""
    replies: Sequence[Completion]
    """(O,) what the policy replies."""
    prompt_ids: Sequence[tuple[int, ...]]
    """(N,) the tokens of the prompts."""
    _steps: dict[tuple[Any, int, float], Step] = field(default_factory=dict)
    _rows: dict[Any, int] = field(default_factory=dict)

    @cached_property
    def _cumulative(self) -> Floats:
        return self.probabilities.cumsum(axis=1)

    def row(self, state: Any) -> int:
        """The row of the prompt of a state."""
        if state not in self._rows:
            self._rows[state] = self.row_of[self.game.observe(state)]
        return self._rows[state]

    def policy(self, state: Any) -> Floats:
        """(O,) the probabilities of a state's options."""
        row: Floats = self.probabilities[self.row(state)]
        return row

    def entries(self, episodes: Iterable[Episode]) -> npt.NDArray[np.int64]:
        """The entry of the flattened table (N · O,) that each step chose, step after step."""
        column = {action: k for k, action in enumerate((*self.game.actions, None))}
        steps = [step for episode in episodes for step in episode.steps]
        return np.array([self.row_of[step.observation] * len(column) + column[step.action] for step in steps])

    def group(self, start: Any, size: int, rng: np.random.Generator) -> Group:
        """A group of episodes from one state."""
        episodes = tuple(self._episode(start, member, rng) for member in range(size))
        return Group(game_id=self.game.id, seed=0, episodes=episodes)

    def _episode(self, state: Any, member: int, rng: np.random.Generator) -> Episode:
        options, steps = (*self.game.actions, None), []
        terminated = truncated = False
        while not (terminated or truncated):
            cumulative = self._cumulative[self.row(state)]
            option = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
            after = self.game.step(state, options[option], rng)
            steps.append(self._step(state, option, after.reward))
            state, terminated, truncated = after.state, after.terminated, after.truncated
        return Episode(
            game_id=self.game.id,
            seed=0,
            member=member,
            steps=tuple(steps),
            terminated=terminated,
            truncated=truncated,
            success=self.game.succeeded(state),
        )

    def _step(self, state: Any, option: int, reward: float) -> Step:
        """The record of a step; equal steps are one object."""
        key = (state, option, reward)
        if key not in self._steps:
            observation, action = self.game.observe(state), (*self.game.actions, None)[option]
            self._steps[key] = Step(
                observation=observation,
                completion=replace(self.replies[option], prompt_ids=self.prompt_ids[self.row_of[observation]]),
                action=action,
                status="unreadable" if action is None else "ok",
                legal=action in self.game.legal_actions(state),
                reward=reward,
            )
        return self._steps[key]
