"""Verification: stored runs and rollouts are replayed, and every figure in them must follow from the rules.

A run's folder is named by the hash of its configuration. The configuration must be possible, the episodes must be the suite's,
each stored reply must parse to its stored action, and the actions must lead to the stored observations, rewards and scores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, PromptFormat, format_hash
from msgrpo_hub.episode import Episode, StepScore
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import CONFIG, Result, check_values, find_runs, load_result, run_hash, run_tables
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import HARNESS, built_in_suite, hash_of, run_seeds
from msgrpo_hub.evaluation.summary import run_summary
from msgrpo_hub.fields import Count, misfit
from msgrpo_hub.games import is_remote, make_game
from msgrpo_hub.players.registry import identity_problems, kind_of
from msgrpo_hub.rollout import reply_status
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import read_json
from msgrpo_hub.storage.schema import EPISODE_COLUMNS, STEP_COLUMNS
from msgrpo_hub.storage.shards import missing_updates, read_table, shards
from msgrpo_hub.storage.tables import Origin, Rollout, episode_rows, read_rollouts, rollout_of, rows_of

NOT_CHECKED = "tokens, log-probabilities, advantages, selection, and who gave the replies"
REPLAYED = f"Replayed: actions, rewards and scores follow from the replies. Not checked: {NOT_CHECKED}."
"""Below a table of replayed runs."""
ROUNDING = 1e-9
"""Tolerance for exact values and intervals, since processors add in different orders. Rewards must be equal."""


def verify_folder(folder: Path) -> list[dict[str, Any]]:
    """Checks the runs of `msgrpo eval` below a folder, and the episodes of a rollout dataset or a training run.

    Returns one row per run, or per player and game of a dataset: player, task, folder, episodes, problems (empty if everything
    agrees), and unchecked, the parts that could not be checked. Raises `UserError` for a folder without episodes.
    """
    rollouts = verify_rollouts(folder)
    names = (run_files.RESULTS,) if rollouts else (run_files.RESULTS, run_files.EPISODES)
    if any(any(folder.rglob(name)) for name in names):
        return [*rollouts, *verify(folder)]
    if not rollouts:
        raise UserError(
            f"no episodes under {str(folder)!r}: expected a folder that `msgrpo eval --output-dir` has filled, or "
            "`msgrpo train` with --save-rollouts"
        )
    return rollouts


# ---- runs


def verify(folder: Path) -> list[dict[str, Any]]:
    """Checks every run under a folder. Returns rows as `verify_folder` does."""
    rows = []
    for run in find_runs(folder):
        row: dict[str, Any] = {"player": "?", "task": run.parent.name, "folder": str(run), "episodes": 0}
        try:
            result = load_result(run)
            row |= {"player": result.player, "task": result.task, "episodes": len(result.episodes)}
            messages = problems(result)
            rows.append(row | {"problems": messages, "unchecked": [] if messages else unchecked(result)})
        except UserError as error:
            rows.append(row | {"problems": [str(error)], "unchecked": []})
    return rows


def problems(result: Result) -> list[str]:
    """Everything in a run that disagrees with the rules, as readable messages."""
    # 1) the configuration
    config = result.config
    if result.folder.name != run_hash(config):
        return [f"the run hash of its configuration is {run_hash(config)}, its folder is {result.folder.name}"]
    if messages := claim_problems(config):
        return messages
    game = make_game(result.task)
    if config["task_hash"] != (now := hash_of(result.task)):
        messages.append(f"it was played on {config['task_hash']}, but the hash of this version of the game is {now}")
    built_in = PROMPT_FORMATS.get(result.prompt_format)
    if built_in and config["prompt_format_hash"] != format_hash(built_in):
        messages.append(f"its prompt format {built_in.name} differs from the format of this version")

    # 2) the list of episodes
    keys = {key: number for number, key in enumerate((seed, k) for seed in run_seeds(config) for k in range(result.repeats))}
    played = [keys.get((episode.seed, episode.member), -1) for episode in result.episodes]
    if -1 in played or played != sorted(set(played)):
        return [*messages, "its episodes are not those of the suite, each once and in order"]
    if missing := len(keys) - len(played):
        messages.append(f"it is not complete: {missing} of {len(keys)} episodes are missing, play it again")
    try:
        boards = [number // result.repeats for number in played]
        expected = run_tables(config, boards, result.episodes, result.scores, result.steps)
        for name, file in run_files.TABLES.items():
            if not read_table(result.folder / file, name).equals(expected[name]):
                messages.append(f"{file} has other indices or turn numbers, or other columns")
    except (pa.ArrowException, OverflowError, UserError) as error:
        messages.append(f"its configuration does not fit the tables ({error})")

    # 3) each episode, and the summary
    for number, episode in enumerate(result.episodes):
        try:
            steps, score = judged(episode, game)
            found = reply_problems(episode, steps, built_in)
            stored = [*map(asdict, result.steps[number]), asdict(result.scores[number])]
            if not agree([*map(asdict, steps), asdict(score)], stored):
                found.append("its scores do not follow from its steps")
        except ValueError as error:
            found = [str(error)]
        messages += [f"episode {number}: {problem}" for problem in found]
    near, replies = result.summary.get("near_draws"), [step.completion for episode in result.episodes for step in episode.steps]
    if near is not None and (misfit(near, int) or not 0 <= near <= sum(reply.tokens[1] or 1 for reply in replies)):
        return [*messages, "its number of near draws does not fit its replies"]
    if not messages and not agree(run_summary(config, result.episodes, result.scores, result.steps, near), result.summary):
        messages.append("the summary does not follow from the episodes")
    return messages


def claim_problems(config: Mapping[str, Any]) -> list[str]:
    """The faults of the harness, the suite and the identity in a checked configuration, as readable messages."""
    if config["harness"] != HARNESS:
        return [f"it was made by version {config['harness']} of the harness, this is {HARNESS}"]
    messages = []
    if suite := built_in_suite(config["suite"]):
        has, says = f"{suite.episodes} {suite.split} episodes", f"{config['episodes']} {config['split']} episodes"
        if has != says:
            messages.append(
                f"the suite {suite.name} has {has}, its configuration says {says}: give a suite of your own another name"
            )
        elif config["task"] not in suite.tasks:
            messages.append(f"the suite {suite.name} has no task {config['task'][:80]}")
    if identity := identity_problems(config["player"], config["identity"]):
        return [*messages, *identity]
    if kind_of(config["identity"]).batched and misfit(config["identity"].get("batch_size"), Count):
        messages.append(f"its identity is incomplete: {config['identity']['kind']} without a valid batch_size")
    return messages


def unchecked(result: Result) -> list[str]:
    """The parts of a run that cannot be checked, as readable messages."""
    own = built_in_suite(result.config["suite"]) is None
    size = [f"number of episodes not checked: {result.config['suite']} is not a built-in suite"] if own else []
    return [*not_replayed(result.task, result.prompt_format), *size]


def not_replayed(game_id: str, prompt_format: str) -> list[str]:
    """Why episodes of a game cannot be simulated again, and why replies cannot be parsed again, as readable messages."""
    messages = []
    if is_remote(make_game(game_id)):
        messages.append(f"observations, rewards and ends not simulated again: the rules of {game_id} run elsewhere")
    if prompt_format not in PROMPT_FORMATS:  # foreign code is never imported
        messages.append(f"replies not checked: the format {prompt_format} is not built in")
    return messages


def reply_problems(episode: Episode, scores: Sequence[StepScore], prompt_format: PromptFormat | None) -> list[str]:
    """The steps with a wrong action, status or legality, as readable messages; replies only of a built-in format."""
    game, messages = make_game(episode.game_id), []
    for turn, (step, score) in enumerate(zip(episode.steps, scores, strict=True), 1):
        if prompt_format and prompt_format.parse(step.completion.text, game.actions) != step.action:
            messages.append(f"turn {turn}: its reply does not parse to {step.action!r}")
        if step.legal != (step.action in score.legal_actions) or step.status != reply_status(step.action, step.completion):
            messages.append(f"turn {turn}: its status or its legality does not follow from the rules")
    return messages


def agree(a: Any, b: Any) -> bool:
    """Whether two records are equal, up to rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(agree(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=0, abs_tol=ROUNDING)
    return bool(a == b)


# ---- rollouts


def verify_rollouts(folder: Path) -> list[dict[str, Any]]:
    """Checks the episodes of a rollout dataset, or of the log of a training run, whose episodes have no scores yet.

    Each is replayed as in `verify`. Its prompts, legal and optimal actions, regrets and sums must follow from the rules.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}

    def row_of(player: str, game: str) -> dict[str, Any]:
        empty = {"player": player, "task": game, "folder": str(folder), "episodes": 0, "problems": [], "unchecked": []}
        return rows.setdefault((player, game), empty)

    for heads, steps in shards(folder):
        try:
            for head, stored in episode_rows(read_table(heads, "default"), read_table(steps, "steps")):
                row = row_of(head["player"] or "training", head["game"])
                row["episodes"] += 1
                found = _rollout_problems(head, stored)
                place = f"{heads.name}, seed {head['seed']}, member {head['member']}"
                row["problems"] += [f"{place}: {problem}" for problem in found]
                more = [] if found else not_replayed(head["game"], head["prompt_format"])
                row["unchecked"] += [message for message in more if message not in row["unchecked"]]
        except (UserError, ValueError, TypeError) as error:
            row_of(heads.name, "?")["problems"].append(str(error))
    if missing := missing_updates(folder):
        row_of("training", "?")["problems"].append(f"the episodes of update {missing[0]} are missing")
    return list(rows.values())


def _rollout_problems(head: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Everything in one episode that disagrees with the rules, as readable messages."""
    # the log of a training run has no origin
    origin = Origin(**{field.name: head[field.name] for field in fields(Origin)}) if head["run"] is not None else None
    try:
        rollout = rollout_of(head, steps)
        scores = judged(rollout.episode)
        messages = reply_problems(rollout.episode, scores[0], PROMPT_FORMATS.get(rollout.prompt_format))
        expected_head, expected_steps = rows_of(rollout, origin, scores if origin else None)
    except (UserError, ValueError, TypeError) as error:
        return [str(error)]
    compared = [("", dict.fromkeys(EPISODE_COLUMNS) | expected_head, head)]
    for turn, (expected, stored) in enumerate(zip(expected_steps, steps, strict=True), start=1):
        compared.append((f"turn {turn}: ", dict.fromkeys(STEP_COLUMNS) | expected, stored))
    for place, values, stored in compared:
        names = [name for name, value in values.items() if not agree(value, stored[name])]
        messages += [f"{place}{name} does not follow from the actions" for name in names]
    return messages


def checked_rollouts(heads: Path, steps: Path) -> list[Rollout]:
    """The episodes of an untrusted shard. Raises `UserError` unless each replays and its replies parse to its actions."""
    try:
        rollouts = read_rollouts(read_table(heads, "default"), read_table(steps, "steps"))
        for rollout in rollouts:
            episode = rollout.episode
            for problem in reply_problems(episode, judged(episode)[0], PROMPT_FORMATS.get(rollout.prompt_format)):
                raise ValueError(f"seed {episode.seed}, member {episode.member}: {problem}")
    except UserError:
        raise
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{str(heads)!r} is refused ({error}): expected what was played; `msgrpo verify` shows details"
        ) from error
    return rollouts


