"""Verification: stored runs and rollouts are replayed, and every figure in them must follow from the rules.

A run's folder is named by the hash of its configuration. The configuration must be possible, the episodes must be the suite's,
each stored reply must parse to its stored action, and the actions must lead to the stored observations, rewards and scores.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, PromptFormat, format_hash
from msgrpo_hub.episode import Episode, StepScore
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import CONFIG, Result, check_values, find_runs, load_result, run_hash, run_tables
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import HARNESS, built_in_suite, hash_of, run_seeds
from msgrpo_hub.evaluation.summary import run_summary
from msgrpo_hub.fields import Count, Range, misfit
from msgrpo_hub.games import episode_seed, is_remote, make_game, splits_of, stream
from msgrpo_hub.games.seeds import split_of
from msgrpo_hub.players.registry import SCRIPTED, identity_problems, kind_of
from msgrpo_hub.rollout import play_episodes, reply_status
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import files_below, read_json
from msgrpo_hub.storage.schema import EPISODE_COLUMNS, STEP_COLUMNS
from msgrpo_hub.storage.shards import read_table, shards
from msgrpo_hub.storage.tables import Origin, Rollout, episode_rows, rollout_of, rows_of

NOT_CHECKED = "tokens, log-probabilities, advantages, selection, and who gave the replies"
REPLAYED = f"Replayed: actions, rewards and scores follow from the replies. Not checked: {NOT_CHECKED}."
"""Below a table of replayed runs."""
ROUNDING = 1e-9
"""Tolerance for exact values and intervals, since processors add in different orders. Rewards must be equal."""
_ABOVE_0 = 1e-6
"""Largest log-probability; servers round."""


def verify_folder(folder: Path) -> list[dict[str, Any]]:
    """Checks the runs of `msgrpo eval` below a folder, and the episodes of a rollout dataset or a training run.

    Returns one row per run, or per player and game of a dataset: player, task, folder, episodes, problems (empty if everything
    agrees), and unchecked, the parts that could not be checked. Raises `UserError` for a folder without episodes.
    """
    rollouts = verify_rollouts(folder)
    names = (run_files.RESULTS,) if rollouts else (run_files.RESULTS, run_files.EPISODES)
    if files_below(folder, *names):
        return [*rollouts, *verify(folder)]
    if not rollouts:
        raise UserError(f"no episodes under {str(folder)!r}: expected one of `msgrpo eval`, or of `msgrpo train --save-rollouts`")
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
            row |= {"problems": messages, "unchecked": [] if messages else unchecked(result)}
        except UserError as error:
            row |= {"problems": [str(error)], "unchecked": []}
        if not row["problems"] or run.exists():  # a run that has vanished has no row
            rows.append(row)
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
    kind = config["identity"]["kind"]
    scripted, local = (result.player if kind == "scripted" else None), kind == "language model"
    limit = config["identity"]["max_new_tokens"] if local else None
    for number, episode in enumerate(result.episodes):
        try:
            steps, score = judged(episode, game)
            found = reply_problems(episode, steps, built_in, scripted) + token_problems(episode, limit, counted=local)
            stored = [*map(asdict, result.steps[number]), asdict(result.scores[number])]
            if not agree([*map(asdict, steps), asdict(score)], stored):
                found.append("its scores do not follow from its steps")
        except ValueError as error:
            found = [str(error)]
        messages += [f"episode {number}: {problem}" for problem in found]
    near, replies = result.summary.get("near_draws"), [step.completion for episode in result.episodes for step in episode.steps]
    known = local or (kind == "entry point" and near is not None)
    most = sum(reply.tokens[1] or 1 for reply in replies)
    if misfit(near, Annotated[int, Range(0, most)]) if known else near is not None:
        return [*messages, "its number of near draws does not fit its replies"]
    if not messages and not agree(run_summary(config, result.episodes, result.scores, result.steps, near), result.summary):
        messages.append("the summary does not follow from the episodes")
    return messages


def claim_problems(config: Mapping[str, Any]) -> list[str]:
    """The faults of the harness, the suite and the identity in a checked configuration, as readable messages."""
    if config["harness"] != HARNESS:
        return [f"it was made by version {config['harness']} of the harness, this is {HARNESS}"]
    if config.keys() | {"repeats"} != CONFIG.keys():
        return [f"its {run_files.CONFIG} has other keys: expected {', '.join(sorted(CONFIG))}"]
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


def reply_problems(
    episode: Episode, scores: Sequence[StepScore], prompt_format: PromptFormat | None, scripted: str | None = None
) -> list[str]:
    """The faults of replies in a built-in format, of status and legality, and of moves that `scripted` does not make."""
    game, messages = make_game(episode.game_id), []
    for turn, (step, score) in enumerate(zip(episode.steps, scores, strict=True), 1):
        if prompt_format and prompt_format.parse(step.completion.text, game.actions) != step.action:
            messages.append(f"turn {turn}: its reply does not parse to {step.action!r}")
        if step.legal != (step.action in score.legal_actions) or step.status != reply_status(step.action, step.completion):
            messages.append(f"turn {turn}: its status or its legality does not follow from the rules")
    if scripted and prompt_format and not is_remote(game):
        policy, key = ScriptedPolicy(SCRIPTED[scripted]), (episode.seed, episode.member)
        if play_episodes(game, policy, [key], prompt_format=prompt_format) != [episode]:
            messages.append(f"the player {scripted} plays otherwise")
    return messages


def token_problems(episode: Episode, limit: int | None, *, counted: bool = False, stored: bool = False) -> list[str]:
    """The steps with impossible tokens, as messages: a truncated reply has `limit` tokens, and no reply more."""
    messages = []
    for turn, step in enumerate(episode.steps, 1):
        reply, (read, written) = step.completion, step.completion.tokens
        ids, log_probs, entropies = reply.token_ids, reply.log_probs, reply.entropies
        fits = min(read or 0, written or 0, *reply.prompt_ids, *ids) >= 0
        if stored:  # servers give no entropies
            fits &= len(ids) == len(log_probs) == len(entropies or ids) and bool(reply.prompt_ids and ids)
            fits &= all(-math.inf < value <= _ABOVE_0 for value in (*log_probs, *(-entropy for entropy in entropies)))
        else:
            fits &= not (reply.prompt_ids or ids or log_probs or entropies or (counted and read is None))
        if limit is not None and written is not None:
            fits &= written <= limit and (reply.finish == "stop" or written == limit)
        if not fits:
            messages.append(f"turn {turn}: no reply of its player has these tokens")
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

_SHARD = re.compile(r"(train|validation|test)(?:-([0-9a-f]{16}))?(?:-([0-9]{5,7}))?(?:-([0-9]{5,7}))?(?:-[0-9a-f]{8})?")
"""The name of a shard: its split, its run, and its first and last update."""


def verify_rollouts(folder: Path) -> list[dict[str, Any]]:
    """Checks the episodes of a rollout dataset or a training log by the rules, as `verify` does, with their prompts."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for place, head, _, found in read_episodes(folder):
        key = (head["player"] or "training", head["game"] or "?") if head else (place, "?")
        empty = {"episodes": 0, "problems": [], "unchecked": []}
        row = rows.setdefault(key, {"player": key[0], "task": key[1], "folder": str(folder), **empty})
        row["episodes"] += bool(head)
        row["problems"] += [f"{place}: {problem}" if head else problem for problem in found]
        more = not_replayed(head["game"], head["prompt_format"]) if head and not found else []
        row["unchecked"] += [message for message in more if message not in row["unchecked"]]
    return list(rows.values())


