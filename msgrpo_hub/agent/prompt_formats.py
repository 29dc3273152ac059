"""Prompt formats (the T and ψ of the paper's LAP): how a game is told, how a reply is written, how it is read.

A prompt begins with a system message: [Instructions], [Available Actions], [Rules]. It is the same at every step of every
episode of a game, so that its tokens are computed once. Then come the turns that the format remembers, if it remembers any,
and last the current observation with the request for a reply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from msgrpo_hub.agent.action import answer_after, first_object, named_action, parse_action
from msgrpo_hub.choices import is_import, resolve
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, make_game, stream

_ACTION = "<action>one available action</action>"
REPLY_FORMAT = f"Answer in the format <think>your thoughts</think>{_ACTION}"


class Message(TypedDict):
    """One chat message, as `transformers` chat templates take it."""

    role: str
    content: str


Turns = Sequence[tuple[str, str]]
"""(observation, reply text) of turns that have been played, the oldest first."""


def system_text(game: Game) -> str:
    """The constant part of a game's prompt."""
    rules = "\n".join(game.rules)
    return f"[Instructions]\n{game.instructions}\n[Available Actions]\n{', '.join(game.actions)}\n[Rules]\n{rules}"


def user_text(observation: str, request: str = REPLY_FORMAT) -> str:
    """The current observation, then what is asked about it."""
    return f"Current Observation:\n{observation}\n{request}"


class PromptFormat(Protocol):
    """How a player is asked and how its replies are read. A format of one's own subclasses it and writes the first four."""

    @property
    def name(self) -> str:
        """What results show; no built-in format has it."""

    def render(self, game: Game, observation: str, history: Turns = ()) -> list[Message]:
        """The chat messages of a turn; they must begin alike at every step of a game.

        Args:
            game: the rules.
            observation: what the game shows now.
            history: the last turns, the oldest first, at most `self.history` of them.
        """

    def reply(self, action: str) -> str:
        """The shortest reply that names an action: what scripted players write, and what scoring compares."""

    def parse(self, text: str, actions: Sequence[str]) -> str | None:
        """The action that a reply names, or None. It is given any text and must not raise."""

    @property
    def history(self) -> int:
        """How many of the last turns a prompt shows; 0 is the paper's way."""
        return 0

    def thought(self, text: str) -> str | None:  # noqa: ARG002
        """What a reply thinks before it acts, for replays; None if it thinks nothing."""
        return None


@dataclass(frozen=True, kw_only=True)
class TaggedFormat:
    """Replies with the action in `<action>` tags, after other tagged parts.

    >>> THINK_ACTION.parse("<think>The goal is below.</think><action>down</action>", ["Left", "Down"])
    'Down'
    """

    name: str
    """What results show."""
    request: str = REPLY_FORMAT
    """What is asked after each observation."""
    parts: tuple[str, ...] = ("think",)
    """Tags of the parts before the action. Thoughts are skipped in any format, since some models always think."""
    history: int = 0
    """How many of the last turns a prompt shows."""

    def render(self, game: Game, observation: str, history: Turns = ()) -> list[Message]:
        return conversation(system_text(game), history, observation, self.request)

    def reply(self, action: str) -> str:
        return f"<action>{action}</action>"

    def parse(self, text: str, actions: Sequence[str]) -> str | None:
        return parse_action(text, actions, self.parts)

    def thought(self, text: str) -> str | None:
        parts = []
        for tag in self.parts:
            before, closed, after = text.partition(f"</{tag}>")
            if closed or f"<{tag}>" in before:
                parts.append(before.rpartition(f"<{tag}>")[2])
            text = after if closed else text
        return "\n".join(parts) if parts else None


