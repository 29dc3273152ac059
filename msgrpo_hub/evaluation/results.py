"""Results: a stored run, complete or not, read from its folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from msgrpo_hub.episode import Episode, EpisodeScore, StepScore
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.fields import Count, misfit
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import read_json
from msgrpo_hub.storage.tables import Origin, Rollout, tables

CONFIG: dict[str, Any] = {
    **{"harness": int, "player": str, "identity": dict, "task": str, "task_hash": str, "suite": str, "split": str},
    **{"prompt_format": str, "prompt_format_hash": str, "episodes": Count},
}
"""Type hints of the configuration of every run."""
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

    @property
    def player(self) -> str:
        return str(self.config["player"])

    @property
    def task(self) -> str:
        return str(self.config["task"])

    @property
    def prompt_format(self) -> str:
        return str(self.config["prompt_format"])

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the replies: the player's identity and the prompt format."""
        return {**self.config["identity"], "prompt_format": self.prompt_format}

    @property
    def complete(self) -> bool:
        """Whether every episode was played to its end."""
        return bool(self.summary["complete"])

    @property
    def reasons(self) -> list[str]:
        """Why episodes failed, the most frequent first, such as `4 × HTTP 503 after 6 attempts: overloaded`."""
        return [f"{count} × {error}" for error, count in Counter(row["error"] for row in self.failures).most_common()]


def load_result(folder: Path) -> Result:
    """A stored run. Raises `UserError` if the folder has none."""
    try:
        config, summary = (read_json(folder / name, "JSON") for name in (run_files.CONFIG, run_files.RESULTS))
        if "task" not in config:
            raise ValueError("no task")
        episodes, scores, steps = run_files.read_tables(folder)
        of_steps = ((step.reward, step.observation, step.completion.text) for episode in episodes for step in episode.steps)
        needed: list[object] = [score.reward for score in scores] + [episode.game_id for episode in episodes]
        if None in [*needed, *chain.from_iterable(of_steps)]:
            raise ValueError("a row has no game, reward, observation or reply")
        failures = run_files.read_rows(folder / run_files.FAILURES)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _unreadable(folder, error) from error
    return Result(folder=folder, config=config, summary=summary, episodes=episodes, scores=scores, steps=steps, failures=failures)


def find_runs(path: Path) -> list[Path]:
    """The folders of all runs under a folder, sorted. Raises `UserError` if there are none, or one lacks its results."""
    folders = sorted(file.parent for file in path.rglob(run_files.RESULTS))
    for file in path.rglob(run_files.EPISODES):  # an interrupted run has a log as well
        if not any((file.parent / name).exists() for name in (run_files.RESULTS, run_files.LOG)):
            raise _unreadable(file.parent, f"no {run_files.RESULTS}")
    if not folders:
        raise UserError(f"no runs under {str(path)!r}: expected a folder that `msgrpo eval --output-dir` has filled")
    return folders


def find_results(path: Path) -> list[Result]:
    """All runs under a folder, sorted by path. Raises `UserError` if there are none, or a file of one is damaged."""
    results = [load_result(folder) for folder in find_runs(path)]
    for result in results:
        figures = [result.summary[name] for name in ("reward", "success", "luck_adjusted") if result.summary.get(name)]
        for values, hints in [(result.config, CONFIG), (result.summary, _SUMMARY), *((figure, _SCORE) for figure in figures)]:
            for name, hint in hints.items():
                if name not in values:
                    raise _unreadable(result.folder, f"no {name}")
                if expected := misfit(values[name], hint):
                    raise _unreadable(result.folder, f"{name} is {shown(values[name])}, expected {expected}")
        for name, count in {"episodes": len(result.episodes), "steps": sum(map(len, result.steps))}.items():
            if count != result.summary[name]:
                raise _unreadable(result.folder, f"the tables have {count} of {result.summary[name]} {name}")
    return results


def _unreadable(folder: Path, why: object) -> UserError:
    return UserError(f"no readable run in {str(folder)!r} ({why}): expected the files that `msgrpo eval` writes")


def run_tables(
    config: Mapping[str, Any],
    indices: Sequence[int],
    episodes: Sequence[Episode],
    scores: Sequence[EpisodeScore],
    steps: Sequence[Sequence[StepScore]],
) -> dict[str, pa.Table]:
    """Both tables of a run, from its configuration and its episodes with their indices and scores."""
    prompt_format, pairs = str(config["prompt_format"]), zip(indices, episodes, strict=True)
    rollouts = [Rollout(episode=episode, index=index, prompt_format=prompt_format) for index, episode in pairs]
    return tables(rollouts, run_origin(config), list(zip(steps, scores, strict=True)))


def run_origin(config: Mapping[str, Any]) -> Origin:
    """Where the episodes of a run come from."""
    identity = config["identity"]
    return Origin(
        split=config["split"],
        player=config["player"],
        run=run_hash(config),
        base=identity.get("base"),
        base_revision=identity.get("base_commit"),
        adapter=identity.get("adapter"),
        adapter_revision=identity.get("adapter_commit"),
        temperature=identity.get("temperature"),
        max_new_tokens=identity.get("max_new_tokens"),
    )


def run_hash(config: Mapping[str, Any]) -> str:
    """The name of a run: a hash of its configuration, independent of the order of keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def player_names(results: Sequence[Result]) -> dict[str, str]:
    """Player key → a unique name: the player's name, followed by what differs if several identities share it.

    That is the folder of the player's results if each has its own, as adapters of several runs have.
    """
    players, folders, names = {player_key(result): result for result in results}, {}, {}
    for key, result in players.items():
        *_, folder, _, _, run = ("", "", "", *result.folder.resolve().parts)  # <player>/<commit>/<task>/<run hash>
        folders[key] = folder if run == run_hash(result.config) else ""
    for key, result in players.items():
        same = [other for other in players if players[other].player == result.player]
        if len(same) == 1:
            names[key] = result.player
            continue
        apart = {folders[other] for other in same}
        if len(apart) == len(same) and "" not in apart:
            names[key] = f"{result.player} ({folders[key]})"
            continue
        others, parts = [players[other].identity for other in same], []
        for what, value in result.identity.items():
            if any(other.get(what) != value for other in others):
                short = 12 if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", str(value)) else None
                parts.append(f"{what} {str(value)[:short]}")
        names[key] = f"{result.player} ({', '.join(parts)})"
    return names


def player_key(result: Result) -> str:
    """A key that results of the same player, with the same identity and prompt format, share."""
    return json.dumps([result.player, result.identity], sort_keys=True)
