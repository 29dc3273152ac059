"""The prompt of one turn: the messages of a prompt format, and the state that they describe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, Message, PromptFormat, Turns
from msgrpo_hub.games import Game


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input of a policy: language models use only the messages, scripted players the state."""

    contents: tuple[tuple[str, str], ...]
    """(role, text) of each message. Prompts with equal messages are equal, so that they can share one computation."""
    observation: str = field(compare=False, repr=False)
    game: Game = field(compare=False, repr=False)
    state: Any = field(compare=False, repr=False)
    prompt_format: PromptFormat = field(default=THINK_ACTION, compare=False, repr=False)

    @property
    def messages(self) -> list[Message]:
        return [{"role": role, "content": text} for role, text in self.contents]

    @property
    def system(self) -> str:
        return self.contents[0][1]

    @property
    def user(self) -> str:
        return self.contents[-1][1]


def build_prompt(game: Game, state: Any, prompt_format: PromptFormat = THINK_ACTION, history: Turns = ()) -> Prompt:
    """The prompt for one state; `history` has the last turns (observation, reply text), oldest first."""
    observation = game.observe(state)
    messages = prompt_format.render(game, observation, history)
    contents = tuple((message["role"], message["content"]) for message in messages)
    return Prompt(contents, observation, game, state, prompt_format)
