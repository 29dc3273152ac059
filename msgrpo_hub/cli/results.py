"""`msgrpo leaderboard` shows published results after a replay of every run; `msgrpo export` writes them for model cards."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from msgrpo_hub.cli.flags import read_path
from msgrpo_hub.cli.output import add_json, print_json, print_next, print_text

if TYPE_CHECKING:
    from msgrpo_hub.hub.leaderboard import Leaderboard


def add_leaderboard(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    parser.add_argument("--task", help="show this task only")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--markdown", action="store_true", help="print Markdown instead of text")
    add_json(either)
    parser.set_defaults(run=_leaderboard)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="REPO", help="a results dataset on the Hub, USER/NAME, or a folder filled by `msgrpo eval`"
    )
    parser.add_argument("--revision", help="a branch, a commit, or refs/pr/N for a pull request. Default: main")


def _leaderboard(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.semantic import semantic_table
    from msgrpo_hub.evaluation.tables import eval_command, results_table, short
    from msgrpo_hub.evaluation.verify import REPLAYED
    from msgrpo_hub.hub.leaderboard import as_json, as_markdown, read_leaderboard

    board = read_leaderboard(options.source, revision=options.revision)
    shown = board.of_task(options.task) if options.task else board
    if options.json:
        print_json(as_json(shown), sort_keys=True)
    elif options.markdown:
        print_text(as_markdown(shown, at=shown.commit))
    else:
        tables = [make(shown.results, lambda result: short(shown.name(result))) for make in (results_table, semantic_table)]
        print_text("\n\n".join(filter(None, [*tables, REPLAYED if shown.results else ""])))
    _report_source(board)
    if board.commit:
        submit = f"msgrpo push results runs/mine {board.source} --create-pr"
        print_next(eval_command(board.results, "runs/mine"), submit)
    else:
        print_next(f"msgrpo push results {shlex.quote(board.source)} USER/NAME")


def _report_source(board: Leaderboard) -> None:
    """Prints the source, and the runs that are not listed with the reasons."""
    at = f" at {board.commit}" if board.commit else ""
    print(f"\n{board.source}{at}: {len(board.results)} runs, each replayed", file=sys.stderr)
    for name, why in board.refused.items():
        print_text(f"not listed: {name}: {why}", error=True)


def add_export(parser: argparse.ArgumentParser) -> None:
    parser.description = "Replay published results and write them for model cards on the Hub: model-index, and .eval_results."
    _add_source(parser)
    parser.add_argument("folder", type=read_path, metavar="FOLDER", help="gets the files")
    parser.add_argument(
        "--benchmark-id", metavar="REPO", help="the benchmark dataset as the Hub knows it; needed for .eval_results only"
    )
    add_json(parser, "print the paths as JSON")
    parser.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub.exports import write_exports
    from msgrpo_hub.hub.leaderboard import read_leaderboard

    board = read_leaderboard(options.source, revision=options.revision)
    written = write_exports(board, options.folder, benchmark_id=options.benchmark_id)
    if options.json:
        print_json([str(path) for path in written])
    else:
        print("\n".join(map(str, written)))
    _report_source(board)
    models = [path.parent for path in written if path.name == "model-index.yaml"]
    upload = options.benchmark_id and f"hf upload USER/MODEL {shlex.quote(str(models[0]))}"
    print_next(upload or f"copy {written[0]} into the card of the model")