# ---- runs from untrusted sources: sizes, keys, names and columns are checked before anything is computed from them

FILES = {run_files.CONFIG: 100_000, run_files.RESULTS: 100_000, run_files.EPISODES: 10_000_000, run_files.STEPS: 100_000_000}
"""The files of a published run, with the largest size of each in bytes."""

_MOST_EPISODES = 10_000
_LONGEST_REPLY = 200_000  # characters

_NAME = re.compile(r"[A-Za-z0-9][\w .,:;()@+#/=~%?&-]{0,199}", re.ASCII)
"""The characters of names. Names are printed in terminals and in Markdown."""


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Checks the sizes of a run's files. Raises `UserError` for a missing or too large file."""
    for name, largest in FILES.items():
        if name not in sizes:
            raise UserError(f"it has no {name}")
        if sizes[name] > largest:
            raise UserError(f"its {name} has {sizes[name]:,} bytes: expected at most {largest:,}")


def checked_run(folder: Path) -> Result:
    """The run in a folder, replayed. Raises `UserError` with the first problem of a run that must not be displayed."""
    check_sizes({name: (folder / name).stat().st_size for name in FILES if (folder / name).is_file()})
    config = read_json(folder / run_files.CONFIG, "JSON")
    _check_claims(config)
    total = config["episodes"] * config.get("repeats", 1)
    episodes = read_table(folder / run_files.EPISODES, "default", total)
    steps = read_table(folder / run_files.STEPS, "steps", total * make_game(config["task"]).horizon)
    for column in ("reply", "observation"):
        if (pc.max(pc.utf8_length(steps[column])).as_py() or 0) > _LONGEST_REPLY:
            raise UserError(f"it has a {column} of more than {_LONGEST_REPLY:,} characters")
    result = load_result(folder)
    if not result.complete or len(episodes) != total:
        raise UserError(f"it is not complete: it has {len(episodes)} of {total} episodes")
    if messages := [*problems(result), *not_replayed(result.task, result.prompt_format)]:
        raise UserError(messages[0])
    return result


def _check_claims(config: Mapping[str, Any]) -> None:
    """Checks the keys and values of a configuration that are computed with or printed."""
    if config.keys() | {"repeats"} != CONFIG.keys():
        raise UserError(f"its {run_files.CONFIG} has other keys: expected {', '.join(sorted(CONFIG))}")
    check_values(config)
    if config["episodes"] * config.get("repeats", 1) > _MOST_EPISODES:
        raise UserError(f"it has more than {_MOST_EPISODES:,} episodes")
    identity = config["identity"]
    names = [*(value for value in (*config.values(), *identity.values()) if isinstance(value, str)), *identity]
    if len(identity) > 40 or not all(_NAME.fullmatch(name) for name in names):
        raise UserError("it has a name that is not plain: expected letters, digits and simple punctuation")
    numbers = [value for value in identity.values() if value is not None and not isinstance(value, str)]
    if not all(isinstance(number, (bool, int, float)) and abs(number) < 1e12 for number in numbers):  # false for infinity and NaN
        raise UserError("its identity has values that are neither plain names nor numbers")
    if messages := claim_problems(config):
        raise UserError(messages[0])
