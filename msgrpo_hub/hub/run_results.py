"""Reads the folder of a finished run strictly into typed data, so that nothing else can reach the Hub."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgrpo_hub.downloads.fetching import prompting_files
from msgrpo_hub.downloads.hashes import content_hash
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.paired import Verdict, compare_tasks
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.statistics import RULES
from msgrpo_hub.evaluation.suites import repeats_of
from msgrpo_hub.fields import check
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.hub.adapter_card import Figure, PlayerRow, RunFacts, TaskScore, Typical
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import read_json
from msgrpo_hub.storage.shards import read_table
from msgrpo_hub.training.config import TrainConfig, stored_config
from msgrpo_hub.training.metrics import read_metrics
from msgrpo_hub.training.run_folder import RunFolder, seed_folders
from msgrpo_hub.training.seeds import figures, siblings
from msgrpo_hub.training.starts import parse_games

RESULTS = "results"
"""Folder of a run in which `msgrpo eval RUN/adapter --output-dir RUN/results` writes its results."""

_PLAYERS = ("silent", "random", "random-safe", "base", "adapter", "greedy", "optimal")
_PLAIN = r"[A-Za-z0-9][\w .,:;()@×+-]*"
"""Pattern of the name of a machine or a version."""


@dataclass(frozen=True, kw_only=True)
class FinishedRun(RunFacts):
    """A finished run."""

    folder: RunFolder
    config: TrainConfig
    trained_on: str
    """Commit of the base, or the hash of its folder; empty if the run did not record it."""
    players: Mapping[str, Mapping[str, PlayerRow]]
    """Game id → player → results on the test episodes, in the order of the configuration."""
    boards: Mapping[str, int]
    """Game id → boards of its test episodes; empty if the run had none."""
    verdicts: Mapping[str, Verdict]
    """Game id → adapter against base; without games whose test episodes the run does not have."""
    results: tuple[Result, ...]
    """Complete runs of `msgrpo eval` with exactly this adapter."""

    def files(self) -> dict[str, Path]:
        """Name in the repository → file, for files that are pushed unchanged."""
        own = {path.name: path for path in (self.folder.curves, self.folder.replay, self.folder.test_episodes) if path.exists()}
        adapter = {path.name: path for path in self.folder.adapter.iterdir()}
        own |= {name: adapter[name] for name in prompting_files(adapter)}
        names = (run_files.CONFIG, run_files.RESULTS, run_files.EPISODES, run_files.STEPS)
        return own | {f"{place(result)}/{name}": result.folder / name for result in self.results for name in names}


def read_run(path: Path) -> FinishedRun:
    """Reads the folder of a run.

    Raises:
        UserError: the folder has no finished run, or its files are malformed.
    """
    folder = RunFolder(path)
    missing = [part.name for part in (folder.config, folder.adapter, folder.summary) if not part.exists()]
    if missing:
        hint = "give the folder of the run" if (path / "adapter_config.json").exists() else "finish it with --resume"
        hint = f"give that of one seed, such as {seed_folders(path)[0]}" if seed_folders(path) else hint
        raise UserError(f"{str(path)!r} holds no finished run (no {missing[0]}): expected the output of `msgrpo train`; {hint}")
    config = stored_config(folder.config)
    summary = _summary(folder.summary)
    metrics, versions = read_metrics(folder.metrics), summary.get("versions") or {}
    return FinishedRun(
        folder=folder,
        config=config,
        trained_on=_plain(summary, "base_commit"),
        init_adapter_commit=_plain(summary, "init_adapter_commit"),
        players=_players(config, summary),
        boards={game: int(_number(table, "boards")) for game, table in _tables(config, summary).items() if "boards" in table},
        replayed=int(_number(summary, "replayed_test_episode")) if folder.replay.exists() else None,
        typical=_typical(folder, config),
        seconds={part: _number(summary, f"seconds_{part}") for part in ("acting", "training", "evaluating")},
        processes=int(_number(summary, "processes")),
        threads=int(_number(summary, "threads")),
        memory_mb=max((_number(line, "memory_mb") for line in metrics), default=None),
        hardware=_plain(summary, "hardware"),
        versions={name: _plain(versions, name) for name in sorted(versions)},
        lora_layers=_lora_layers(folder),
        adapter_update=int(_number(summary, "adapter_update")) if "adapter_update" in summary else config.updates,
        over_seeds=figures(siblings(path)),
        verdicts=_verdicts(folder, config),
        results=_results(folder),
    )


def _typical(folder: RunFolder, config: TrainConfig) -> Typical:
    if not folder.test_episodes.exists():
        return Typical(index=0)
    sampled = _sampled(folder, next(iter(parse_games(config.game))), "adapter")
    if not sampled:
        return Typical(index=0)
    middle = statistics.median(row["reward"] for row in sampled)
    row = min(sampled, key=lambda row: (abs(row["reward"] - middle), row["index"]))
    return Typical(index=int(row["index"]), end=f"{'success' if row['success'] else 'no success'} {float(row['reward'])}")


def _verdicts(folder: RunFolder, config: TrainConfig) -> dict[str, Verdict]:
    """Whether the adapter plays better than its base on the same episodes, by reward or else by success."""
    if not folder.test_episodes.exists():
        return {}
    games, values, found = [*parse_games(config.game)], {}, {}
    for game in games:
        base, adapter = (_sampled(folder, game, player) for player in ("base", "adapter"))
        if adapter and [row["index"] for row in base] == [row["index"] for row in adapter]:
            both = [[float(row[key]) for row in rows] for key in ("reward", "success") for rows in (base, adapter)]
            values[game] = (both[0], both[1], both[2], both[3])
    bounds = {game: return_range(make_game(game)) for game in values}
    try:
        comparisons = compare_tasks(values, 0, bounds) if values else []
    except ValueError as error:
        raise UserError(f"{str(folder.test_episodes)!r} is damaged ({error}): expected what `msgrpo train` wrote") from error
    for compared in comparisons:
        by_reward, by_success = compared.rewards.verdict, compared.success.verdict
        found[compared.task] = by_success if by_reward == "inconclusive" else by_reward
    return found


def _sampled(folder: RunFolder, game: str, player: str) -> list[dict[str, Any]]:
    """A player's sampled test episodes of a game, in order; greedy ones if the run's own temperature is 0."""
    rows = read_table(folder.test_episodes, "default").to_pylist()
    played = sorted((row for row in rows if (row["player"], row["game"]) == (player, game)), key=lambda row: row["index"])
    return [row for row in played if row["temperature"] != 0.0] or played


def _lora_layers(folder: RunFolder) -> tuple[str, ...]:
    settings = read_json(folder.adapter / "adapter_config.json", "the settings of an adapter")
    check("target_modules", settings.get("target_modules"), Sequence[str], f" in {str(folder.adapter)!r}")
    named = {*settings["target_modules"], *(settings.get("target_parameters") or ())}
    return tuple(sorted(named.difference(settings.get("exclude_modules") or ())))


def task_score(result: Result) -> TaskScore:
    """A result of `msgrpo eval` as shown on a card."""
    config, summary = result.config, result.summary
    return TaskScore(
        task=str(config["task"]),
        task_hash=str(config["task_hash"]),
        suite=str(config["suite"]),
        split=str(config["split"]),
        episodes=int(config["episodes"]),
        repeats=repeats_of(config),
        mode=str(config["identity"].get("mode", "generate")),  # a served model has only this mode
        temperature=config["identity"]["temperature"],
        reward=Figure(**summary["reward"]),
        success=Figure(**summary["success"]),
        references=summary["references"],
        folder=place(result),
    )


def place(result: Result) -> str:
    """Folder of a result in the repository."""
    return f"{RESULTS}/{result.task.replace(':', '-')}/{result.folder.name}"


def _results(folder: RunFolder) -> tuple[Result, ...]:
    """Results under the run's folder that were played with exactly these weights; others are not pushed."""
    path = folder.path / RESULTS
    if not any(path.rglob(run_files.RESULTS)):
        return ()
    weights = content_hash(folder.adapter)
    complete = [result for result in find_results(path) if result.complete]
    own = [result for result in complete if result.config["identity"].get("adapter_commit") == weights]
    return tuple(sorted(own, key=lambda result: (result.task, result.folder.name)))


