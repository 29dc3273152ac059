"""Exports results for model cards on the Hub: `model-index` and `.eval_results/`.

Both are made from a leaderboard, whose runs have just been replayed. They describe published models. Scripted players and
local models are left out, since others cannot look them up.

`model-index` is the results part of a model card's front matter; the cards of adapters use the same function.
`.eval_results/` is the Hub's newer form. It refers to a benchmark dataset registered with the Hub, so it is written only
for an id that the user gives. Neither form has a field for uncertainty: intervals go into `args` and `notes`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.hub.adapter_metadata import model_index, rounded, task_result
from msgrpo_hub.hub.leaderboard import RUNS, Leaderboard, place
from msgrpo_hub.hub.run_results import task_score
from msgrpo_hub.hub.uploading import check_repo_id
from msgrpo_hub.storage.files import disk_errors, write_atomically

_MODEL = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.)", re.ASCII)


def model_of(result: Result) -> str | None:
    """`ORG/NAME` of the model that played; None for a scripted player or a local model."""
    identity = result.config["identity"]
    if identity["kind"] == "language model":
        name = str(identity.get("adapter") or identity.get("base"))
    elif identity["kind"] == "endpoint":
        kind, _, rest = str(identity.get("server")).partition(":")
        name = rest.partition("/" if kind == "provider" else "#")[2]
    else:
        return None
    return name if _MODEL.fullmatch(name) else None


def write_exports(board: Leaderboard, folder: Path, *, benchmark_id: str | None = None) -> list[Path]:
    """Writes the results of every model on a leaderboard for its card.

    Args:
        board: the leaderboard.
        folder: gets `models/<player>/<commit>/model-index.yaml` (and `.eval_results/` beside it, which `hf upload` puts into
            the model's repository).
        benchmark_id: `USER/NAME` of a benchmark dataset registered with the Hub, for `.eval_results/`.

    Returns:
        The files written.

    Raises:
        UserError: the leaderboard has no published model, or the folder cannot be written to.
    """
    if benchmark_id:
        check_repo_id(benchmark_id)
    models: dict[str, list[Result]] = {}
    for result in board.results:
        if model_of(result):
            models.setdefault("/".join(place(result.folder).split("/")[:2]), []).append(result)
    if not models:
        raise UserError(f"{board.source!r} has no published model: expected models on the Hub besides scripted players")
    contents: dict[Path, str] = {}
    for name, results in models.items():
        contents[folder / "models" / name / "model-index.yaml"] = _yaml(model_index_of(results))
        if benchmark_id:
            path = folder / "models" / name / ".eval_results" / f"{benchmark_id.partition('/')[2]}.yaml"
            contents[path] = _yaml(eval_results(board, results, benchmark_id))
    with disk_errors(folder, lambda: "the files that are there are whole"):
        for path, text in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
    return [*contents]


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000))


def _records(board: Leaderboard, result: Result) -> str:
    """URL of the published run; empty for a local folder."""
    page = f"https://huggingface.co/datasets/{board.source}/tree/{board.commit}/{RUNS}/{place(result.folder)}"
    return page if board.commit else ""


def model_index_of(results: Sequence[Result]) -> dict[str, Any]:
    """`model-index` for the front matter of a model's card."""
    model = model_of(results[0])
    assert model
    return model_index(model.partition("/")[2], [task_result(task_score(result)) for result in results])


def eval_results(board: Leaderboard, results: Sequence[Result], benchmark_id: str) -> list[dict[str, Any]]:
    """The content of `.eval_results/*.yaml`: the mean reward per task, by which our leaderboards are sorted."""
    entries = [
        EvalResultEntry(
            dataset_id=benchmark_id,
            task_id=result.task,
            value=rounded(result.summary["reward"]["mean"]),
            source_url=_records(board, result) or None,
            source_name="every episode, with its seed" if board.commit else None,
            notes=_notes(result),
        )
        for result in results
    ]
    return eval_result_entries_to_yaml(entries)


def _notes(result: Result) -> str:
    score = task_score(result)
    acting = score.mode if score.temperature is None else f"{score.mode}, temperature {score.temperature:g}"
    return f"mean reward {score.reward}, success {score.success}, {score.episodes} {score.split} episodes, {acting}"
