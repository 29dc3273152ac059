"""Reads a finished run into typed data, and renders the card of its adapter from that data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from msgrpo_hub.downloads.names import content_hash
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.paired import Verdict, compare_tasks
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.statistics import BETTING, NO_INTERVAL, OverSeeds
from msgrpo_hub.evaluation.suites import task_hash
from msgrpo_hub.fields import is_import
from msgrpo_hub.games import FURTHER, GAMES, Game, base_game, make_game, splits_of
from msgrpo_hub.games.game import return_range
from msgrpo_hub.hub.bases import Base
from msgrpo_hub.hub.cards import render
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import files_below, read_json
from msgrpo_hub.storage.shards import read_table
from msgrpo_hub.training.config import CHOICES, TrainConfig, parse_games, stored_config
from msgrpo_hub.training.run_folder import RunFolder
from msgrpo_hub.training.seeds import figures, siblings, tables_of
from msgrpo_hub.training.summary import read_metrics

RESULTS = "results"
"""Folder of a run with the results of `msgrpo eval RUN/adapter --output-dir RUN/results`."""

LOCAL = "folder:"
"""Prefix of the published name of a local adapter; the hash of its content follows."""

_PLAYERS = ("silent", "random", "random-safe", "base", "adapter", "greedy", "optimal")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A mean with its 95 % interval; the ends are None for fewer than 30 episodes."""

    mean: float
    low: float | None
    high: float | None
    rule: str | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:z.3f} {NO_INTERVAL}"
        wide = ", wide since nearly all episodes scored the same" if self.rule == BETTING else ""
        return f"{self.mean:z.3f} [{self.low:z.3f}, {self.high:z.3f}]{wide}"


Row = Mapping[str, Any]
"""A player's results: `success`, `reward`, `success_greedy` and `reward_greedy` are figures, `…_rate` are numbers."""


