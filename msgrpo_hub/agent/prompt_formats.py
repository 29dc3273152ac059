"""Prompt formats (the T and ψ of the paper's LAP): how a prompt is rendered, and how a reply is written and parsed.

A prompt starts with a system message: [Instructions], [Available Actions], [Rules]. This message is the same at every step of
a game, so that its tokens are computed once. Then follow past turns, if the format shows any, and the current observation with
the request for a reply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from msgrpo_hub.agent.action import json_strings, parse_action, split_thoughts
from msgrpo_hub.choices import is_import, resolve
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, make_game, stream

_BARE, _TAGGED = "Answer with one of these lines:\n", "Answer with one of these lines, with its tags:\n"


class Message(TypedDict):
    """One chat message, as `transformers` chat templates take it."""

    role: str
    content: str


Turns = Sequence[tuple[str, str]]
"""(observation, reply text) of past turns, oldest first."""


def system_text(game: Game) -> str:
    """The constant part of a game's prompt."""
    rules = "\n".join(game.rules)
    return f"[Instructions]\n{game.instructions}\n[Available Actions]\n{', '.join(game.actions)}\n[Rules]\n{rules}"


def user_text(observation: str, request: str) -> str:
    """The current observation, then the request."""
    return f"Current Observation:\n{observation}\n{request}"


def request_text(request: str, actions: Sequence[str]) -> str:
    """A request with the actions of a game: a line with `{action}` is repeated for each of them.

    >>> print(request_text("Reply with one of these:\\n<action>{action}</action>", ["Left", "Right"]))
    Reply with one of these:
    <action>Left</action>
    <action>Right</action>
    """
    lines = [
        [line.replace("{action}", name) for name in (actions if "{action}" in line else [""])] for line in request.split("\n")
    ]
    return "\n".join(line for group in lines for line in group)


class PromptFormat(Protocol):
    """How prompts are rendered and replies are parsed. Your own format subclasses it and implements the first four members."""

    @property
    def name(self) -> str:
        """The name in results; it must differ from the names of the built-in formats."""

    def render(self, game: Game, observation: str, history: Turns = ()) -> list[Message]:
        """The chat messages of a turn; their start must be the same at every step of a game.

        Args:
            game: the rules.
            observation: the game's current observation.
            history: the last turns, oldest first, at most `self.history` of them.
        """

    def reply(self, action: str) -> str:
        """The shortest reply with an action, as scripted players write it and scoring compares it."""

    def parse(self, text: str, actions: Sequence[str]) -> str | None:
        """The action of a reply, or None. It must accept any text without raising."""

    @property
    def history(self) -> int:
        """Number of past turns in a prompt; 0 in the paper."""
        return 0

    def thought(self, text: str) -> str | None:  # noqa: ARG002
        """The thoughts in a reply, for replays; None if it has none."""
        return None


@dataclass(frozen=True, kw_only=True)
class TaggedFormat:
    """Replies with the action in `<action>` tags, after other tagged parts.

    >>> THINK_ACTION.parse("<think>The goal is below.</think><action>down</action>", ["Left", "Down"])
    'Down'
    """

    name: str
    """The name in results."""
    request: str = f"{_TAGGED}<think>your thought</think><action>{{action}}</action>"
    """The request after each observation; a line with `{action}` is repeated for each action of the game."""
    parts: tuple[str, ...] = ()
    """Tags of the parts before the action that are not read, besides thoughts."""
    history: int = 0
    """Number of past turns in a prompt."""

    def render(self, game: Game, observation: str, history: Turns = ()) -> list[Message]:
        return conversation(system_text(game), history, observation, request_text(self.request, game.actions))

    def reply(self, action: str) -> str:
        return f"<action>{action}</action>"

    def parse(self, text: str, actions: Sequence[str]) -> str | None:
        return parse_action(text, actions, self.parts)

    def thought(self, text: str) -> str | None:
        thoughts, _ = split_thoughts(text, self.parts)
        return "\n".join(thoughts) if thoughts else None


