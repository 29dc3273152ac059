"""Verification: a stored run is played again on the CPU, and everything in it must come out the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.hashes import run_hash
from msgrpo_hub.evaluation.runner import Result, find_results
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.evaluation.suites import task_hash
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.games import Game, episode_seed, make_game
from msgrpo_hub.rollout import reply_status


def verify(folder: Path) -> list[dict[str, Any]]:
    """Checks every run under a folder.

    Each episode must begin from the seed of its index; each stored reply must parse to its stored action, and the actions
    must lead to the stored observations, rewards, end and success; scores and summary must follow from them. What only the
    player could tell, whether it gave these replies, cannot be checked.

    Returns:
        One row per run: player, task, folder, episodes, problems (none where all agrees).
    """
    return [
        {
            "player": result.player,
            "task": result.task,
            "folder": str(result.folder),
            "episodes": len(result.episodes),
            "problems": problems(result),
        }
        for result in find_results(folder)
    ]


def problems(result: Result) -> list[str]:
    """What does not agree with the rules, in words."""
    game, config = make_game(result.task), result.config
    found = []
    if result.folder.name != run_hash(config):
        found.append(f"the run hash of its configuration is {run_hash(config)}, its folder is {result.folder.name}")
    if (now := task_hash(game)) != config["task_hash"]:
        found.append(f"it was played on {config['task_hash']}, this version of the game is {now}")
    seeds = {episode_seed(game.id, config["split"], index) for index in range(config["episodes"])}
    played = [episode.seed for episode in result.episodes]
    if not set(played) <= seeds or len(set(played)) < len(played):
        found.append("its episodes are not those of the suite, each once")
    for number, episode in enumerate(result.episodes):
        found += [f"episode {number}: {problem}" for problem in _episode_problems(game, result, number, episode)]
    if not found and _summary(result) != result.summary:
        found.append("the summary does not follow from the episodes")
    return found


def _episode_problems(game: Game, result: Result, number: int, episode: Episode) -> list[str]:
    try:
        steps = score_steps(game, episode)
    except ValueError as error:
        return [str(error)]
    found = []
    for turn, (step, score) in enumerate(zip(episode.steps, steps, strict=True), start=1):
        if parse_action(step.completion.text, game.actions) != step.action:
            found.append(f"turn {turn}: its reply does not say {step.action!r}")
        if step.legal != (step.action in score.legal_actions) or step.status != reply_status(step.action, step.completion):
            found.append(f"turn {turn}: its status or its legality is not what the rules say")
    if steps != result.steps[number] or score_episode(game, episode, steps) != result.scores[number]:
        found.append("its scores do not follow from its play")
    return found


def _summary(result: Result) -> dict[str, Any]:
    config, seeds = result.config, [episode.seed for episode in result.episodes]
    missing = config["episodes"] - len(seeds)
    figures = summarise(result.task, seeds, result.scores, int(run_hash(config), 16))
    return {"complete": not missing, "failed": missing, **figures}
