"""Prompt formats (the T and ψ of the paper's LAP): how a prompt is rendered, and how a reply is written and parsed.

A prompt starts with a system message (instructions, actions, rules). It is the same at every step of a game, so that its tokens
are computed once. Past turns follow, if the format shows any, then the current observation with the request for a reply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from msgrpo_hub.agent.action import json_strings, parse_action, split_thoughts
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import is_import, resolve
from msgrpo_hub.games import Game, make_game, stream

_BARE = "Answer with one of these lines:\n"
_TAGGED = "Answer with one of these lines, with its tags:\n<think>your thought</think>"


class Message(TypedDict):
    """One chat message, as `transformers` chat templates take it."""

    role: str
    content: str


Turns = Sequence[tuple[str, str]]
"""(observation, reply text) of past turns, oldest first."""


def system_text(game: Game) -> str:
    """The constant part of a game's prompt."""
    actions = ", ".join(game.actions)
    return "\n".join(["[Instructions]", game.instructions, "[Available Actions]", actions, "[Rules]", *game.rules])


USER_TEXT = "Current Observation:\n{}\n{}"
"""The message of a turn, to be filled with an observation and a request."""


class PromptFormat:
    """How prompts are rendered and replies are parsed. Your own format has a `name` and its own `render`, `reply` and `parse`."""

    name: str
    """The name in results; it must differ from the names of the built-in formats."""
    history: int = 0
    """Number of past turns in a prompt; 0 in the paper."""
    render: Callable[[Game, str, Turns], list[Message]]
    """`render(game, observation, history)`: the chat messages of a turn, with the last `self.history` turns. They start the same
    at every step of a game."""
    reply: Callable[[str], str]
    """`reply(action)`: the shortest reply with an action, as scripted players write it and scoring compares it."""
    parse: Callable[[str, Sequence[str]], str | None]
    """`parse(text, actions)`: the action of a reply, or None. It must accept any text without raising."""

    def thought(self, text: str) -> str | None:  # noqa: ARG002
        """The thoughts in a reply, for replays; None if it has none."""
        return None


@dataclass(frozen=True, kw_only=True)
class TaggedFormat(PromptFormat):
    """Replies with the action in `<action>` tags after other tagged parts, or in a JSON object.

    >>> THINK_ACTION.parse("<think>The goal is below.</think><action>down</action>", ["Left", "Down"])
    'Down'
    >>> PROMPT_FORMATS["json"].parse('{"thought": "The goal is below.", "action": "down"}', ["Left", "Down"])
    'Down'
    """

    name: str
    request: str = f"{_TAGGED}<action>{{action}}</action>"
    """The request after each observation. A line with `{action}` is repeated for each action of the game."""
    parts: tuple[str, ...] = ()
    """Tags of the parts before the action that are not read, besides thoughts."""
    as_json: bool = False
    """Whether a reply is a JSON object with the fields "thought" and "action"."""
    history: int = 0

    def render(self, game: Game, observation: str, history: Turns = ()) -> list[Message]:
        request = []
        for line in self.request.split("\n"):
            request += [line.replace("{action}", action) for action in game.actions] if "{action}" in line else [line]
        return conversation(system_text(game), history, observation, "\n".join(request))

    def reply(self, action: str) -> str:
        return json.dumps({"action": action}, ensure_ascii=False) if self.as_json else f"<action>{action}</action>"

    def parse(self, text: str, actions: Sequence[str]) -> str | None:
        return parse_action(text, actions, self.parts, as_json=self.as_json)

    def thought(self, text: str) -> str | None:
        thoughts, answer = split_thoughts(text, self.parts)
        written = json_strings(answer).get("thought") if self.as_json else None
        return written or ("\n".join(thoughts) if thoughts else None)


def conversation(system: str, history: Turns, observation: str, request: str) -> list[Message]:
    """The messages of the rules, the past turns and the current turn; each prompt extends the one before it."""
    messages: list[Message] = [{"role": "system", "content": system}]
    for past, reply in history:
        messages.append({"role": "user", "content": USER_TEXT.format(past, request)})
        messages.append({"role": "assistant", "content": reply})
    return [*messages, {"role": "user", "content": USER_TEXT.format(observation, request)}]


THINK_ACTION = TaggedFormat(name="think-action")
"""The format of the authors' published engine, and the default everywhere."""

PROMPT_FORMATS: dict[str, PromptFormat] = {
    built_in.name: built_in
    for built_in in (
        THINK_ACTION,
        TaggedFormat(name="action-only", request=f"{_BARE}<action>{{action}}</action>"),
        TaggedFormat(
            name="think-plan-action", request=f"{_TAGGED}<plan>your plan</plan><action>{{action}}</action>", parts=("plan",)
        ),
        TaggedFormat(name="json", request=f'{_BARE}{{"thought": "your thought", "action": "{{action}}"}}', as_json=True),
    )
}
"""The built-in formats; the authors' later scenarios use `think-plan-action`."""


def find_format(name: str, *, may_import: bool = False) -> PromptFormat:
    """The format of a name, as `choices.resolve` finds it. Raises `UserError` if it does not exist or cannot be used."""
    prompt_format = resolve("prompt format", name, PROMPT_FORMATS, may_import=may_import)
    if not is_import(name):
        return prompt_format
    members = ("name", "history", "render", "reply", "parse", "thought")
    missing = [member for member in members if not hasattr(prompt_format, member)]
    if missing:
        raise UserError(f"the prompt format {name!r} has no {missing[0]}: expected a subclass of msgrpo_hub.agent.PromptFormat")
    own = prompt_format.name
    if PROMPT_FORMATS.get(own, prompt_format) != prompt_format:
        raise UserError(f"the prompt format {name!r} has the name of a built-in format, {own!r}: give it another name")
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
        record += [prompt_format.render(game, observation, ()), prompt_format.render(game, observation, past)]
        written = {"reply": prompt_format.reply(first), "other": prompt_format.reply(other)}
        texts = [text.format(action=first, lower=first.lower(), **written) for text in _PROBE_REPLIES]
        record += [[text, prompt_format.parse(text, game.actions)] for text in texts]
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:16]