@dataclass(frozen=True, kw_only=True)
class GameTable:
    """The test episodes of a run in one of its games."""

    game: Game
    players: Mapping[str, Row]
    """Empty if the run had no test episodes."""
    boards: int | None = None
    verdict: Verdict | None = None
    """The adapter compared with its base on the same test episodes."""
    gain: float | None = None
    """The largest gain in reward of the adapter over its base on a test episode; this and the above are None without any."""

    @property
    def one_score(self) -> bool:
        """Whether the reward of an episode is its success, so that one of them is enough."""
        pairs = [(row[f"reward{how}"], row[f"success{how}"]) for row in self.players.values() for how in ("", "_greedy")]
        return return_range(self.game) == (0.0, 1.0) and all(reward.mean == success.mean for reward, success in pairs)


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A finished training run."""

    folder: RunFolder
    config: TrainConfig
    summary: Mapping[str, Any]
    """As `msgrpo train` wrote it. Only what the card and `published_results` select from it is published."""
    games: tuple[GameTable, ...]
    results: tuple[Result, ...]
    """Complete runs of `msgrpo eval` with exactly this adapter."""
    signals: tuple[int, ...]
    """The updates in which rewards gave advantages."""
    memory_mb: float | None
    lora_layers: tuple[str, ...]
    """Names of the layers and parameters that the adapter changes."""
    over_seeds: Mapping[str, Mapping[str, OverSeeds]]
    """Game → figure → its values over the seeds beside the run; empty without other seeds."""

    @property
    def rewarded(self) -> bool:
        """Whether the published weights learned from rewards. Weights from before the first such update did not."""
        return bool(min(self.signals, default=math.inf) <= self.summary["adapter_update"])


def read_run(path: Path) -> FinishedRun:
    """Reads the folder of a run. Raises `UserError` if it has no finished run, or a damaged file."""
    folder = RunFolder(path)
    missing = [part.name for part in (folder.config, folder.adapter, folder.summary) if not part.exists()]
    if missing:
        hint = "give the folder of the run" if (path / "adapter_config.json").exists() else "finish it with --resume"
        raise UserError(f"{str(path)!r} holds no finished run (no {missing[0]}): expected the output of `msgrpo train`; {hint}")
    summary = read_json(folder.summary, "what `msgrpo train` wrote")
    config = dataclasses.replace(stored_config(folder.config), test_episodes=summary.get("episodes", 0))
    settings = read_json(folder.adapter / "adapter_config.json", "the settings of an adapter")
    targets, parameters, excluded = (  # each a list, one name or regular expression, or null
        {value} if isinstance(value, str) else {*(value or ())}
        for value in map(settings.get, ("target_modules", "target_parameters", "exclude_modules"))
    )
    weights, metrics = content_hash(folder.adapter), read_metrics(folder.metrics)
    results = find_results(path / RESULTS) if files_below(path / RESULTS, run_files.RESULTS) else []
    own = [result for result in results if result.complete and result.config["identity"].get("adapter_commit") == weights]
    try:
        games = _tables(folder, config, summary)
    except UserError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the results in {str(path)!r} are damaged ({error}): expected what `msgrpo train` wrote") from error
    return FinishedRun(
        folder=folder,
        config=config,
        summary=summary,
        games=games,
        results=tuple(sorted(own, key=lambda result: (result.task, result.folder.name))),
        signals=tuple(int(of["update"]) for of in metrics if of.get("zero_variance_groups", config.groups) < config.groups),
        memory_mb=max((line["memory_mb"] for line in metrics), default=None),
        lora_layers=tuple(sorted((targets | parameters) - excluded)),
        over_seeds=figures(siblings(path)),
    )


def _tables(folder: RunFolder, config: TrainConfig, summary: Mapping[str, Any]) -> tuple[GameTable, ...]:
    """One table per game. The summary itself is the table of the first game; `other_games` has the rest."""
    games = list(parse_games(config.game))
    stored = tables_of(summary)
    compared, tables = _compared(folder, games), []
    for name in games:
        table, players = stored[name] if config.test_episodes else {}, {}
        for player in (player for player in _PLAYERS if player in table):
            row = table[player]
            players[player] = {rate: row[rate] for rate in ("unreadable_rate", "truncated_rate", "illegal_rate")}
            for score in ("success", "reward", "success_greedy", "reward_greedy"):
                low, high = row[f"{score}_interval"] or (None, None)
                players[player][score] = Figure(mean=row[score], low=low, high=high, rule=row.get(f"{score}_rule"))
        verdict, gain = compared.get(name, (None, None))
        tables.append(GameTable(game=make_game(name), players=players, boards=table.get("boards"), verdict=verdict, gain=gain))
    return tuple(tables)


def _compared(folder: RunFolder, games: list[str]) -> dict[str, tuple[Verdict, float]]:
    """Whether the adapter plays better than its base on the same sampled episodes, by reward or else by success, and its gain."""
    rows = read_table(folder.test_episodes, "default").to_pylist() if folder.test_episodes.exists() else []
    rows.sort(key=lambda row: row["index"])
    values = {}
    for game in games:
        played = []
        for player in ("base", "adapter"):
            own = [row for row in rows if (row["player"], row["game"]) == (player, game)]
            played.append([row for row in own if row["temperature"] != 0.0] or own)
        base, adapter = played
        if adapter and [row["index"] for row in base] == [row["index"] for row in adapter]:
            first, second, third, fourth = ([float(row[key]) for row in own] for key in ("reward", "success") for own in played)
            values[game] = (first, second, third, fourth)
    bounds = {game: return_range(make_game(game)) for game in values}
    compared = compare_tasks(values, 0, bounds) if values else []
    gains = {game: max(b - a for a, b in zip(*of[:2], strict=True)) for game, of in values.items()}
    chosen = {one.task: one.success if one.rewards.verdict == "inconclusive" else one.rewards for one in compared}
    return {game: (one.verdict, gains[game]) for game, one in chosen.items()}


# ---- results of `msgrpo eval`


def task_score(result: Result) -> dict[str, Any]:
    """A result of `msgrpo eval` as a card shows it: its task, settings, scores, and folder in the adapter's repository."""
    config, summary = result.config, result.summary
    return {
        **{name: config[name] for name in ("task", "task_hash", "suite", "split", "episodes")},
        "repeats": result.repeats,
        "mode": str(config["identity"].get("mode", "generate")),  # a served model has only this mode
        "temperature": config["identity"]["temperature"],
        "reward": Figure(**summary["reward"]),
        "success": Figure(**summary["success"]),
        "references": summary["references"],
        "folder": f"{RESULTS}/{result.task.replace(':', '-')}/{result.folder.name}",
    }


