"""How the commands of the benchmark end."""

from __future__ import annotations

import sys
from collections.abc import Callable

from msgrpo_hub.errors import UserError


def ended(main: Callable[[list[str]], None]) -> None:
    """Runs it with the arguments of the command line; bad input ends in one line, with exit code 2."""
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
