"""`msgrpo leaderboard` and `export` read published results after a replay of every run; `msgrpo curves` draws runs together."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from msgrpo_hub.cli.flags import add_json, print_next, show
from msgrpo_hub.errors import UserError, plain

if TYPE_CHECKING:
    from msgrpo_hub.hub.leaderboard import Leaderboard


def add_leaderboard(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    add_json(parser)


def _add_source(parser: argparse.ArgumentParser) -> None:
    text = "a results dataset on the Hub, USER/NAME, or a folder filled by `msgrpo eval`"
    parser.add_argument("source", metavar="REPO", help=text)
    parser.add_argument("--revision", help="a branch, a commit, or refs/pr/N for a pull request. Default: main")


def run_leaderboard(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.semantic import semantic_table
    from msgrpo_hub.evaluation.tables import eval_command, results_table, short
    from msgrpo_hub.evaluation.verify import REPLAYED
    from msgrpo_hub.hub.leaderboard import as_json, read_leaderboard

    board = read_leaderboard(options.source, revision=options.revision)
    tables = [make(board.results, lambda result: short(board.name(result))) for make in (results_table, semantic_table)]
    text = "\n\n".join(filter(None, [*tables, REPLAYED if board.results else ""]))
    show(as_json(board), text, as_json=options.json, sort_keys=True)
    _report_source(board)
    if board.commit:
        submit = f"msgrpo push results runs/mine {board.source} --create-pr"
        print_next(*eval_command(board.results, "runs/mine").splitlines(), submit)
    else:
        print_next(f"msgrpo push results {shlex.quote(board.source)} USER/NAME")


def _report_source(board: Leaderboard) -> None:
    """Prints the source, and the runs that are not listed with the reasons."""
    at = f" at {board.commit}" if board.commit else ""
    print(f"\n{board.source}{at}: {len(board.results)} runs, each replayed", file=sys.stderr)
    for name, why in board.refused.items():
        print(plain(f"not listed: {name}: {why}"), file=sys.stderr)


def add_export(parser: argparse.ArgumentParser) -> None:
    """Replay published results and write them for model cards on the Hub: model-index, and .eval_results."""
    _add_source(parser)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="gets the files")
    text = "the benchmark dataset as the Hub knows it; needed for .eval_results only"
    parser.add_argument("--benchmark-id", metavar="REPO", help=text)
    add_json(parser, "print the paths as JSON")


def run_export(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub.exports import write_exports
    from msgrpo_hub.hub.leaderboard import read_leaderboard

    board = read_leaderboard(options.source, revision=options.revision)
    written = write_exports(board, options.folder, benchmark_id=options.benchmark_id)
    show([str(path) for path in written], "\n".join(map(str, written)), as_json=options.json)
    _report_source(board)
    models = [path.parent for path in written if path.name == "model-index.yaml"]
    upload = options.benchmark_id and f"hf upload USER/MODEL {shlex.quote(str(models[0]))}"
    print_next(upload or f"copy {written[0]} into the card of the model")


def add_curves(parser: argparse.ArgumentParser) -> None:
    """Draw runs together: each training seed's line, and the mean of each variant with a 95 % interval over its seeds. A
    variant is a folder of `msgrpo train --seeds`, or one run."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a run, or a folder of runs at any depth")
    choices = ("updates", "episodes", "tokens", "processor-seconds", "seconds")
    parser.add_argument("--x", choices=choices, default="updates", help="the x axis. Default: updates")
    text = (
        "the figure, .png or .svg. Default: seed-curves.png in the common folder, or seed-curves-2.png if that exists, and so on"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help=text)
    add_json(parser, "print the figures over the seeds as JSON")


def run_curves(options: argparse.Namespace) -> None:
    from msgrpo_hub.rendering.seed_curves import plot_seed_curves
    from msgrpo_hub.storage.files import disk_errors, write_atomically
    from msgrpo_hub.training.seeds import X_AXES, data_of, find_variants, seed_lines, seed_table

    variants = find_variants(options.folders)
    above = Path(os.path.commonpath([folder.resolve() for folder in options.folders]))
    free = (path for number in count(1) if not (path := above / f"seed-curves{-number if number > 1 else ''}.png").exists())
    output = options.output or next(free)
    kind = output.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg") or output.is_dir() or not output.parent.is_dir():
        raise UserError(f"--output {str(output)!r}: expected the name of a file in a folder that exists, ending in .png or .svg")
    lines = [seed_lines(variant, options.x) for variant in variants]
    with disk_errors(output.parent, lambda: "the runs are untouched"):
        write_atomically(output, partial(plot_seed_curves, lines, x_label=X_AXES[options.x][0], kind=kind))
    data = {"figure": str(output), "variants": [data_of(variant) for variant in variants]}
    show(data, f"{seed_table(variants)}\n\n{output}".strip(), as_json=options.json)
    if options.x == "seconds":
        print(f"The x axis has {' '.join(X_AXES['seconds'][0].split())}", file=sys.stderr)
    print_next(f"open {shlex.quote(str(output))}")
