"""`msgrpo leaderboard`: published results, played again and in one table; and `msgrpo export`, the same for other systems."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgrpo_hub.hub.leaderboard import Leaderboard


def leaderboard_command(commands: Any) -> None:
    """Adds `leaderboard`."""
    parser = commands.add_parser("leaderboard", help="published results in one table, each run played again")
    _add_source(parser)
    parser.add_argument("--task", help="one task only")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--markdown", action="store_true", help="as Markdown")
    either.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_leaderboard)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="REPO", help="USER/NAME of a results dataset, or a folder that `msgrpo eval` has filled"
    )
    parser.add_argument("--revision", help="a branch, a commit, or refs/pr/N of a pull request; default: main")


def _leaderboard(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.tables import results_table, short
    from msgrpo_hub.hub.leaderboard import as_json, as_markdown, read_leaderboard

    board = read_leaderboard(options.source, revision=options.revision)
    shown = board.of_task(options.task) if options.task else board
    if options.json:
        print(json.dumps(as_json(shown), indent=2, sort_keys=True))
    elif options.markdown:
        print(as_markdown(shown, at=shown.commit))
    else:
        print(results_table(shown.results, lambda result: short(shown.name(result))))
    _tell(board)
    if board.commit:
        print("\nNext: msgrpo eval PLAYER --suite standard --output-dir runs/mine", file=sys.stderr)
        print(f"      msgrpo push results runs/mine {board.source} --create-pr", file=sys.stderr)
    else:
        print(f"\nNext: msgrpo push results {board.source} USER/NAME", file=sys.stderr)


def _tell(board: Leaderboard) -> None:
    """What was read, and what is not listed."""
    at = f" at {board.commit}" if board.commit else ""
    print(f"\n{board.source}{at}: {len(board.results)} runs, each played again", file=sys.stderr)
    for name, why in board.refused.items():
        print(f"not listed: {name}: {why}", file=sys.stderr)


def export_command(commands: Any) -> None:
    """Adds `export`."""
    parser = commands.add_parser(
        "export", help="published results for other systems: model-index, Every Eval Ever, .eval_results"
    )
    _add_source(parser)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="gets the files")
    parser.add_argument("--benchmark-id", metavar="REPO", help="a benchmark dataset that the Hub knows; for .eval_results only")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub.exports import write_exports
    from msgrpo_hub.hub.leaderboard import read_leaderboard

    board = read_leaderboard(options.source, revision=options.revision)
    written = write_exports(board, options.folder, retrieved=int(time.time()), benchmark_id=options.benchmark_id)
    print(json.dumps([str(path) for path in written], indent=2) if options.json else "\n".join(map(str, written)))
    _tell(board)
    models = [path.parent for path in written if path.name == "model-index.yaml"]
    what = f"hf upload USER/MODEL {models[0]}" if options.benchmark_id else f"copy {written[0]} into the card of the model"
    print(f"\nNext: {what}", file=sys.stderr)
