"""Errors the user can fix: one line with the given value, the expected value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. The command line prints it as one line and exits with status 2.

    >>> print(UserError("the template says 'Look:\\x1b[2J'\\nand more"))
    the template says 'Look:?[2J' and more
    """

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))


def plain(text: str) -> str:
    """A text as one line, without control characters; foreign text may contain them."""
    return "".join(character if character.isprintable() else " " if character.isspace() else "?" for character in text)


_LONGEST = 200
"""Maximum characters of a value in a message."""


def shown(value: object) -> str:
    """A value for a message: on one line and truncated.

    >>> shown("two\\nlines"), len(shown("9" * 400))
    ("'two\\\\nlines'", 200)
    """
    try:
        text = repr(value)
    except ValueError:  # more digits than Python converts
        text = "a number of thousands of digits"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def unknown(kind: str, given: str, known: Iterable[str], remedy: str = "", further: Iterable[str] = ()) -> UserError:
    """The error for an unknown name, with the nearest known name. Names in `further` are suggested but not listed.

    >>> print(unknown("game", "Snake-Standart-v1", ["Snake-Standard-v1", "Snake-Solo-v1"]))
    unknown game 'Snake-Standart-v1': did you mean 'Snake-Standard-v1'?
    >>> print(unknown("preset", "zzz", ["quickstart", "paper-snake"]))
    unknown preset 'zzz': expected one of quickstart, paper-snake
    """
    options = list(known)
    near = difflib.get_close_matches(given, [*options, *further], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(options)}"
    return UserError(f"unknown {kind} {shown(given)}: {hint}" + (f" {remedy}" if remedy else ""))
