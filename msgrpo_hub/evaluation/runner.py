"""Runs: a player meets the tasks of a suite, batch by batch; every finished batch is on the disk.

A run that was interrupted goes on where it stopped, and its files come out the same to the byte. What a server failed to
answer is played again by the next call; until then the run says that it is not complete, and nothing of it is scored.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format, format_hash
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result, load_result, run_hash, run_tables
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.evaluation.suites import HARNESS, Suite, hash_of, load_suite
from msgrpo_hub.evaluation.summary import summarise
from msgrpo_hub.games import make_game
from msgrpo_hub.players.identity import Player, PlayerSettings, identify
from msgrpo_hub.players.registry import can_play, check_near_miss, entry_point
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import write_json

BATCH = 50
"""Episodes that are played together by default; results do not depend on it."""


def evaluate(
    players: Sequence[str] | str,
    suite: str | Suite = "quick",
    output_dir: Path | str = "runs/eval",
    *,
    settings: PlayerSettings | None = None,
    batch_size: int = BATCH,
) -> list[Result]:
    """Plays a suite with some players and keeps everything under the output folder; goes on where it was interrupted.

    Args:
        players: names as `msgrpo eval` takes them; they share nothing but the seeds.
        suite: name of a suite, or path of a TOML file.
        output_dir: results go to `<player>/<commit>/<task>/<run hash>/` in it.
        settings: how models act; by default sampled at temperature 0.5.
        batch_size: episodes played together; more is faster and takes more memory. Results do not depend on it.

    Returns:
        One result per player and task; `optimal` plays only the games that are solved.

    Raises:
        UserError: for an unknown player, suite or game, a player who knows no task of the suite, an output folder that
            cannot be written to, or one that holds another run under the same name.

    >>> import tempfile
    >>> results = evaluate("optimal", Suite(name="mine", tasks=("FrozenLake-NotSlippery-v1",), episodes=5), tempfile.mkdtemp())
    >>> results[0].summary["success"]["mean"]
    1.0
    """
    chosen = load_suite(suite) if isinstance(suite, str) else suite
    names = [players] if isinstance(players, str) else list(players)
    tasks = {name: _known_tasks(name, chosen) for name in names}
    results = []
    for name in names:
        player = identify(name, settings or PlayerSettings())  # loaded one after the other: two large models may not fit
        results += [run_task(player, chosen, task, Path(output_dir), batch_size) for task in tasks[name]]
    return results


def _known_tasks(name: str, suite: Suite) -> list[str]:
    """The tasks of a suite that a player can play. A misspelt name is refused here, before another player's long run."""
    if not entry_point(name):
        check_near_miss(name)
    tasks = [task for task in suite.tasks if can_play(name, make_game(task))]
    if not tasks:
        raise UserError(f"{name!r} can play no task of the suite {suite.name!r}: take another player or suite")
    return tasks


def run_task(player: Player, suite: Suite, task: str, output_dir: Path, batch_size: int = BATCH) -> Result:
    """Plays one task to its end, or as far as it goes, and writes the run's files."""
    config = run_config(player, suite, task)
    folder = output_dir / player.folder / task.replace(":", "-") / run_hash(config)
    if (folder / run_files.RESULTS).exists():
        done = load_result(folder)
        if done.config != config:
            raise UserError(f"{str(folder)!r} holds another run than its name says: move it away, or name another output folder")
        if done.complete:
            (folder / run_files.LOG).unlink(missing_ok=True)  # where the call that completed it was killed just before
            return done
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / run_files.CONFIG, config)
    except OSError as error:
        raise UserError(f"cannot write to {str(folder)!r} ({error.strerror}): name another output folder") from error
    _play(player, suite, task, folder, batch_size)
    return finish(folder, config)


def asked_in(player: Player, suite: Suite) -> PromptFormat:
    """The prompt format of a run: the one chosen for the player, or else its adapter's, or else the suite's."""
    return format_of(player.policy, player.prompt_format, find_format(suite.prompt_format))


def run_config(player: Player, suite: Suite, task: str) -> dict[str, Any]:
    """All that decides the result of a run."""
    prompt_format = asked_in(player, suite)
    return {
        "harness": HARNESS,
        "player": player.name,
        "identity": player.identity,
        "prompt_format": prompt_format.name,
        "prompt_format_hash": format_hash(prompt_format),
        "task": task,
        "task_hash": hash_of(task),
        "suite": suite.name,
        "split": suite.split,
        "episodes": suite.episodes,
    }


def _play(player: Player, suite: Suite, task: str, folder: Path, batch_size: int) -> None:
    """Plays what the log does not hold yet."""
    game, log, seeds = make_game(task), folder / run_files.LOG, suite.seeds(task)
    prompt_format = asked_in(player, suite)
    done, _ = run_files.read_log(log, game.id)
    missing = [index for index in range(suite.episodes) if index not in done]
    rewards = [episode.reward for episode in done.values()]
    with tqdm(desc=f"{player.name[-30:]} · {task}", unit="episode", total=suite.episodes, initial=len(done)) as bar:
        for start in range(0, len(missing), batch_size):
            batch, began = missing[start : start + batch_size], time.monotonic()
            episodes = play_episodes(game, player.policy, [(seeds[i], 0) for i in batch], prompt_format=prompt_format)
            played = list(zip(batch, episodes, strict=True))
            whole = [(index, episode) for index, episode in played if not episode.error]
            run_files.append_episodes(log, whole, time.monotonic() - began)
            rewards += [episode.reward for _, episode in whole]
            bar.update(len(whole))
            bar.set_postfix(reward=f"{sum(rewards) / max(len(rewards), 1):.3f}", failed=len(played) - len(whole))


def finish(folder: Path, config: dict[str, Any]) -> Result:
    """Scores what the log holds and writes the final files; a complete run needs its log no more."""
    game, log = make_game(config["task"]), folder / run_files.LOG
    done, seconds = run_files.read_log(log, game.id)
    episodes = [done[index] for index in sorted(done)]
    steps = [score_steps(game, episode) for episode in episodes]
    scores = [score_episode(game, episode, judged) for episode, judged in zip(episodes, steps, strict=True)]
    complete = len(episodes) == config["episodes"]
    seeds = [episode.seed for episode in episodes]
    summary: dict[str, Any] = {"run": run_hash(config), "complete": complete, "failed": config["episodes"] - len(episodes)}
    summary |= summarise(config["task"], seeds, scores, int(run_hash(config), 16))
    run_files.write_tables(folder, run_tables(config, sorted(done), episodes, scores, steps))
    timing = {"seconds": seconds, "episodes_per_second": len(episodes) / seconds if seconds else None}
    write_json(folder / run_files.TIMING, timing)
    write_json(folder / run_files.RESULTS, summary)
    if complete:
        log.unlink(missing_ok=True)
    return Result(folder=folder, config=config, summary=summary, episodes=episodes, scores=scores, steps=steps)
