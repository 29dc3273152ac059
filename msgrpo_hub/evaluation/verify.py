"""Verification: a stored run is replayed on the CPU, and everything in it must follow from the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, PromptFormat, format_hash
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.claims import claim_problems, unchecked_claims
from msgrpo_hub.evaluation.results import Result, find_runs, load_result, run_hash, run_origin, run_tables
from msgrpo_hub.evaluation.run_summary import is_plausible, run_summary
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.evaluation.suites import hash_of, repeats_of, run_keys
from msgrpo_hub.evaluation.token_check import token_problems, unchecked_tokens
from msgrpo_hub.games import Game, is_remote, make_game
from msgrpo_hub.rollout import replayed_states, reply_status
from msgrpo_hub.storage.run_files import TABLES
from msgrpo_hub.storage.shards import read_table
from msgrpo_hub.storage.tables import Origin, prompts_of

ROUNDING = 1e-9
"""Tolerance for exact values and intervals, since processors add in different orders. Rewards must be equal."""


def verify(folder: Path) -> list[dict[str, Any]]:
    """Checks every run under a folder.

    Each episode must start from the seed of its index, with the randomness of its member. Each stored reply must parse to its
    stored action, and the actions must lead to the stored observations, rewards, end and success. Scores and summary must
    follow from them. Whether the player really gave these replies cannot be checked.

    Returns:
        One row per run: player, task, folder, episodes, problems (empty if everything agrees), and unchecked, what could not
        be checked: the replies of a prompt format that is not built in, since such formats are never imported.
    """
    return [_verified(run) for run in find_runs(folder)]


def _verified(folder: Path) -> dict[str, Any]:
    try:
        result = load_result(folder)
        name = str(result.config.get("player", "?"))
        found = {"player": name, "task": result.task, "folder": str(folder), "episodes": len(result.episodes)}
        messages = problems(result)
        return found | {"problems": messages, "unchecked": [] if messages else unchecked(result)}
    except UserError as error:
        row = {"player": "?", "task": folder.parent.name, "folder": str(folder)}
        return row | {"episodes": 0, "problems": [str(error)], "unchecked": []}


def problems(result: Result) -> list[str]:
    """What disagrees with the rules, as readable messages."""
    config, messages = result.config, []
    if result.folder.name != run_hash(config):
        return [f"the run hash of its configuration is {run_hash(config)}, its folder is {result.folder.name}"]
    if claims := claim_problems(config):
        return claims
    game = make_game(result.task)
    if config["task_hash"] != (now := hash_of(result.task)):
        messages.append(f"it was played on {config['task_hash']}, but the hash of this version of the game is {now}")
    built_in = PROMPT_FORMATS.get(result.prompt_format)
    if built_in and config["prompt_format_hash"] != format_hash(built_in):
        messages.append(f"its prompt format {built_in.name} differs from that of this version")
    keys = {key: index for index, key in enumerate(run_keys(config))}
    played = [keys.get((episode.seed, episode.member), -1) for episode in result.episodes]
    if -1 in played or played != sorted(set(played)):
        return [*messages, "its episodes are not those of the suite, each once and in order"]
    if missing := len(keys) - len(played):
        messages.append(f"it is not complete: {missing} of {len(keys)} episodes are missing, play it again")
    messages += _table_problems(result, [index // repeats_of(config) for index in played])
    for number, episode in enumerate(result.episodes):
        messages += [f"episode {number}: {problem}" for problem in _episode_problems(game, result, number, episode)]
    near = result.summary.get("near_draws")
    if not messages and not agree(run_summary(config, result.episodes, result.scores, result.steps, near), result.summary):
        messages.append("the summary does not follow from the episodes")
    return messages if is_plausible(result) else [*messages, "its number of near draws does not fit its replies"]


def unchecked(result: Result) -> list[str]:
    """What cannot be checked, as readable messages."""
    origin = run_origin(result.config)
    tokens = [message for episode in result.episodes for message in unchecked_tokens(origin, episode)]
    foreign = [*unchecked_rules(result.task), *unchecked_replies(result.prompt_format)]
    return [*foreign, *unchecked_claims(result.config), *dict.fromkeys(tokens)]


def unchecked_rules(game_id: str) -> list[str]:
    """Whether episodes cannot be simulated again, because the rules of their game run elsewhere."""
    try:
        remote = is_remote(make_game(game_id))
    except UserError:  # a problem of its own
        return []
    return [f"observations, rewards and ends not simulated again: the rules of {game_id} run elsewhere"] if remote else []


def unchecked_replies(prompt_format: str) -> list[str]:
    """Whether replies cannot be parsed again, because their format is not built in and foreign code is never imported."""
    return [] if prompt_format in PROMPT_FORMATS else [f"replies not checked: the format {prompt_format} is not built in"]


def _table_problems(result: Result, indices: Sequence[int]) -> list[str]:
    """Differences between the tables of a run and those written from its episodes."""
    try:
        expected = run_tables(result.config, indices, result.episodes, result.scores, result.steps)
    except (pa.ArrowException, OverflowError, UserError) as error:
        return [f"its configuration does not fit the tables ({error})"]
    messages = []
    for config, name in TABLES.items():
        if not read_table(result.folder / name, config).equals(expected[config]):
            messages.append(f"{name} has other indices or turn numbers, or other columns")
    return messages


def _episode_problems(game: Game, result: Result, number: int, episode: Episode) -> list[str]:
    try:
        steps = score_steps(game, episode)
    except ValueError as error:
        return [str(error)]
    legal = [step.legal_actions for step in steps]
    messages = reply_problems(episode, legal, PROMPT_FORMATS.get(result.prompt_format), run_origin(result.config))
    scores = [*map(asdict, steps), asdict(score_episode(game, episode, steps))]
    if not agree(scores, [*map(asdict, result.steps[number]), asdict(result.scores[number])]):
        messages.append("its scores do not follow from its steps")
    return messages


def legal_actions(episode: Episode) -> list[tuple[str, ...]]:
    """The legal actions of every step of an episode. Raises `ValueError` for a record that does not replay."""
    game = make_game(episode.game_id)
    return [game.legal_actions(state) for state, _ in zip(replayed_states(game, episode), episode.steps, strict=False)]


def reply_problems(
    episode: Episode, legal: Sequence[Sequence[str]], prompt_format: PromptFormat | None, origin: Origin | None
) -> list[str]:
    """Steps whose action, status, legality or tokens are wrong, as readable messages.

    Args:
        episode: an episode that replays.
        legal: the legal actions of each of its steps.
        prompt_format: parses its replies; None if the format is not built in.
        origin: whose tokenizer and token limit apply; None if they are not known.
    """
    game, messages = make_game(episode.game_id), []
    prompts = prompts_of(episode, prompt_format) if prompt_format else [None] * len(episode.steps)
    for turn, (step, allowed, prompt) in enumerate(zip(episode.steps, legal, prompts, strict=True), 1):
        found = token_problems(origin, step.completion, prompt) if origin else []
        if prompt_format and prompt_format.parse(step.completion.text, game.actions) != step.action:
            found.append(f"its reply does not parse to {step.action!r}")
        if step.legal != (step.action in allowed) or step.status != reply_status(step.action, step.completion):
            found.append("its status or its legality does not follow from the rules")
        messages += [f"turn {turn}: {problem}" for problem in found]
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
