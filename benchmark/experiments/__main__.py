"""`python -m benchmark.experiments list|run|again|figures|check [NAME…]`, from the root of the clone.

Without a name, every experiment, but for again.

list      the experiments, and how many of their units have run
run       runs the units that have not run yet, and then makes the page; may be stopped and started again at any time, and
          several processes share the units of an experiment; NAME/UNITS runs some units: `run 'main_result/snake-seed*'`
again     the same with units that have run: `again main_result/snake-seed0` trains that one anew, and its row is replaced
figures   makes every page and every figure from the raw results
check     fails if one of them is stale
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

import torch

from benchmark.command import ended
from benchmark.experiments import page, rows
from benchmark.experiments.experiment import HERE, load, names
from msgrpo_hub.errors import UserError, unknown


def main(arguments: list[str]) -> None:
    """Runs the command."""
    command, *given = arguments or [""]
    if command in ("-h", "--help"):
        print(__doc__)
        return
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS)
    if command == "again" and not given:
        raise UserError("again without a name: expected what is to be run again, such as main_result/snake-seed0")
    for name in given or names():
        COMMANDS[command](name)


def run(named: str, *, again: bool = False) -> None:
    torch.set_num_threads(1)  # so that processor time does not depend on the number of cores
    name, _, pattern = named.partition("/")
    experiment = load(name)
    units = {unit: settings for unit, settings in experiment.units.items() if fnmatchcase(unit, pattern or "*")}
    if not units:
        raise unknown(f"unit of {name}", pattern, experiment.units)
    rows.run(name, replace(experiment, units=units), HERE / name, rows.SCRATCH / name, again=again)
    figures(name)


def run_again(named: str) -> None:
    run(named, again=True)


def figures(name: str) -> None:
    page.write(name, load(name), HERE / name)


def check(name: str) -> None:
    page.check(name, load(name), HERE / name)


def show(name: str) -> None:
    experiment = load(name)
    print(f"{name}: {len(rows.read_rows(experiment, HERE / name))} of {len(experiment.units)} units. {experiment.question}")


COMMANDS: dict[str, Callable[[str], None]] = {"list": show, "run": run, "again": run_again, "figures": figures, "check": check}

if __name__ == "__main__":
    ended(main)
