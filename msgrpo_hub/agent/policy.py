"""The prompt of one turn, the protocol of everything that answers prompts, and scripted policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, Message, PromptFormat, Turns
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, base_game, display_name


@dataclass(frozen=True)
class Prompt:
    """The input of a policy: language models use only the messages, scripted players the state."""

    contents: tuple[tuple[str, str], ...]
    """(role, text) of each message. Prompts with equal messages are equal, so that they can share one computation."""
    observation: str = field(compare=False, repr=False)
    game: Game = field(compare=False, repr=False)
    state: Any = field(compare=False, repr=False)
    prompt_format: PromptFormat = field(default=THINK_ACTION, compare=False, repr=False)
    messages: list[Message] = field(init=False, compare=False, repr=False)
    """The contents as chat templates take them."""
    system: str = field(init=False, compare=False, repr=False)
    """The text of the first message."""
    user: str = field(init=False, compare=False, repr=False)
    """The text of the last message."""

    def __post_init__(self) -> None:
        messages = [{"role": role, "content": text} for role, text in self.contents]
        texts = [text for _, text in self.contents]
        vars(self).update(messages=messages, system=texts[0], user=texts[-1])


def build_prompt(game: Game, state: Any, prompt_format: PromptFormat = THINK_ACTION, history: Turns = ()) -> Prompt:
    """The prompt for one state; `history` has the last turns (observation, reply text), oldest first."""
    observation = game.observe(state)
    messages = prompt_format.render(game, observation, history)
    contents = tuple((message["role"], message["content"]) for message in messages)
    return Prompt(contents, observation, game, state, prompt_format)


@runtime_checkable
class Policy(Protocol):
    """Anything that answers prompts.

    A method `caching()` is optional: its context holds what a set of episodes shares, and changes no reply.
    """

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        """One reply per prompt. All randomness of reply i comes from `rngs[i]`: the batch affects only rounding."""


class Interrupted(UserError):  # noqa: N818
    """A policy cannot finish a turn. The replies that it has are played before the error is raised."""

    def __init__(self, message: str, completions: Sequence[Completion | None]) -> None:
        super().__init__(message)
        self.completions = completions
        """One per prompt of the turn, None without a reply."""


def format_of(policy: Policy, chosen: PromptFormat | None = None, default: PromptFormat = THINK_ACTION) -> PromptFormat:
    """The prompt format of a policy: the one chosen, else its own `prompt_format` attribute, else the default."""
    return chosen or getattr(policy, "prompt_format", None) or default


Chooser = Callable[[Game, Any, np.random.Generator], str | None]
"""(game, state, rng) → action, or None for a reply without one."""


@dataclass(frozen=True)
class ScriptedPolicy:
    """A policy that chooses actions from the state and replies in the format of the prompt."""

    choose: Chooser

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = []
        for prompt, rng in zip(prompts, rngs, strict=True):
            action = self.action(prompt.game, prompt.state, rng)
            replies.append(Completion(text="" if action is None else prompt.prompt_format.reply(action)))
        return replies

    def action(self, game: Game, state: Any, rng: np.random.Generator) -> str | None:
        """The chosen action, by its displayed name; None if the player does not act."""
        action = self.choose(base_game(game), state, rng)
        return None if action is None else display_name(game, action)