def _summary(path: Path) -> dict[str, Any]:
    summary = read_json(path, "what `msgrpo train` wrote")
    for name, kind in (("versions", dict), ("other_games", list)):
        check(name, summary.get(name) or kind(), kind, f" in {path}")
    return summary


def _players(config: TrainConfig, summary: Mapping[str, Any]) -> dict[str, dict[str, PlayerRow]]:
    """The results of every game."""
    tables = _tables(config, summary)
    return {game: {name: _player(row, name) for name in _PLAYERS if name in row} for game, row in tables.items()}


def _tables(config: TrainConfig, summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The table of every game. The summary itself is that of the first, `other_games` has one for each other."""
    first, *others = parse_games(config.game)
    tables: dict[str, Any] = {table["game"]: table for table in summary.get("other_games", ())} | {first: summary}
    if config.test_episodes and (missing := [game for game in others if game not in tables]):
        raise UserError(f"the summary of the run has no results for {missing[0]}: expected one table per game; train it again")
    return {game: tables.get(game, {}) for game in (first, *others)}


def _player(summary: Mapping[str, Any], name: str) -> PlayerRow:
    row = summary[name]
    check(name, row, dict, " in the results of the run")
    return PlayerRow(
        success=_figure(row, "success"),
        reward=_figure(row, "reward"),
        success_greedy=_figure(row, "success_greedy"),
        reward_greedy=_figure(row, "reward_greedy"),
        unreadable_rate=_number(row, "unreadable_rate"),
        truncated_rate=_number(row, "truncated_rate"),
        illegal_rate=_number(row, "illegal_rate"),
    )


def _figure(row: Mapping[str, Any], key: str) -> Figure:
    interval = row.get(f"{key}_interval")
    ends = dict(zip(("low", "high"), interval, strict=True)) if interval else {"low": None, "high": None}
    low, high = (None if end is None else _number(ends, name) for name, end in ends.items())
    rule = row.get(f"{key}_rule")
    return Figure(mean=_number(row, key), low=low, high=high, rule=rule if rule in RULES else None)


def _number(values: Mapping[str, Any], key: str) -> float:
    """A finite number. Raises `UserError` for any other value."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{key} = {value!r} in the results of the run: expected a finite number; train it again")
    return value


def _plain(values: Mapping[str, Any], key: str) -> str:
    """A short text that cannot be a path or markup; empty if the key is missing."""
    value = values.get(key) or ""
    if value and not (isinstance(value, str) and len(value) < 200 and re.fullmatch(_PLAIN, value, re.ASCII)):
        raise UserError(f"{key} = {value!r} in the results of the run: expected a plain name")
    return value
