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
    blocks = []
    for group in same_episodes([result for result in results if is_repeated(result)]):
        rows = [[short(result.player), *cells(result)] for result in group]
        table = aligned([["player", *columns(group[0])], *rows])
        blocks.append(noted(f"{group[0].task}   {played_on(group[0])}\n{table}"))
    return "\n\n".join([*blocks, COLUMNS]) if blocks else ""


def is_repeated(result: Result) -> bool:
    """Whether a run has figures of repeats: some board of it was played several times."""
    return bool(result.summary.get("repeated", {}).get("boards"))


def columns(result: Result) -> Row:
    """The names of the columns for a run with so many plays."""
    passes = [f"pass@{k}" for k in result.summary["repeated"]["pass_at"]]
    return ["run to run", *passes, "variance", "board", "chance", "sampling"]


def cells(result: Result) -> Row:
    """The figures of a run."""
    figures = result.summary["repeated"]
    passes = [with_interval(figure) for figure in figures["pass_at"].values()]
    return [f"{figures['run_to_run']['reward']:.3f}", *passes, *_parts(figures["variance"]["reward"])]


def _parts(variance: dict[str, float | None]) -> list[str]:
    """The variance, and its parts as shares of it."""
    board, within = variance["board"], variance["within"] or 0.0
    total = (board or 0.0) + within

    def share(part: float | None) -> str:
        return "–" if part is None or total <= 0 else f"{part / total:.0%}"

    together = variance["chance"] is None
    last = ["", f"{share(within)} together"] if together else [share(variance["chance"]), share(variance["sampling"])]
    return [f"{total:.3f}", share(board), *last]