def read_episodes(
    folder: Path, split: str | None = None
) -> Iterator[tuple[str, Mapping[str, Any] | None, Rollout | None, list[str]]]:
    """(place, row, episode, problems) of a dataset or a training log; row and episode are None in a problem of a file or run."""
    # 1) each episode
    runs: dict[str | None, tuple[Any, ...]] = {}
    groups: dict[str | None, dict[tuple[Any, ...], list[int]]] = {}
    for heads, steps in shards(folder):
        if split not in (None, heads.name.partition("-")[0]):
            continue
        try:
            for head, stored in episode_rows(read_table(heads, "default"), read_table(steps, "steps")):
                rollout, found = _checked_rollout(heads.stem, head, stored)
                entropies = {bool(row["entropies"]) for row in stored}  # of all replies, or of none
                settings = (*(head[field.name] for field in fields(Origin)), head["prompt_format"], entropies)
                if runs.setdefault(head["run"], settings) != settings:
                    found.append("its player or a setting differs from the first episode of its run")
                number = head["update"] if head["index"] is None else head["index"] + 1
                group = groups.setdefault(head["run"], {}).setdefault((number or 0, head["game"], head["seed"]), [])
                group.append(head["member"])
                yield f"{heads.name}, seed {head['seed']}, member {head['member']}", head, rollout, found
        except (UserError, ValueError, TypeError) as error:
            yield heads.name, None, None, [str(error)]

    # 2) of each run, every update or board, every group in it and every member
    metrics = folder / "metrics.jsonl"
    logged = metrics.read_bytes().count(b"\n") if metrics.is_file() else 0
    for run, of_run in groups.items():
        counts, sizes = Counter(number for number, *_ in of_run), Counter(map(len, of_run.values()))
        [(size, _)], [(count, _)] = sizes.most_common(1), Counter(counts.values()).most_common(1)
        what = "update" if runs[run][0] in (None, "train") else "board"
        last = max(logged if what == "update" else 0, *counts)
        if missing := next((number for number in range(1, last + 1) if number not in counts), 0):
            yield what, None, None, [f"the episodes of {what} {missing} are missing"]
        wrong = [number for (number, *_), members in of_run.items() if Counter(members) != Counter(range(size))]
        if wrong := [*wrong, *(number for number, there in counts.items() if there != count)]:
            yield what, None, None, [f"{what} {min(wrong)} lacks episodes, or has some twice"]


