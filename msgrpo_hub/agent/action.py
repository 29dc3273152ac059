"""Reading a reply: text → the action that it chose, or None (the ψ of the paper's LAP, and its ⊥)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress

_THINK = r"(?:\w{1,16}[:|_])?(?:think(?:ing)?|thoughts?|reasoning)(?:[:_]\w{1,16})?"
_MARKERS = (
    (rf"<{_THINK}>", rf"</{_THINK}>"),  # DeepSeek, Qwen, GLM and most others; <seed:think>, <mm:think>, <longcat_think>
    (r"\[THINK\]", r"\[/THINK\]"),  # Mistral
    (r"<\|channel\|>(?:analysis|commentary)", r"<\|channel\|>final"),  # gpt-oss
    (r"\Aanalysis(?=\w)", r"assistantfinal"),  # gpt-oss without its special tokens
    (r"<\|channel>", r"<channel\|>"),  # Gemma 4
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Cohere
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),  # Apertus
    (r"<\|think:start\|>", r"<\|think:end\|>"),  # Solar Open
    (r"<\|plamo:begin_think:plamo\|>", r"<\|plamo:end_think:plamo\|>"),  # PLaMo 3
    (r"<\|content_thinking\|>", r"<\|content_text\|>"),  # Inkling
    (r"<\|open\|>think<\|sep\|>", r"<\|close\|>think<\|sep\|>"),  # Kimi K3
    (r"◁think▷", r"◁/think▷"),  # Kimi-VL
    (r"\[unused16\]", r"\[unused17\]"),  # Pangu
    (r"Here(?:'s| is) my thought process:", r"Here(?:'s| is) my response:"),  # Granite
)
"""Opening and closing markers of thoughts, from the reasoning parsers of vLLM and SGLang and the chat templates of TRL."""

_OPENING, _CLOSING = ("|".join(patterns) for patterns in zip(*_MARKERS, strict=True))
MARKER = re.compile(f"(?P<open>{_OPENING})|{_CLOSING}", re.IGNORECASE)
"""Starts or ends thoughts."""
OPENED = re.compile(rf"(?:{_OPENING})\s*\Z", re.IGNORECASE)
"""The opening marker at the end of a prompt whose template starts the thoughts of the reply."""

_BEGIN, _END = (re.compile(tag, re.IGNORECASE) for tag in ("<action>", "</action>"))
_STRING = r'(?:[^"\\]|\\.)*+'  # possessive: a string that does not end is scanned once
_JSON = re.compile(rf'[{{}}]|"(?P<key>{_STRING})"\s*:\s*"(?P<value>{_STRING})"|"{_STRING}(?:"|\\?\Z)', re.DOTALL)
_FRAME = re.compile(r"</?(?:action|answer|response)>|<\|\w{1,20}\|>|[<>/]", re.IGNORECASE)
_AROUND = " \t\r\n\v\f\xa0.,;:!\"'`*_#~|()[]{}-–—“”‘’«»。！"


def parse_action(text: str, actions: Sequence[str], parts: Sequence[str] = (), *, as_json: bool = False) -> str | None:
    """The action that a reply chose.

    1. Thoughts, in the markers of any model, are not read, and neither is the content of `parts`. A thought ends at the first
       closing marker, or at the end of the reply. If the first marker is a closing one, the reply starts inside a thought.
    2. The first choice in the remaining text counts: the content of `<action>…</action>`, or with `as_json` the string "action"
       of an object. Objects may have raw newlines, trailing commas and text around them.
    3. Without such a choice the whole remaining text is the choice, so that a bare name is read.
    4. A choice is an action if it is just an available name. Case, whitespace, quotation marks, punctuation other than a question
       mark, and angle brackets around the name do not matter: `Down.`, `**down**`, `<Down>` and `<Down>Down</Down>` are Down. A
       sentence with a name, two different names, and a name that is not available are none.

    A reply that is cut inside thoughts which the prompt opened must start with their opening marker.

    >>> parse_action("<think>Left? <action>Left</action></think><action> right </action>", ["Left", "Right"])
    'Right'
    >>> parse_action('Well: {"thought": "Is it left?", "action": "Right",}', ["Left", "Right"], as_json=True)
    'Right'
    >>> parse_action("I go right.", ["Left", "Right"]) is None
    True
    """
    _, answer = split_thoughts(text, parts)
    if as_json:
        choice = json_strings(answer).get("action")
    else:
        begin = _BEGIN.search(answer)
        end = _END.search(answer, begin.end()) if begin else None  # two searches, since one pattern is slow on many opening tags
        choice = answer[begin.end() : end.start()] if begin and end else None
    return _named_action(answer if choice is None else choice, actions)


def split_thoughts(text: str, parts: Sequence[str] = ()) -> tuple[list[str], str]:
    """The thoughts in a reply, and the text outside them. Arguments as for `parse_action`.

    >>> split_thoughts("Left or right?</think>Right")
    (['Left or right?'], 'Right')
    """
    thoughts: list[str] = []
    outside: list[str] = []
    for markers in [MARKER, *(re.compile(f"(?P<open><{part}>)|</{part}>", re.IGNORECASE) for part in map(re.escape, parts))]:
        outside, inside, start = [], False, 0
        for number, marker in enumerate(markers.finditer(text)):
            opens = marker["open"] is not None
            if inside and opens:
                continue
            piece = text[start : marker.start()]
            (thoughts if inside or (number == 0 and not opens) else outside).append(piece)
            inside, start = opens, marker.end()
        (thoughts if inside else outside).append(text[start:])
        text = "\n".join(outside)
    return thoughts, text


def json_strings(text: str) -> dict[str, str]:
    """The first string of each name in the JSON objects of a text; those inside nested objects are left out.

    >>> json_strings('Well: {"action": "Left", "why": {"action": "Up"}} {"action": "Right"}')
    {'action': 'Left'}
    """
    found: dict[str, str] = {}
    depth = 0
    for token in _JSON.finditer(text, max(0, text.find("{"))):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 1 and token["key"] is not None:
            value = token["value"]
            with suppress(ValueError):  # an escape that JSON does not have
                value = str(json.loads(f'"{value}"', strict=False))
            found.setdefault(token["key"].casefold(), value)
    return found


def _named_action(choice: str, actions: Sequence[str]) -> str | None:
    """The available action that is all of a choice, or None."""
    name = choice.strip().casefold()
    if exact := [action for action in actions if action.casefold() == name]:
        return exact[0]
    names = {piece.strip(_AROUND).casefold() for piece in _FRAME.split(choice)} - {""}
    named = [action for action in actions if {action.strip(_AROUND).casefold()} == names]
    return named[0] if len(named) == 1 else None
