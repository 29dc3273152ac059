"""`msgrpo curves`: the learning curves of several runs together."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgrpo_hub.cli.flags import read_path
from msgrpo_hub.cli.output import add_json, print_json, print_next, print_text
from msgrpo_hub.errors import UserError

if TYPE_CHECKING:
    from msgrpo_hub.training.seeds import Variant

FILE = "seed-curves.png"
KINDS = ("png", "svg")


def add_curves(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draw runs together: each training seed's line, and the mean of each variant with a 95 % interval over its seeds. A "
        "variant is a folder of `msgrpo train --seeds`, or runs whose settings differ in nothing but the seed."
    )
    parser.add_argument("folders", type=read_path, nargs="+", metavar="FOLDER", help="a run, or a folder of runs at any depth")
    parser.add_argument("--x", choices=("updates", "episodes", "seconds"), default="updates", help="the x axis. Default: updates")
    parser.add_argument(
        "--output", type=read_path, metavar="FILE", help=f"the figure, .png or .svg. Default: {FILE} in the folder of all runs"
    )
    add_json(parser, "print the figures over the seeds as JSON")
    parser.set_defaults(run=_curves)


def _curves(options: argparse.Namespace) -> None:
    from msgrpo_hub.training.seeds import data_of, find_variants, seed_table

    variants = find_variants(options.folders)
    output = options.output or Path(os.path.commonpath([folder.resolve() for folder in options.folders])) / FILE
    kind = output.suffix.removeprefix(".").lower()
    if kind not in KINDS or output.is_dir() or not output.parent.is_dir():
        raise UserError(f"--output {str(output)!r}: expected the name of a file in a folder that exists, ending in .png or .svg")
    _draw(variants, options.x, output, kind)
    if options.json:
        print_json({"figure": str(output), "variants": [data_of(variant) for variant in variants]})
    else:
        print_text(f"{seed_table(variants)}\n\n{output}".strip())
    print_next(f"open {shlex.quote(str(output))}")


def _draw(variants: Sequence[Variant], x: str, output: Path, kind: str) -> None:
    from msgrpo_hub.rendering.seed_curves import has_curves, plot_seed_curves
    from msgrpo_hub.storage.files import disk_errors, write_atomically
    from msgrpo_hub.training.seeds import X_AXES, seed_lines

    lines = [seed_lines(variant, x) for variant in variants]
    if not has_curves(lines):
        raise UserError(
            "no update is finished in any of these runs, beyond those that are taught: nothing to draw; wait for the first"
        )
    draw = partial(plot_seed_curves, lines, x_label=X_AXES[x][0], kind=kind)
    with disk_errors(output.parent, lambda: "the runs are untouched"):
        write_atomically(output, draw)
