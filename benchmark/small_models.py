"""Small pretrained models on the paper's tasks, untrained and trained.

`python -m benchmark.small_models run [MODEL...]` plays the suite `paper` with the models of tests/real in their own type, and
with the scripted references, in order of cost. Stored runs are not played again. The results are archives in small_models/, as
those of results/. `store RUN` keeps the small files of a `msgrpo train` there, without its adapter; a stopped run has fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmark import ended
from benchmark.stored import pack, unpacked
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.tables import FAULTS, NONE, markdown, with_interval
from msgrpo_hub.players import PlayerSettings
from msgrpo_hub.training.config import stored_config
from msgrpo_hub.training.run_folder import RunFolder
from tests.real.models import SOURCES, real_model

ARCHIVES = Path(__file__).with_name("small_models")
SCRIPTED = ("silent", "random", "greedy", "planner", "optimal")
WAYS: dict[str, dict[str, Any]] = {
    "action-only": {"prompt_format": "action-only", "temperature": 1.0, "max_new_tokens": 16},
    "action-only, greedy": {"prompt_format": "action-only", "temperature": 0.0, "max_new_tokens": 16},
    "action-only, scored": {"prompt_format": "action-only", "mode": "score"},
    "think-action": {"prompt_format": "think-action", "temperature": 1.0, "max_new_tokens": 128},
    "think-action, greedy": {"prompt_format": "think-action", "temperature": 0.0, "max_new_tokens": 128},
}
"""How the models play, the cheapest first."""


def main(arguments: list[str]) -> None:
    """Runs the command."""
    match arguments:
        case ["run", *names] if {*names} <= SOURCES.keys():
            run(names or [*SOURCES])
        case ["store", folder]:
            store(RunFolder(Path(folder)))
        case _:
            raise UserError(f"expected `run`, with some of {', '.join(SOURCES)}, or `store RUN`")


def run(names: Sequence[str]) -> None:
    """Plays what is not stored, and stores each task when it ends."""
    with unpacked(ARCHIVES) as folder:
        evaluate(SCRIPTED, "paper", folder, on_task=lambda: pack(folder, ARCHIVES))
        for way, name in product(WAYS.values(), names):
            settings = PlayerSettings(**way, chat_template=str(SOURCES[name].template or ""))
            evaluate(str(real_model(name)), "paper", folder, settings=settings, on_task=lambda: pack(folder, ARCHIVES))


def store(run: RunFolder) -> None:
    """Copies the small files of a run, with the name of its base in place of the path."""
    model, target = stored_config(run.config).model, ARCHIVES / run.path.name
    target.mkdir(parents=True, exist_ok=True)
    for path in (run.config, run.metrics, run.summary, run.provenance, run.replay):
        if path.exists():
            text = path.read_text(encoding="utf-8").replace(model, Path(model).name)
            (target / path.name).write_text(text, encoding="utf-8")
    for path in (run.test_episodes, run.curves):
        if path.exists():
            (target / path.name).write_bytes(path.read_bytes())


def way_of(result: Result) -> str:
    """The name of the way that a model played; empty for a scripted player."""
    identity = result.identity
    own = {name: identity.get(name) for name in ("prompt_format", "temperature", "max_new_tokens", "mode")}
    return next((name for name, way in WAYS.items() if way.items() <= own.items()), "")


def table() -> str:
    """A row for each player and way of playing on each task."""
    with unpacked(ARCHIVES) as folder:
        results = sorted(find_results(folder), key=lambda r: (r.task, -r.summary["reward"]["mean"]))
    lines = []
    for result in results:
        summary = result.summary
        faults = " / ".join(f"{summary[f'{name}_rate']:.0%}" for name in ("unreadable", "truncated", "illegal"))
        tokens = NONE if summary["reply_tokens"] is None else f"{summary['reply_tokens'] / summary['episodes']:.0f}"
        names = [result.task.removesuffix("-v1"), result.player.removeprefix("folder:"), way_of(result) or NONE]
        lines.append([*names, *(with_interval(summary[name]) for name in ("reward", "success")), faults, tokens])
    return markdown(["task", "player", "replies", "reward", "success", FAULTS, "tokens of an episode"], lines)


if __name__ == "__main__":
    ended(main)
