"""Exports results to other systems: `model-index`, the Hub's `.eval_results/`, and Every Eval Ever.

All three are made from a leaderboard, whose runs have just been replayed. They describe published models. Scripted players
and local models are left out, since others cannot look them up.

`model-index` is the results part of a model card's front matter; the cards of adapters use the same function.
`.eval_results/` is the Hub's newer form. It refers to a benchmark dataset registered with the Hub, so it is written only
for an id that the user gives. Neither form has a field for uncertainty: intervals go into `args` and `notes`.

Every Eval Ever has fields for uncertainty. The fields follow `eval.schema.json`, version 0.3.0, of the package
`every-eval-ever` 0.3.0; a test validates against that file if the package is installed. A record is one run, at the path
that the datastore requires: `data/msgrpo_hub/<developer>/<model>/<uuid>.json`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from msgrpo_hub import __version__
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result, run_hash
from msgrpo_hub.evaluation.statistics import BOOTSTRAP, LEVEL, RESAMPLES, board_means
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.hub.adapter_metadata import model_index, rounded, task_result
from msgrpo_hub.hub.leaderboard import RUNS, Leaderboard, place
from msgrpo_hub.hub.run_results import task_score
from msgrpo_hub.hub.uploading import check_repo_id
from msgrpo_hub.storage.files import disk_errors, write_atomically

EVERY_EVAL_EVER = "0.3.0"
"""Version of the schema."""

_MODEL = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A published model."""

    id: str
    """`ORG/NAME`."""
    platform: str
    """Who served it; empty if it ran here."""


def model_of(result: Result) -> Model | None:
    """The model that played; None for a scripted player or a local model."""
    identity = result.config["identity"]
    if identity["kind"] == "language model":
        name, platform = str(identity.get("adapter") or identity.get("base")), ""
    elif identity["kind"] == "endpoint":
        kind, _, rest = str(identity.get("server")).partition(":")
        platform, _, name = rest.partition("/") if kind == "provider" else ("its own server", "", rest.partition("#")[2])
    else:
        return None
    return Model(id=name, platform=platform) if _MODEL.fullmatch(name) else None


def write_exports(board: Leaderboard, folder: Path, *, retrieved: int, benchmark_id: str | None = None) -> list[Path]:
    """Writes the results of every model on a leaderboard for other systems.

    Args:
        board: the leaderboard.
        folder: gets `models/<player>/<commit>/model-index.yaml` (and `.eval_results/` beside it, which `hf upload` puts into
            the model's repository), and `every_eval_ever/data/…`.
        retrieved: when the board was read, in seconds since 1970, for Every Eval Ever.
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
        for result in results:
            record = every_eval_ever(board, result, retrieved)
            contents[folder / "every_eval_ever" / record_path(result)] = json.dumps(record, indent=2, allow_nan=False) + "\n"
    with disk_errors(folder, lambda: "the files that are there are whole"):
        for path, text in contents.items():
            _write(path, text)
    return [*contents]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000))


def _records(board: Leaderboard, result: Result) -> str:
    """URL of the published run; empty for a local folder."""
    page = f"https://huggingface.co/datasets/{board.source}/tree/{board.commit}/{RUNS}/{place(result.folder)}"
    return page if board.commit else ""


# ---- the Hub's


def model_index_of(results: Sequence[Result]) -> dict[str, Any]:
    """`model-index` for the front matter of a model's card."""
    model = model_of(results[0])
    assert model
    return model_index(model.id.partition("/")[2], [task_result(task_score(result)) for result in results])


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


# ---- Every Eval Ever


def record_path(result: Result) -> str:
    """Path of a run's record in the datastore. The file name is derived from the run's hash."""
    model = model_of(result)
    assert model
    digest = hashlib.sha256(run_hash(result.config).encode()).digest()
    return f"data/msgrpo_hub/{model.id}/{uuid.UUID(bytes=digest[:16], version=4)}.json"


def every_eval_ever(board: Leaderboard, result: Result, retrieved: int) -> dict[str, Any]:
    """The record of a run for Every Eval Ever, with the uncertainty of each score."""
    model = model_of(result)
    assert model
    config = result.config
    owner = board.source.partition("/")[0] if board.commit else "not stated"
    where = {"records": _records(board, result), "commit": board.commit}
    return {
        "schema_version": EVERY_EVAL_EVER,
        "evaluation_id": f"{result.task}/{model.id}/{retrieved}",
        "retrieved_timestamp": str(retrieved),
        "source_metadata": {
            "source_name": board.source if board.commit else "runs of msgrpo eval",
            "source_type": "evaluation_run",
            "source_organization_name": owner,
            "evaluator_relationship": "other",  # not stated anywhere
            "additional_details": _texts({"run": run_hash(config), **where}),
        },
        "eval_library": {
            "name": "msgrpo_hub",
            "version": "unknown",  # the package that played is unknown; the scores depend on the harness version
            "additional_details": _texts({"harness": config["harness"], "replayed_with": __version__}),
        },
        "model_info": _model_info(model, config["identity"]),
        "evaluation_results": [_reward(result), _success(result)],
    }


