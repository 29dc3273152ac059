"""What a replay leaves open, in one line for below a table of replayed runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.verify import unchecked

ALWAYS = "who gave the replies"
"""What no replay can show, whatever the files hold."""


def not_checked(results: Sequence[Result]) -> str:
    """What could not be checked of some runs, such as `… not checked: who gave the replies; tokens (4 runs)`."""
    of_runs = [{message.partition(" not checked")[0] for message in unchecked(result)} for result in results]
    found = Counter(what for of_run in of_runs for what in of_run)
    rest = "".join(f"; {what} ({runs} run{'s' if runs > 1 else ''})" for what, runs in sorted(found.items()))
    return f"Replayed: actions, rewards and scores follow from the replies. Not checked: {ALWAYS}{rest}."
