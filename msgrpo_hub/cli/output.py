"""Shared output: data on standard output, `--json`, and the next command on standard error."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from msgrpo_hub.errors import plain


def add_json(parser: argparse._ActionsContainer, text: str = "print JSON instead of text") -> None:
    """`--json`, the flag of every command that prints data."""
    parser.add_argument("--json", action="store_true", help=text)


def show(data: Callable[[], Any], text: Callable[[], str], *, as_json: bool, sort_keys: bool = False) -> None:
    """Prints data as JSON or as text; only the one that is printed is computed."""
    if as_json:
        print(json.dumps(data(), indent=2, sort_keys=sort_keys))
    else:
        print_text(text())


def print_text(text: str, *, error: bool = False) -> None:
    """Prints lines from elsewhere without control characters."""
    print("\n".join(map(plain, text.split("\n"))), file=sys.stderr if error else sys.stdout)


def print_next(*commands: str) -> None:
    """The commands to try next, one a line."""
    print("\nNext: " + "\n      ".join(commands), file=sys.stderr)