def _model_info(model: Model, identity: dict[str, Any]) -> dict[str, Any]:
    here = not model.platform
    control = {
        "deployment_type": "self_deployed" if here else "unknown" if model.platform == "its own server" else "externally_managed",
        "model_availability": "open_weights" if here else "unknown",
    }
    engine = {"inference_engine": {"name": "transformers", "version": str(identity.get("transformers"))}} if here else {}
    platform = {} if here else {"inference_platform": model.platform}
    info = {"name": model.id.partition("/")[2], "id": model.id, "developer": model.id.partition("/")[0], **platform, **engine}
    return {**info, "additional_details": control | _texts(identity)}


def _reward(result: Result) -> dict[str, Any]:
    rewards = [score.reward for score in result.scores]
    low, high = return_range(make_game(result.task))
    metric = {
        "metric_id": "msgrpo_hub.mean_reward",
        "metric_name": "Mean reward",
        "metric_kind": "reward",
        "metric_unit": "points",
    }
    what = f"Undiscounted reward of an episode of {result.task}, mean over {len(rewards)} episodes"
    return _evaluation(result, {**metric, "evaluation_description": what, "min_score": low, "max_score": high}, "reward", rewards)


def _success(result: Result) -> dict[str, Any]:
    outcomes = [float(score.success) for score in result.scores]
    metric = {
        "metric_id": "success_rate",
        "metric_name": "Success rate",
        "metric_kind": "success_rate",
        "metric_unit": "proportion",
    }
    what = f"Share of {len(outcomes)} episodes of {result.task} that end well: the goal reached, or alive at the end"
    return _evaluation(result, {**metric, "evaluation_description": what, "min_score": 0, "max_score": 1}, "success", outcomes)


def _evaluation(result: Result, metric: dict[str, Any], name: str, values: Sequence[float]) -> dict[str, Any]:
    config, identity, figure = result.config, result.config["identity"], result.summary[name]
    about: dict[str, Any] = {key: config[key] for key in ("task_hash", "suite", "split", "episodes", "repeats") if key in config}
    boards = [episode.seed for episode in result.episodes]
    arguments = {"temperature": identity.get("temperature"), "max_tokens": identity.get("max_new_tokens")}
    return {
        "evaluation_result_id": f"{run_hash(config)}/{name}",
        "evaluation_name": result.task,
        "source_data": {"dataset_name": result.task, "source_type": "other", "additional_details": _texts(about)},
        "metric_config": {**metric, "lower_is_better": False, "score_type": "continuous"},
        "score_details": {
            "score": figure["mean"],
            "details": _texts({f"reward_of_{player}": value for player, value in result.summary["references"].items()}),
            "uncertainty": _uncertainty(figure, values, boards),
        },
        "generation_config": {
            "generation_args": {key: value for key, value in arguments.items() if value is not None},
            "additional_details": _texts({"mode": identity.get("mode", "generate")}),
        },
    }


def _uncertainty(figure: dict[str, Any], values: Sequence[float], boards: Sequence[int]) -> dict[str, Any]:
    """The spread of episodes, and the error of their mean, for which the plays of one board count as one."""
    uncertainty: dict[str, Any] = {"num_samples": len(values)}
    means = board_means(np.asarray(values, dtype=np.float64), boards).tolist()
    if len(means) > 1:
        error = {"value": statistics.stdev(means) / math.sqrt(len(means)), "method": "analytic"}
        uncertainty |= {"standard_deviation": statistics.stdev(values), "standard_error": error}
    if figure["low"] is not None:
        ends = {"lower": figure["low"], "upper": figure["high"], "confidence_level": LEVEL}
        uncertainty["confidence_interval"] = ends | {"method": figure["rule"]}
        uncertainty |= {"num_bootstrap_samples": RESAMPLES} if figure["rule"] == BOOTSTRAP else {}
    return uncertainty


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """All known values as strings, as `additional_details` requires."""
    return {key: str(value) for key, value in values.items() if value not in (None, "")}
