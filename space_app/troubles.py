"""Which input of a tab an error is about, so that the page can show it there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import players
import validation

from msgrpo_hub.errors import UserError

CHECKS: dict[str, Callable[[Any], object]] = {
    "Game": validation.game,
    "Board": validation.number,
    "Player": players.check_name,
    "Player A": players.check_name,
    "Player B": players.check_name,
    "Against": players.check_name,
    "Next to": lambda name: name and players.check_name(name),
}
"""Label of an input → what raises `UserError` for a value that is wrong by itself."""


def field_of(message: str, given: Mapping[str, Any]) -> str:
    """The label of the input that an error is about; empty if it is about none of them alone.

    Args:
        message: the error.
        given: label → value of the tab's inputs.

    >>> field_of("unknown player 'x'", {"Game": "Snake-Solo-v1", "Player": "x"})
    'Player'
    >>> field_of("12 requests wait for a model", {"Game": "Snake-Solo-v1", "Player": "pocket"})
    ''
    """
    wrong = (label for label, value in given.items() if label in CHECKS and _is_wrong(CHECKS[label], value))
    places = sorted((_place(message, value), label) for label, value in given.items())
    quoted = (label for place, label in places if place >= 0)
    named = (label for label in given if message.startswith(label.lower()))
    return next((label for labels in (wrong, quoted, named) for label in labels), "")


def _place(message: str, value: Any) -> int:
    """Where a message first quotes a name or a part of it; −1 if nowhere."""
    parts = re.split("[+@]", value) if isinstance(value, str) else []
    return min((message.index(f"'{part}'") for part in parts if f"'{part}'" in message), default=-1)


def _is_wrong(check: Callable[[Any], object], value: Any) -> bool:
    try:
        check(value)
    except UserError:
        return True
    return False
