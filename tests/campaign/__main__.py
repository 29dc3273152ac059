"""`python -m tests.campaign --kills 100`: does the trials and writes them to `tests/campaign/kills.json`, which is committed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.campaign.stage import Stage
from tests.campaign.trials import Record, campaign, told, trial

RESULTS = Path(__file__).with_name("kills.json")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="Kills commands at random moments.")
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--kills", type=int, help="so many, over all seeds; what is on record is not done again")
    either.add_argument("--seed", type=int, help="repeat one trial, without a record")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    stage = Stage(folder)
    try:
        if options.kills is None:
            done = [trial(stage.of_seed(options.seed), options.seed, folder / f"seed-{options.seed}")]
            print(told(done[0]))
        else:
            record = Record(RESULTS, f"python -m tests.campaign --kills {options.kills}")
            campaign(options.kills, stage.of_seed, record, folder)
            done = record.trials
    finally:
        stage.stop()
    unequal = [str(trial["seed"]) for trial in done if trial["unequal"]]
    print(f"{len(done) - len(unequal)} equal, {len(unequal)} unequal" + (f": seeds {', '.join(unequal)}" if unequal else ""))
    print(f"what they left: {folder}" if unequal else "", file=sys.stderr)
    return bool(unequal)


if __name__ == "__main__":
    sys.exit(main())
