"""Exports results for model cards on the Hub: `model-index` and `.eval_results/`.

Both come from a leaderboard, and only published models have them. `model-index` is part of a model card's front matter.
`.eval_results/`, the newer form, refers to a benchmark dataset registered with the Hub, so the user gives its id.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
from huggingface_hub.repocard_data import eval_results_to_model_index
from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.hub.adapter_card import task_results, task_score
from msgrpo_hub.hub.leaderboard import RUNS, Leaderboard, place
from msgrpo_hub.hub.uploading import check_repo_id
from msgrpo_hub.players.registry import model_id
from msgrpo_hub.storage.files import disk_errors, write_atomically


def model_of(result: Result) -> str | None:
    """`ORG/NAME` of the model that played; None for a scripted player or a local model."""
    identity = result.config["identity"]
    try:
        return check_repo_id(model_id(identity))
    except UserError:
        return None


def write_exports(board: Leaderboard, folder: Path, *, benchmark_id: str | None = None) -> list[Path]:
    """Writes the results of every model on a leaderboard for its card, and returns the files.

    Args:
        folder: gets `models/<player>/<commit>/model-index.yaml`.
        benchmark_id: `USER/NAME` of a benchmark dataset registered with the Hub, for `.eval_results/` beside it, which
            `hf upload` puts into the model's repository.

    Raises `UserError` if the leaderboard has no published model, or the folder cannot be written to.
    """
    if benchmark_id:
        check_repo_id(benchmark_id)
    models: dict[str, list[Result]] = {}
    for result in board.results:
        if model_of(result):
            models.setdefault("/".join(place(result.folder).split("/")[:2]), []).append(result)
    if not models:
        raise UserError(f"{board.source!r} has no published model: expected models on the Hub besides scripted players")
    written = []
    with disk_errors(folder, lambda: "the files that are there are whole"):
        for name, results in models.items():
            model, entries = str(model_of(results[0])).partition("/")[2], [each for run in results for each in task_results(run)]
            files: dict[str, object] = {"model-index.yaml": {"model-index": eval_results_to_model_index(model, entries)}}
            if benchmark_id:
                newer = [_entry(board, result, benchmark_id) for result in results]
                files[f".eval_results/{benchmark_id.partition('/')[2]}.yaml"] = eval_result_entries_to_yaml(newer)
            for file, content in files.items():
                written.append(folder / "models" / name / file)
                written[-1].parent.mkdir(parents=True, exist_ok=True)
                text = yaml_dump(content, sort_keys=False)
                write_atomically(written[-1], partial(Path.write_text, data=text, encoding="utf-8"))
    return written


def _entry(board: Leaderboard, result: Result, benchmark_id: str) -> EvalResultEntry:
    """The mean reward on a task; its interval is in the notes, since the format has no field for uncertainty."""
    score, page = task_score(result), f"https://huggingface.co/datasets/{board.source}/tree/{board.commit}/{RUNS}"
    acting = score["mode"] if score["temperature"] is None else f"{score['mode']}, temperature {score['temperature']:g}"
    figures = f"mean reward {score['reward']}, success {score['success']}"
    return EvalResultEntry(
        dataset_id=benchmark_id,
        task_id=result.task,
        value=round(score["reward"].mean, 4),
        source_url=f"{page}/{place(result.folder)}" if board.commit else None,
        source_name="every episode, with its seed" if board.commit else None,
        notes=f"{figures}, {score['episodes']} {score['split']} episodes, {acting}",
    )
