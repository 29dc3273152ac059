"""`python -m benchmark.experiments list|run|again|figures|check [NAME…]`, from the root of the clone.

Without a name, a command covers every experiment; `again` needs one.

list      lists the experiments, and how many of their units have run
run       runs the missing units, then writes the page; can be stopped and started again at any time, and several processes
          share the units of an experiment; NAME/UNITS runs some units: `run 'main_result/snake-seed*'`
again     runs units again and replaces their rows: `again main_result/snake-seed0`
figures   writes every page and figure from the stored rows
check     fails if a page or figure is stale
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch

from benchmark import ended
from benchmark.experiments.experiment import check_page, load, names, read_rows, run, write_page
from msgrpo_hub.errors import UserError, unknown

COMMANDS = ("list", "run", "again", "figures", "check")


def main(arguments: list[str]) -> None:
    """Runs the command."""
    command, *given = arguments or [""]
    if command in ("-h", "--help"):
        print(__doc__)
        return
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS)
    if command == "again" and not given:
        raise UserError("again without a name: expected the units to run again, such as main_result/snake-seed0")
    torch.set_num_threads(1)  # processor time then does not depend on the number of cores
    for named in given or names():
        name, _, pattern = named.partition("/")
        experiment = load(name)
        if command == "list":
            print(f"{name}: {len(read_rows(experiment))} of {len(experiment.units)} units. {experiment.question}")
        elif command == "check":
            check_page(experiment)
        else:
            if command != "figures":
                units = {unit: settings for unit, settings in experiment.units.items() if fnmatchcase(unit, pattern or "*")}
                if not units:
                    raise unknown(f"unit of {name}", pattern, experiment.units)
                run(experiment, units, again=command == "again")
            write_page(experiment)


if __name__ == "__main__":
    ended(main)
