"""The figures of repeats as text for the terminal: a table per task whose boards were played several times."""

from __future__ import annotations

from collections.abc import Sequence

from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.tables import Row, aligned, noted, played_on, same_episodes, short, with_interval

COLUMNS = (
    "run to run: standard deviation of the mean reward when the same boards are played again\n"
    "variance: of a single reward, with the shares of the board, of the game's chance and of the player's sampling;\n"
    "the last two have one share where both vary from play to play"
)
"""What the columns mean."""


def repeat_table(results: Sequence[Result]) -> str:
    """One block per task, a line per player; empty if no board was played several times."""
    repeated = [result for result in results if result.summary.get("repeated", {}).get("boards")]
    blocks = [_block(group) for group in same_episodes(repeated)]
    return "\n\n".join([*blocks, COLUMNS]) if blocks else ""


def _block(results: Sequence[Result]) -> str:
    ks = list(results[0].summary["repeated"]["pass_at"])
    head = ["player", "run to run", *(f"pass@{k}" for k in ks), "variance", "board", "chance", "sampling"]
    title = f"{results[0].task}   {played_on(results[0])}"
    return noted(f"{title}\n{aligned([head, *map(_row, results)])}")


def _row(result: Result) -> Row:
    figures = result.summary["repeated"]
    passes = [with_interval(figure) for figure in figures["pass_at"].values()]
    return [short(result.player), f"{figures['run_to_run']['reward']:.3f}", *passes, *_parts(figures["variance"]["reward"])]


def _parts(variance: dict[str, float | None]) -> list[str]:
    """The variance, and its parts as shares of it."""
    board, within = variance["board"], variance["within"] or 0.0
    total = (board or 0.0) + within

    def share(part: float | None) -> str:
        return "–" if part is None or total <= 0 else f"{part / total:.0%}"

    together = variance["chance"] is None
    last = ["", f"{share(within)} together"] if together else [share(variance["chance"]), share(variance["sampling"])]
    return [f"{total:.3f}", share(board), *last]
