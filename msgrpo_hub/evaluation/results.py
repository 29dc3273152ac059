"""Results: a stored run, complete or not, read from its folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa

from msgrpo_hub.episode import Episode, EpisodeScore, StepScore
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.fields import Count, Range, misfit
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import files_below, read_json
from msgrpo_hub.storage.tables import Origin, Rollout, tables

CONFIG: dict[str, Any] = {
    **dict.fromkeys(("player", "task", "task_hash", "suite", "prompt_format", "prompt_format_hash"), str),
    **{"harness": int, "identity": dict, "split": Literal["validation", "test"], "episodes": Count},
    "repeats": Annotated[int, Range(2, 1_000_000)],
}
"""Type hints of the configuration of a run. Only a run that plays each board several times has `repeats`."""
_SUMMARY: dict[str, Any] = {
    **dict.fromkeys(("complete", "above_optimum"), bool),
    **dict.fromkeys(("episodes", "failed", "steps"), int),
    **dict.fromkeys(("unreadable_rate", "truncated_rate", "illegal_rate"), float),
    **dict.fromkeys(("reward", "success", "luck_adjusted", "first_mistake"), dict | None),
    **dict.fromkeys(("normalised", "regret_per_step", "optimal_decisions"), float | None),
    **dict.fromkeys(("prompt_tokens", "reply_tokens", "decisions"), int | None),
    "references": dict,
}
_SCORE: dict[str, Any] = {"mean": float, "low": float | None, "high": float | None}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One player on one task."""

    folder: Path
    config: dict[str, Any]
    """Player, task, suite and everything else that determines the result."""
    summary: dict[str, Any]
    episodes: list[Episode] = field(repr=False)
    scores: list[EpisodeScore] = field(repr=False)
    steps: list[list[StepScore]] = field(repr=False)
    failures: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """Episodes that a server failed to answer in the last call, each with index, seed, turn and error."""

    player: str = field(init=False)
    task: str = field(init=False)
    prompt_format: str = field(init=False)
    repeats: int = field(init=False)
    """How many times each board is played."""
    complete: bool = field(init=False)
    """Whether every episode was played to its end."""
    identity: dict[str, Any] = field(init=False, repr=False)
    """Everything that determines the replies: the player's identity and the prompt format."""

    def __post_init__(self) -> None:
        own = {name: self.config[name] for name in ("player", "task", "prompt_format")}
        own |= {"repeats": self.config.get("repeats", 1), "complete": self.summary["complete"]}
        own["identity"] = {**self.config["identity"], "prompt_format": self.config["prompt_format"]}
        vars(self).update(own)  # the fields are frozen


def check_values(values: Mapping[str, Any], hints: Mapping[str, Any] = CONFIG) -> None:
    """Checks a configuration, or figures. Raises `UserError` for a missing value and for a value that no run has."""
    for name, hint in hints.items():
        if name not in values and name != "repeats":
            raise UserError(f"no {name}")
        if name in values and (expected := misfit(values[name], hint)):
            raise UserError(f"{name} is {shown(values[name])}, expected {expected}")


def load_result(folder: Path) -> Result:
    """A stored run. Raises `UserError` if the folder has none, or if a file is damaged or does not fit the others."""
    try:
        config, summary = (read_json(folder / name, "JSON") for name in (run_files.CONFIG, run_files.RESULTS))
        figures = [summary[name] for name in ("reward", "success", "luck_adjusted") if summary.get(name)]
        for values, hints in ((config, CONFIG), (summary, _SUMMARY), *((figure, _SCORE) for figure in figures)):
            check_values(values, hints)
        episodes, scores, steps = run_files.read_tables(folder)
        for name, count in {"episodes": len(episodes), "steps": sum(map(len, steps))}.items():
            if count != summary[name]:
                raise UserError(f"the tables have {count} of {summary[name]} {name}")
        failures = run_files.read_rows(folder / run_files.FAILURES)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"no readable run in {str(folder)!r} ({error}): expected the files that `msgrpo eval` writes") from error
    return Result(folder=folder, config=config, summary=summary, episodes=episodes, scores=scores, steps=steps, failures=failures)


def find_results(path: Path) -> list[Result]:
    """All runs under a folder that do not vanish meanwhile, sorted by path. Errors as for `find_runs` and `load_result`."""
    found = []
    for folder in find_runs(path):
        try:
            found.append(load_result(folder))
        except UserError:
            if folder.exists():
                raise
    return found


def find_runs(path: Path) -> list[Path]:
    """The folders of all runs under a folder, sorted. Raises `UserError` if there are none."""
    played = {file.parent for file in files_below(path, run_files.RESULTS, run_files.EPISODES)}
    folders = [folder for folder in played if not (folder / run_files.LOG).exists() or (folder / run_files.RESULTS).exists()]
    if not folders:
        raise UserError(f"no runs under {str(path)!r}: expected a folder that `msgrpo eval --output-dir` has filled")
    return sorted(folders)


def run_tables(
    config: Mapping[str, Any],
    indices: Sequence[int],
    episodes: Sequence[Episode],
    scores: Sequence[EpisodeScore],
    steps: Sequence[Sequence[StepScore]],
) -> dict[str, pa.Table]:
    """Both tables of a run, from its configuration and its episodes with their indices and scores."""
    rollouts = [
        Rollout(episode=episode, index=index, prompt_format=str(config["prompt_format"]))
        for index, episode in zip(indices, episodes, strict=True)
    ]
    return tables(rollouts, run_origin(config), list(zip(steps, scores, strict=True)))


def run_origin(config: Mapping[str, Any]) -> Origin:
    """Where the episodes of a run come from."""
    fields = {"base": "base", "base_revision": "base_commit", "adapter": "adapter", "adapter_revision": "adapter_commit"}
    fields |= {name: name for name in ("temperature", "max_new_tokens")}
    own: dict[str, Any] = {name: config["identity"].get(field) for name, field in fields.items()}
    return Origin(split=config["split"], player=config["player"], run=run_hash(config), **own)


def run_hash(config: Mapping[str, Any]) -> str:
    """The name of a run: a hash of its configuration, independent of the order of keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def player_names(results: Sequence[Result]) -> dict[str, str]:
    """Player key → a unique name: the player's, then what differs if several share it, such as the folder of its results."""
    players, names = {player_key(result): result for result in results}, {}
    for key, result in players.items():
        same, parts = [other for other in players.values() if other.player == result.player], []
        places = [other.folder.resolve().parts for other in same if other.folder.resolve().name == run_hash(other.config)]
        if len({place[-4:-3] for place in places}) == len(same):  # <player>/<commit>/<task>/<run hash>
            parts = [*result.folder.resolve().parts[-4:-3]]
        else:
            for what, value in result.identity.items():
                if any(other.identity.get(what) != value for other in same):
                    text = re.sub("^([0-9a-f]{12})([0-9a-f]{28}|[0-9a-f]{52})$", r"\1", str(value))  # a commit or a hash
                    parts.append(f"{what} {text}")
        names[key] = f"{result.player} ({', '.join(parts)})" if len(same) > 1 else result.player
    return names


def player_key(result: Result) -> str:
    """A key that results of the same player, with the same identity and prompt format, share."""
    return json.dumps([result.player, result.identity], sort_keys=True)
