"""The action parser (the ψ of the paper's LAP): reply text → action, or None (⊥) where none can be read."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)


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
    found = _ACTION.search(answer)
    if found is None:
        return None
    wanted = found[1].strip().casefold()
    return next((action for action in actions if action.casefold() == wanted), None)
