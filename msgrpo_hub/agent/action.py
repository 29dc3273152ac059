"""The action parser (the ψ of the paper's LAP): reply text → action, or None (⊥) if the reply has none."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_BEGIN, _END = (re.compile(tag, re.IGNORECASE) for tag in ("<action>", "</action>"))


def parse_action(text: str, actions: Sequence[str], before: Sequence[str] = ("think",)) -> str | None:
    """The first `<action>…</action>` after the thinking, stripped and case-folded, if it names an available action.

    Args:
        text: the reply.
        actions: the actions of the game.
        before: tags of the parts before the answer, in order; their content is not parsed.

    >>> parse_action("<think>Left? <action>Left</action></think><action> right </action>", ["Left", "Right"])
    'Right'
    >>> parse_action("I go right.", ["Left", "Right"]) is None
    True
    """
    answer = answer_after(text, before)
    if answer is None:
        return None
    begin = _BEGIN.search(answer)
    end = _END.search(answer, begin.end()) if begin else None  # two searches, since a single pattern is slow on many opening tags
    if begin is None or end is None:
        return None
    return named_action(answer[begin.end() : end.start()], actions)


def answer_after(text: str, before: Sequence[str]) -> str | None:
    """The text of a reply after its thoughts; None if the reply ended before its thoughts did.

    >>> answer_after("<think>Left or right?</think>Right", ["think"])
    'Right'
    """
    for tag in before:
        text = text.rpartition(f"</{tag}>")[2]
        if f"<{tag}>" in text:
            return None
    return text


def named_action(name: str, actions: Sequence[str]) -> str | None:
    """The available action of a name, ignoring case and surrounding whitespace."""
    wanted = name.strip().casefold()
    return next((action for action in actions if action.casefold() == wanted), None)


def first_object(text: str) -> dict[str, Any] | None:
    """The JSON object that starts at the first brace of a text, if any.

    >>> first_object('Well: {"action": "Left"} and so on')
    {'action': 'Left'}
    """
    try:
        value, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    except (ValueError, RecursionError):  # RecursionError: deeply nested brackets
        return None
    return value if isinstance(value, dict) else None
