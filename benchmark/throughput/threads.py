"""From which size on a second thread pays: `python -m benchmark.throughput.threads OUTPUT.json`.

One update of models of several sizes, with each number of threads in turn, several times over. The fastest of the repetitions
counts, since other processes can only add to it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.throughput.cases import Case, make_trainer
from benchmark.throughput.rows import Key, ResultFile, Row
from msgrpo_hub.models.threads import on_threads

CASES = {
    "pocket": Case(game="FrozenLake-NotSlippery-v1", groups=4, group_size=16, drawn=8),
    **{
        f"width-{width}": Case(
            game="FrozenLake-NotSlippery-v1", model=f"width-{width}", reply=8, groups=1, group_size=8, drawn=4, horizon=4
        )
        for width in (128, 256, 512, 1024, 1536)
    },
}
"""Model → the update that is timed."""


def measure(label: str, models: Path, threads: Sequence[int], repeats: int) -> Row:
    """The seconds of an update, by the number of threads, and the size of the model."""
    trainer = make_trainer(CASES[label], models)
    seconds: dict[int, list[float]] = {count: [] for count in threads}
    trainer.update(1)  # to warm up
    for _ in range(repeats):
        for count in threads:
            with on_threads(count):
                began = time.perf_counter()
                trainer.update(1)
                seconds[count].append(time.perf_counter() - began)
    fastest = {str(count): round(min(each), 4) for count, each in seconds.items()}
    model: Any = trainer.model
    return {"parameters": model.num_parameters(), "repeats": repeats, "seconds": fastest}


def main() -> None:
    """Measures the missing rows of the file and prints all."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.threads", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "msgrpo-throughput")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), metavar="MODEL")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    file = ResultFile(options.output)

    def row(key: Key) -> Row:
        return measure(key[0], options.models, options.threads, options.repeats)

    file.measure([(name,) for name in options.only], row)
    for found in file.rows:
        times = ", ".join(f"{seconds:.2f} s on {count}" for count, seconds in found["seconds"].items())
        print(f"{found['key'][0]}: {found['parameters'] / 1e6:.1f} M parameters, {times}")


if __name__ == "__main__":
    main()
