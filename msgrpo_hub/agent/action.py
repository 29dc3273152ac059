"""The action parser (the ψ of the paper's LAP): reply text → action, or None (⊥) where none can be read."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BEGIN, _END = (re.compile(tag, re.IGNORECASE) for tag in ("<action>", "</action>"))


def parse_action(text: str, actions: Sequence[str]) -> str | None:
    """The first `<action>…</action>` after the thinking, stripped and case-folded, if it names an available action.

    >>> parse_action("<think>Left? <action>Left</action></think><action> right </action>", ["Left", "Right"])
    'Right'
    >>> parse_action("I go right.", ["Left", "Right"]) is None
    True
    """
    answer = text.rpartition("</think>")[2]
    if "<think>" in answer:
        return None  # still thinking when the reply ended
    begin = _BEGIN.search(answer)
    end = _END.search(answer, begin.end()) if begin else None  # two searches: one pattern for both is slow on many beginnings
    if begin is None or end is None:
        return None
    wanted = answer[begin.end() : end.start()].strip().casefold()
    return next((action for action in actions if action.casefold() == wanted), None)