@dataclass(frozen=True, kw_only=True)
class JsonFormat:
    """Replies that are a JSON object.

    >>> JsonFormat(name="json").parse('{"thought": "The goal is below.", "action": "down"}', ["Left", "Down"])
    'Down'
    """

    name: str
    """What results show."""
    request: str = 'Answer with a JSON object: {"thought": "your thoughts", "action": "one available action"}'
    """What is asked after each observation."""
    history: int = 0
    """How many of the last turns a prompt shows."""

    def render(self, game: Game, observation: str, history: Turns = ()) -> list[Message]:
        return conversation(system_text(game), history, observation, self.request)

    def reply(self, action: str) -> str:
        return json.dumps({"action": action}, ensure_ascii=False)

    def parse(self, text: str, actions: Sequence[str]) -> str | None:
        answer = answer_after(text, ("think",))
        named = (first_object(answer) or {}).get("action") if answer is not None else None
        return named_action(named, actions) if isinstance(named, str) else None

    def thought(self, text: str) -> str | None:
        said = (first_object(answer_after(text, ("think",)) or "") or {}).get("thought")
        return said if isinstance(said, str) else None


def conversation(system: str, history: Turns, observation: str, request: str) -> list[Message]:
    """Rules, past turns as they were asked and answered, and the current turn: each prompt begins with the one before it."""
    messages: list[Message] = [{"role": "system", "content": system}]
    for seen, said in history:
        messages.append({"role": "user", "content": user_text(seen, request)})
        messages.append({"role": "assistant", "content": said})
    return [*messages, {"role": "user", "content": user_text(observation, request)}]


THINK_ACTION = TaggedFormat(name="think-action")
"""The paper's format, and the default everywhere."""

PROMPT_FORMATS: dict[str, PromptFormat] = {
    built_in.name: built_in
    for built_in in (
        THINK_ACTION,
        TaggedFormat(name="action-only", request=f"Answer in the format {_ACTION}"),
        TaggedFormat(
            name="think-plan-action",
            request=f"Answer in the format <think>your thoughts</think><plan>your plan</plan>{_ACTION}",
            parts=("think", "plan"),
        ),
        JsonFormat(name="json"),
    )
}
"""The built-in formats; `think-plan-action` is that of the authors' later scenarios."""


def find_format(name: str, *, may_import: bool = False) -> PromptFormat:
    """The format of a name.

    Args:
        name: of a built-in format, or `module:object`.
        may_import: as for `choices.resolve`: only for a name that was typed on this machine.

    Raises:
        UserError: there is no such format, or it cannot be used.
    """
    found = resolve("prompt format", name, PROMPT_FORMATS, may_import=may_import)
    if not is_import(name):
        return found
    lacking = [part for part in ("name", "history", "render", "reply", "parse", "thought") if not hasattr(found, part)]
    if lacking:
        raise UserError(f"the prompt format {name!r} has no {lacking[0]}: expected a subclass of msgrpo_hub.agent.PromptFormat")
    if PROMPT_FORMATS.get(found.name, found) != found:
        raise UserError(f"the prompt format {name!r} is named {found.name!r}, as a built-in one is: give it another name")
    return found


_PROBE_GAMES = ("FrozenLake-NotSlippery-v1", "Snake-Standard-v1")
_PROBE_REPLIES = (
    "{reply}",
    " {reply} {other}",
    "<think>x</think>{reply}",
    "<think>{reply}",
    "<think>x</think><plan>{other}</plan>{reply}",
    "<plan>{reply}",
    "{action}",
    "<action> {action} </action>",
    "<ACTION>{lower}</ACTION>",
    "<action>{lower}!</action>",
    "<action></action>",
    '{{"action": "{lower}"}}',
    '{{"action": 1}}',
)


def format_hash(prompt_format: PromptFormat) -> str:
    """16 hexadecimal digits over what a format renders, writes and reads on fixed probes: a changed format has another hash."""
    record: list[object] = [prompt_format.history]
    for game in map(make_game, _PROBE_GAMES):
        first, other = game.actions[0], game.actions[-1]
        observation = game.observe(game.initial_state(stream(0, "initial_state")))
        past = [(f"{observation}\n{turn}", prompt_format.reply(first)) for turn in range(min(prompt_format.history, 2))]
        record += [prompt_format.render(game, observation), prompt_format.render(game, observation, past)]
        written = {"reply": prompt_format.reply(first), "other": prompt_format.reply(other)}
        texts = [text.format(action=first, lower=first.lower(), **written) for text in _PROBE_REPLIES]
        record += [[text, prompt_format.parse(text, game.actions)] for text in texts]
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:16]
