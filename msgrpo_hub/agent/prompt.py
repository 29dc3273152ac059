"""The prompt template of the language agent (the T of the paper's LAP).

System message: [Instructions], [Available Actions], [Rules]. User message: the current observation, then the reply
format. The rules come first, so the prompt's beginning is the same at every step of every episode of a game.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict

from msgrpo_hub.games import Game

REPLY_FORMAT = "Answer in the format <think>your thoughts</think><action>one available action</action>"


class Message(TypedDict):
    """One chat message, as `transformers` chat templates take it."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a policy is asked: language models read the messages alone, scripted players look at the state instead."""

    system: str
    user: str
    observation: str = field(compare=False, repr=False)
    game: Game = field(compare=False, repr=False)
    state: Any = field(compare=False, repr=False)

    @property
    def messages(self) -> list[Message]:
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


def system_text(game: Game) -> str:
    """The constant part of a game's prompt."""
    rules = "\n".join(game.rules)
    return f"[Instructions]\n{game.instructions}\n[Available Actions]\n{', '.join(game.actions)}\n[Rules]\n{rules}"


def user_text(observation: str, request: str = REPLY_FORMAT) -> str:
    """The current observation, then what is asked about it."""
    return f"Current Observation:\n{observation}\n{request}"


def build_prompt(game: Game, state: Any) -> Prompt:
    """The prompt for one state; it depends on the observation only, never on the history."""
    observation = game.observe(state)
    return Prompt(system_text(game), user_text(observation), observation, game, state)