def _checked_rollout(shard: str, head: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> tuple[Rollout | None, list[str]]:
    """An episode, and everything in it that disagrees with the rules or with the name of its shard, as readable messages."""
    # the log of a training run has no origin
    origin = Origin(**{field.name: head[field.name] for field in fields(Origin)}) if head["run"] is not None else None
    try:
        # 1) where it belongs
        game, update, index = make_game(head["game"]), head["update"], head["index"]
        split: Any = head["split"] if origin else "train"
        trained, messages = update is not None, []
        if name := _SHARD.fullmatch(shard):
            there, run, first, last = name.groups()
            if (there, run) != (split, head["run"]) or not int(first or 0) <= (update or 0) <= int(last or first or 0):
                messages.append(f"it does not belong in {shard}")
        # all of this is true of an episode of training, and false of one of an evaluation
        told = [head["player"] == "training" if origin else trained, index is None, split == "train"]
        told += [head[name] is not None for name in ("advantage", "selected")]
        told += [head[name] is not None for name in ("base", "temperature", "max_new_tokens") if origin and trained]
        if {*told} != {trained} or not head["prompt_format"] or not -math.inf < (head["advantage"] or 0) < math.inf:
            messages.append("its player, split, update, index, advantage and selection do not fit together")
        elif trained and splits_of(game.id).are_apart:
            state = game.initial_state(stream(head["seed"], "initial_state"))
            messages += [] if split_of(game, state) == "train" else ["its board is not of the split train"]
        elif not trained and episode_seed(game.id, split, index) != head["seed"]:
            messages.append(f"its seed is not that of board {index} of the split {split}")

        # 2) its content
        rollout = rollout_of(head, steps)
        scores, built_in = judged(rollout.episode), PROMPT_FORMATS.get(rollout.prompt_format)
        scripted = head["player"] if head["player"] in SCRIPTED and not head["base"] else None
        messages += reply_problems(rollout.episode, scores[0], built_in, scripted)
        messages += token_problems(rollout.episode, head["max_new_tokens"] if trained else None, stored=trained)
        expected_head, expected_steps = rows_of(rollout, origin, scores if origin else None)
    except (UserError, ValueError, TypeError) as error:
        return None, [str(error)]
    compared = [("", dict.fromkeys(EPISODE_COLUMNS) | expected_head, head)]
    for turn, (expected, stored) in enumerate(zip(expected_steps, steps, strict=True), start=1):
        compared.append((f"turn {turn}: ", dict.fromkeys(STEP_COLUMNS) | expected, stored))
    for place, values, stored in compared:
        names = [name for name, value in values.items() if not agree(value, stored[name])]
        messages += [f"{place}{name} does not follow from the actions" for name in names]
    return rollout, messages


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
