"""`python -m tests.campaign --kills 100` kills commands at random moments and records the trials in `kills.json` beside it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from tests.campaign.victims import PATIENCE, Stage, Victim
from tests.long import PACKAGES, package

RESULTS = Path(__file__).with_name("kills.json")
SOONER = 0.8
"""If a victim ended before its kill, the next kill comes sooner by this factor."""

Trial = dict[str, Any]
"""seed, victim, kills (share of the victim's length, seconds, finished parts), unequal (names; empty if all is equal)."""


def trial(victim: Victim, seed: int, place: Path) -> Trial:
    """Kills a victim at moments that the seed gives, repeats its command, and compares. Unequal files stay in `place`."""
    rng = random.Random(seed)
    moments = [rng.random() for _ in range(rng.choice((1, 1, 2)))]
    kills: list[dict[str, Any]] = []
    orphans: list[psutil.Process] = []
    torn: list[str] = []
    while not kills:
        victim.prepare(place)
        for share in moments:
            running, began = victim.start(place), time.monotonic()
            time.sleep(share * victim.seconds)
            with contextlib.suppress(psutil.NoSuchProcess, AttributeError):  # of two processes, the second may live on
                orphans = psutil.Process(running.pid).children(recursive=True)
            running.send(signal.SIGKILL)
            seconds = time.monotonic() - began
            if running.wait().code == -signal.SIGKILL:  # else it ended before
                _, alive = psutil.wait_procs(orphans, timeout=PATIENCE)
                torn += [f"an orphan that lives on: {process.name()}" for process in alive]
                kills.append({"share": round(share, 4), "seconds": round(seconds, 3), "safe": victim.safe(place)})
                torn += [f"{name}, after the kill" for name in victim.torn(place)]
        moments = [SOONER * share for share in moments]
    ended = victim.start(place).wait()
    failed = [f"exit {ended.code}: {ended.said[-1] if ended.said else ''}"] if ended.code else victim.unequal(place)
    if not (unequal := [*torn, *failed]):
        shutil.rmtree(place, ignore_errors=True)
    return {"seed": seed, "victim": victim.name, "kills": kills, "unequal": unequal}


def told(trial: Trial) -> str:
    """A trial on one line.

    >>> told({"seed": 3, "victim": "training", "kills": [{"share": 0.5, "seconds": 0.61, "safe": 2}], "unequal": []})
    'seed 3: training, killed after 0.61 s (2 safe): equal'
    """
    kills = " and ".join(f"{kill['seconds']:.2f} s ({kill['safe']} safe)" for kill in trial["kills"])
    outcome = f"UNEQUAL: {', '.join(trial['unequal'])}" if trial["unequal"] else "equal"
    return f"seed {trial['seed']}: {trial['victim']}, killed after {kills}: {outcome}"


def campaign(kills: int, victim_of: Callable[[int], Victim], path: Path, folder: Path, command: str) -> list[Trial]:
    """Trials of seeds 0, 1, 2, … until there are so many kills, written to a file. Unequal trials leave files in `folder`."""
    trials: list[Trial] = []
    while sum(len(trial["kills"]) for trial in trials) < kills:
        seed = len(trials)
        trials.append(trial(victim_of(seed), seed, folder / f"seed-{seed}"))
        print(told(trials[-1]), flush=True)
    unequal = [trial["seed"] for trial in trials if trial["unequal"]]
    head = {
        "command": command,
        "msgrpo_hub": package(),
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "cores": os.cpu_count(),
        "kills": sum(len(trial["kills"]) for trial in trials),
        "equal": len(trials) - len(unequal),
        "unequal": unequal,
    }
    lines = ",\n".join(f"  {json.dumps(trial)}" for trial in trials)
    path.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "trials": [\n{lines}\n ]\n}}\n')
    return trials


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="Kills commands at random moments.")
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--kills", type=int, help="number of kills over all seeds")
    either.add_argument("--seed", type=int, help="repeat one trial, without a record")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    stage = Stage(folder)
    try:
        if options.kills is None:
            done = [trial(stage.of_seed(options.seed), options.seed, folder / f"seed-{options.seed}")]
            print(told(done[0]))
        else:
            done = campaign(options.kills, stage.of_seed, RESULTS, folder, f"python -m tests.campaign --kills {options.kills}")
    finally:
        stage.stop()
    unequal = [str(trial["seed"]) for trial in done if trial["unequal"]]
    print(f"{len(done) - len(unequal)} equal, {len(unequal)} unequal" + (f": seeds {', '.join(unequal)}" if unequal else ""))
    print(f"their files: {folder}" if unequal else "", file=sys.stderr)
    return bool(unequal)


if __name__ == "__main__":
    sys.exit(main())
