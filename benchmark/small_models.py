"""What small pretrained models do untrained on the paper's tasks: `python -m benchmark.small_models run [MODEL...]`.

Plays the suite `paper` with the models of tests/real in their own type, and the scripted references, in order of cost.
Stored runs are not played again. The runs are archives in small_models/, as those of results/, with a table in README.md.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmark import ended
from benchmark.stored import pack, unpacked
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.tables import FAULTS, NONE, markdown, with_interval
from msgrpo_hub.players import PlayerSettings
from tests.real.models import GEMMA_TEMPLATE, SOURCES, real_model

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
    if arguments[:1] != ["run"] or {*arguments[1:]} - SOURCES.keys():
        raise UserError(f"expected `run`, and of {', '.join(SOURCES)} those to play")
    with TemporaryDirectory() as temporary, unpacked(ARCHIVES) as folder:
        template = Path(temporary) / "gemma.jinja"
        template.write_bytes(GEMMA_TEMPLATE.read_bytes())
        evaluate(SCRIPTED, "paper", folder, on_task=lambda: pack(folder, ARCHIVES))
        for way in WAYS.values():
            for name in arguments[1:] or SOURCES:
                chat_template = str(SOURCES[name].template or "")
                settings = PlayerSettings(**way, chat_template=chat_template)
                evaluate(str(real_model(name)), "paper", folder, settings=settings, on_task=lambda: pack(folder, ARCHIVES))


def way_of(result: Result) -> str:
    """The name of the way that a model played; empty for a scripted player."""
    identity = result.identity
    own = {name: identity.get(name) for name in ("prompt_format", "temperature", "max_new_tokens", "mode")}
    return next((name for name, way in WAYS.items() if way.items() <= own.items()), "")


def table() -> str:
    """A row for each player and way of playing on each task."""
    with unpacked(ARCHIVES) as folder:
        results = [result for result in find_results(folder) if result.complete]
    lines = []
    for task in dict.fromkeys(result.task for result in results):
        for result in sorted((r for r in results if r.task == task), key=lambda r: -r.summary["reward"]["mean"]):
            summary = result.summary
            faults = " / ".join(f"{summary[f'{name}_rate']:.0%}" for name in ("unreadable", "truncated", "illegal"))
            tokens = NONE if summary["reply_tokens"] is None else f"{summary['reply_tokens'] / summary['episodes']:.0f}"
            cells = [result.player, way_of(result) or NONE, *(with_interval(summary[name]) for name in ("reward", "success"))]
            lines.append([task.removesuffix("-v1"), *cells, faults, tokens])
    return markdown(["task", "player", "replies", "reward", "success", FAULTS, "tokens of an episode"], lines)


if __name__ == "__main__":
    ended(main)