def _entries(task: str, row: Row, played: Mapping[str, Any], **dataset: Any) -> list[EvalResult]:
    """The scores on a task as entries of `model-index`. Intervals go into `args`, because the format has no field for them."""
    entries = []
    for metric, figure in (("mean_reward", row["reward"]), ("success_rate", row["success"])):
        interval = {} if figure.low is None else {"interval_95": [round(figure.low, 4), round(figure.high, 4)]}
        entries.append(
            EvalResult(
                task_type="reinforcement-learning",
                task_name="text game",
                dataset_type=task,
                dataset_name=task,
                metric_type=metric,
                metric_name=metric.replace("_", " "),
                metric_value=round(figure.mean, 4),
                metric_args={key: value for key, value in played.items() if value is not None} | interval,
                **dataset,
            )
        )
    return entries


def task_results(result: Result) -> list[EvalResult]:
    """A finished run of `msgrpo eval` as entries of `model-index`."""
    score = task_score(result)
    played = {name: score[name] for name in ("episodes", "mode", "temperature")}
    dataset = {"dataset_config": score["suite"], "dataset_split": score["split"], "dataset_revision": score["task_hash"]}
    return _entries(score["task"], score, played, **dataset)


# ---- the card


def render_adapter(run: FinishedRun, repo_id: str, config: TrainConfig, base: Base, rollouts: str | None) -> str:
    """The README of an adapter, with the configuration as published and the dataset of its training episodes, if any."""
    weights, defaults, results = parse_games(config.game), TrainConfig(), []
    for table in run.games:
        if adapter := table.players.get("adapter"):
            played = {"episodes": config.test_episodes, "temperature": config.eval_temperature}
            results += _entries(table.game.id, adapter, played, dataset_split="test", dataset_revision=task_hash(table.game))
    results += [entry for result in run.results for entry in task_results(result)]
    learned = ["reinforcement-learning", "deep-reinforcement-learning"] if run.rewarded else []
    metadata = ModelCardData(
        base_model=base.repo_id,
        base_model_relation="adapter",
        library_name="peft",
        pipeline_tag="text-generation",
        language="en",
        **base.license,
        tags=["msgrpo", *learned, "text-games", "lora", *weights],
        datasets=[rollouts] if rollouts else None,
        model_name=repo_id.partition("/")[2],
        eval_results=results or None,
    )
    scores = [task_score(result) for result in run.results]
    hidden = ("model", "game", "init_adapter", "report_to", "test_episodes", "threads")
    pairs = {field.name: (getattr(config, field.name), getattr(defaults, field.name)) for field in dataclasses.fields(config)}
    return render(
        "adapter.md.jinja",
        metadata,
        run=run,
        repo_id=repo_id,
        name=repo_id.partition("/")[2],
        config=config,
        base=base,
        rollouts=rollouts,
        games=run.games,
        splits_of=splits_of,
        weights=weights,
        scores=scores,
        unseen=any(score["task"] not in weights for score in scores),
        differences={name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name not in hidden},
        repeatable=not config.init_adapter.startswith(LOCAL),
        own_games=[table.game.id for table in run.games if base_game(table.game).id not in GAMES | FURTHER],
        own_code={name: getattr(config, name) for name in CHOICES if is_import(getattr(config, name))},
    )
