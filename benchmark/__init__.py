"""The benchmark: `python -m benchmark run|report|check|freeze`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from msgrpo_hub.errors import UserError


def ended(main: Callable[[list[str]], None]) -> None:
    """Runs `main` with the command line's arguments. Bad input is one line, with exit code 2."""
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
