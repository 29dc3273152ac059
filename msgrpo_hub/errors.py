"""Errors the user can fix: one line that says what was given, what was expected and what to do."""

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
    """A text, perhaps a foreign one, as one line without characters that steer a terminal."""
    return "".join(character if character.isprintable() else " " if character.isspace() else "?" for character in text)


def unknown(kind: str, given: str, known: Iterable[str], remedy: str = "") -> UserError:
    """The error for a name that is not in a list, with the nearest known names.

    >>> print(unknown("game", "Snake-Standart-v1", ["Snake-Standard-v1", "Snake-Solo-v1"]))
    unknown game 'Snake-Standart-v1': did you mean 'Snake-Standard-v1'?
    >>> print(unknown("preset", "zzz", ["quickstart", "paper-snake"]))
    unknown preset 'zzz': expected one of quickstart, paper-snake
    """
    options = list(known)
    near = difflib.get_close_matches(given, options, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(options)}"
    return UserError(f"unknown {kind} {given!r}: {hint}" + (f" {remedy}" if remedy else ""))
