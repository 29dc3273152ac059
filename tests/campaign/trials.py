"""One trial: a victim is killed, once or twice, at moments that a seed draws; it goes on to its end and is compared."""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgrpo_hub.storage.files import write_atomically
from tests.campaign.victims import Victim
from tests.long import PACKAGES, package

SOONER = 0.8
"""A victim that ended before its kill is killed sooner by this factor the next time."""

Trial = dict[str, Any]
"""seed, victim, kills (share of the victim's length, seconds, what was safe), unequal (names; empty if all is equal)."""


def trial(victim: Victim, seed: int, place: Path) -> Trial:
    """Kills a victim and lets it go on. What it leaves stays in `place` if it is unequal.

    Args:
        victim: what is killed.
        seed: decides when, as shares of the victim's length, and whether it is killed again while it goes on.
        place: its folder.
    """
    rng = random.Random(seed)
    moments = [rng.random() for _ in range(rng.choice((1, 1, 2)))]
    kills: list[dict[str, Any]] = []
    torn: list[str] = []
    while not kills:
        victim.prepare(place)
        for share in moments:
            if seconds := killed_after(victim, share, place):
                kills.append({"share": round(share, 4), "seconds": round(seconds, 3), "safe": victim.safe(place)})
                torn += [f"{name}, after the kill" for name in victim.torn(place)]
        moments = [SOONER * share for share in moments]
    ended = victim.start(place).wait()
    failed = [f"exit {ended.code}: {ended.said[-1] if ended.said else ''}"] if ended.code else []
    unequal = [*torn, *failed, *([] if failed else victim.unequal(place))]
    if not unequal:
        shutil.rmtree(place, ignore_errors=True)
    return {"seed": seed, "victim": victim.name, "kills": kills, "unequal": unequal}


def killed_after(victim: Victim, share: float, place: Path) -> float:
    """Starts a victim and kills it after a share of its length. Returns the seconds; 0 if it ended before."""
    running, began = victim.start(place), time.monotonic()
    time.sleep(share * victim.seconds)
    running.send(signal.SIGKILL)
    seconds = time.monotonic() - began
    return seconds if running.wait().code == -signal.SIGKILL else 0.0


def told(trial: Trial) -> str:
    """A trial on one line.

    >>> told({"seed": 3, "victim": "training", "kills": [{"share": 0.5, "seconds": 0.61, "safe": 2}], "unequal": []})
    'seed 3: training, killed after 0.61 s (2 safe): equal'
    """
    kills = " and ".join(f"{kill['seconds']:.2f} s ({kill['safe']} safe)" for kill in trial["kills"])
    outcome = f"UNEQUAL: {', '.join(trial['unequal'])}" if trial["unequal"] else "equal"
    return f"seed {trial['seed']}: {trial['victim']}, killed after {kills}: {outcome}"


class Record:
    """The file with the trials, written after each one. Trials of another version of the package are not kept."""

    def __init__(self, path: Path, command: str) -> None:
        self.path, self.trials = path, []
        self.head: dict[str, Any] = {"command": command, "msgrpo_hub": package()}
        if path.exists():
            known = json.loads(path.read_text())
            self.trials: list[Trial] = known["trials"] if known["msgrpo_hub"] == self.head["msgrpo_hub"] else []

    @property
    def kills(self) -> int:
        return sum(len(trial["kills"]) for trial in self.trials)

    def add(self, trial: Trial) -> None:
        self.trials.append(trial)
        unequal = [trial["seed"] for trial in self.trials if trial["unequal"]]
        head = self.head | {
            "date": datetime.now(UTC).date().isoformat(),
            "python": platform.python_version(),
            "packages": {name: version(name) for name in PACKAGES},
            "cores": os.cpu_count(),
            "kills": self.kills,
            "equal": len(self.trials) - len(unequal),
            "unequal": unequal,
        }
        lines = ",\n".join(f"  {json.dumps(trial)}" for trial in self.trials)
        text = f'{json.dumps(head, indent=1)[:-2]},\n "trials": [\n{lines}\n ]\n}}\n'
        write_atomically(self.path, lambda beside: beside.write_text(text))


def campaign(kills: int, victim_of: Callable[[int], Victim], record: Record, folder: Path) -> None:
    """Trials of seeds 0, 1, 2, … until there are so many kills. Those on record are not done again.

    Args:
        kills: how many, over all trials.
        victim_of: seed → its victim.
        record: gets the trials.
        folder: for the places; those of unequal trials stay.
    """
    done, seed = {trial["seed"] for trial in record.trials}, 0
    while record.kills < kills:
        if seed not in done:
            record.add(trial(victim_of(seed), seed, folder / f"seed-{seed}"))
            print(told(record.trials[-1]), flush=True)
        seed += 1