@dataclass(frozen=True, kw_only=True)
class JsonFormat:
    """Replies that are a JSON object.

    >>> JsonFormat(name="json").parse('{"thought": "The goal is below.", "action": "down"}', ["Left", "Down"])
    'Down'
    """

    name: str
    """The name in results."""
    request: str = _BARE + '{"thought": "your thought", "action": "{action}"}'
    """The request after each observation; a line with `{action}` is repeated for each action of the game."""
    history: int = 0
    """Number of past turns in a prompt."""

    def render(self, game: Game, observation: str, history: Turns = ()) -> list[Message]:
        return conversation(system_text(game), history, observation, request_text(self.request, game.actions))

    def reply(self, action: str) -> str:
        return json.dumps({"action": action}, ensure_ascii=False)

    def parse(self, text: str, actions: Sequence[str]) -> str | None:
        return parse_action(text, actions, as_json=True)

    def thought(self, text: str) -> str | None:
        thoughts, answer = split_thoughts(text)
        return json_strings(answer).get("thought") or ("\n".join(thoughts) if thoughts else None)


def conversation(system: str, history: Turns, observation: str, request: str) -> list[Message]:
    """The messages of the rules, the past turns and the current turn; each prompt extends the one before it."""
    messages: list[Message] = [{"role": "system", "content": system}]
    for past, reply in history:
        messages.append({"role": "user", "content": user_text(past, request)})
        messages.append({"role": "assistant", "content": reply})
    return [*messages, {"role": "user", "content": user_text(observation, request)}]


THINK_ACTION = TaggedFormat(name="think-action")
"""The format of the authors' published engine, and the default everywhere."""

PROMPT_FORMATS: dict[str, PromptFormat] = {
    built_in.name: built_in
    for built_in in (
        THINK_ACTION,
        TaggedFormat(name="action-only", request=f"{_BARE}<action>{{action}}</action>"),
        TaggedFormat(
            name="think-plan-action",
            request=f"{_TAGGED}<think>your thought</think><plan>your plan</plan><action>{{action}}</action>",
            parts=("plan",),
        ),
        JsonFormat(name="json"),
    )
}
"""The built-in formats; the authors' later scenarios use `think-plan-action`."""


def find_format(name: str, *, may_import: bool = False) -> PromptFormat:
    """The format of a name.

    Args:
        name: a built-in format, or `module:object`.
        may_import: as for `choices.resolve`: True only for a name that the user typed on this machine.

    Raises:
        UserError: the format does not exist, or cannot be used.
    """
    prompt_format = resolve("prompt format", name, PROMPT_FORMATS, may_import=may_import)
    if not is_import(name):
        return prompt_format
    members = ("name", "history", "render", "reply", "parse", "thought")
    if missing := [member for member in members if not hasattr(prompt_format, member)]:
        raise UserError(f"the prompt format {name!r} has no {missing[0]}: expected a subclass of msgrpo_hub.agent.PromptFormat")
    if PROMPT_FORMATS.get(prompt_format.name, prompt_format) != prompt_format:
        taken = prompt_format.name
        raise UserError(f"the prompt format {name!r} has the name of a built-in format, {taken!r}: give it another name")
    return prompt_format


_PROBE_GAMES = ("FrozenLake-NotSlippery-v1", "Snake-Standard-v1")
_PROBE_REPLIES = (
    "{reply}",
    " {reply} {other}",
    "<think>x</think>{reply}",
    "<think>{reply}",
    "{other}</think>{reply}",
    "<think>x</think>{reply}<think>x</think>{other}<think>",
    "[THINK]{other}[/THINK]{reply}",
    "<think>x</think><plan>{other}</plan>{reply}",
    "<plan>{reply}",
    "{action}",
    "{action}. ",
    "I go {action}.",
    "<{action}>",
    "<think>x</think>{action}",
    "<action> {action} </action>",
    "<ACTION>{lower}</ACTION>",
    "<action>{lower}!</action>",
    "<action>{lower}?</action>",
    "<action></action>",
    "<action>x</action>{reply}",
    '{{"action": "{lower}"}}',
    '{{"action": 1}}',
    'So: {{"thought": "a\nb", "action": "{action}",}}',
)


def format_hash(prompt_format: PromptFormat) -> str:
    """A hash, 16 hexadecimal digits, of a format's prompts, replies and parsed actions on fixed probes."""
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
