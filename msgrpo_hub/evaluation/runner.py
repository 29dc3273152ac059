"""Runs: a player plays the tasks of a suite in batches. Each finished episode is on the disk before the next turn.

An interrupted run resumes, and its files are the same, byte for byte. A local model rounds by the rows of its batch, so its
batches always have the same episodes: a batch with a missing episode is played whole again. For scripted players and servers,
only the missing episodes are played.
The next call repeats an episode that a server failed to answer. Until then the run is not complete and the episode not scored.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tqdm import tqdm

from msgrpo_hub.agent.policy import Policy, format_of
from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format, format_hash
from msgrpo_hub.downloads.names import without_secrets
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result, load_result, run_hash, run_tables
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import HARNESS, Suite, hash_of, load_suite
from msgrpo_hub.evaluation.summary import run_summary
from msgrpo_hub.fields import Count, checked
from msgrpo_hub.games import Game, make_game
from msgrpo_hub.players.registry import Player, can_play, find_player, identify
from msgrpo_hub.players.sample_play import prompts_of
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import disk_errors, hold, write_json

BATCH = 50
"""Default number of episodes played together."""
DELAY, TICK = 2.0, 1.0
"""Seconds until a brief progress bar appears, and between two redraws in a terminal."""


@checked
def evaluate(
    players: Sequence[str] | str,
    suite: str | Suite = "quick",
    output_dir: Path | str = "runs/eval",
    *,
    settings: PlayerSettings | None = None,
    batch_size: Count = BATCH,
    repeats: Count | None = None,
    on_task: Callable[[], object] = lambda: None,
) -> list[Result]:
    """Plays a suite with some players and stores the results in the output folder; an interrupted run resumes.

    Players have the names that `msgrpo eval` takes; `suite` may be the path of a TOML file. Results go to
    `<player>/<commit>/<task>/<run hash>/` in `output_dir`. Models sample at temperature 0.5 without `settings`. A local model
    rounds by the batch, so another `batch_size` is another run. `repeats` is the number of plays of each board, each with its own
    dynamics and sampling; None uses the suite's. `on_task` is called after each task of each player.

    Returns one result per player and task; `optimal` plays only the games that are solved. Raises `UserError` if a player, suite
    or game is unknown, a player can play no task, or the output folder cannot be written to.

    >>> import tempfile
    >>> results = evaluate("optimal", Suite(name="mine", tasks=("FrozenLake-NotSlippery-v1",), episodes=5), tempfile.mkdtemp())
    >>> results[0].summary["success"]["mean"]
    1.0
    """
    chosen = load_suite(suite) if isinstance(suite, str) else suite
    chosen = replace(chosen, repeats=repeats) if repeats else chosen
    names = [players] if isinstance(players, str) else list(players)
    if not names:
        raise UserError("no players: expected the name of at least one")
    tasks = {name: known_tasks(name, chosen) for name in names}
    for name, own in tasks.items():
        if left := [task for task in chosen.tasks if task not in own]:
            print(f"{without_secrets(name)} does not play {', '.join(left)}: left out", file=sys.stderr, flush=True)
    results = []
    for name in names:
        expected = prompts_of([make_game(task) for task in tasks[name]], find_format(chosen.prompt_format))
        player = identify(name, settings or PlayerSettings(), expected)  # one at a time: two may not fit in memory
        for task in tasks[name]:
            results.append(run_task(player, chosen, task, Path(output_dir), batch_size))
            on_task()
    return results


def known_tasks(name: str, suite: Suite) -> list[str]:
    """The tasks of a suite that a player can play. Rejects a misspelt name before another player's long run starts."""
    find_player(name)
    tasks = [task for task in suite.tasks if can_play(name, make_game(task))]
    if not tasks:
        raise UserError(f"{name!r} can play no task of the suite {suite.name!r}: choose another player or suite")
    return tasks


def run_task(player: Player, suite: Suite, task: str, output_dir: Path, batch_size: int = BATCH) -> Result:
    """Plays one task and writes the files of the run. Episodes that failed are left for the next call."""
    config = run_config(player, suite, task, batch_size)
    folder = output_dir / player.folder / task.replace(":", "-") / run_hash(config)
    if (done := _stored(folder, config)) and done.complete:
        return done
    refused: list[str] = getattr(player.policy, "refusals", list)()  # the first call asks the server, if there is one
    if refused and player.identity.get("refused") != refused:
        asked = replace(player, identity=player.identity | {"refused": refused})
        return run_task(asked, suite, task, output_dir, batch_size)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {str(folder)!r} ({error.strerror}): choose another output folder") from error
    waiting = f"another process plays {player.name} on {task}: waiting for its result"
    with (
        disk_errors(folder, lambda: f"{len(run_files.read_rows(folder / run_files.LOG))} finished episodes are safe there"),
        hold(folder / run_files.LOCK, waiting, wait=True),
    ):
        done = _stored(folder, config)  # by the process that held the lock
        if done is None or not done.complete:
            write_json(folder / run_files.CONFIG, config)
            game, keys, title = make_game(task), suite.episode_keys(task), f"{player.name[-30:]} · {task}"
            how = asked_in(player, suite), player.batched, batch_size
            play_logged(game, player.policy, keys, folder, title, *how)
            _finish(folder, config)
            done = _stored(folder, config)
        assert done is not None
        return done


def _stored(folder: Path, config: dict[str, Any]) -> Result | None:
    """The stored result, or None; deletes files of an interrupted run. Raises `UserError` if the folder has another run."""
    if not (folder / run_files.RESULTS).exists():
        return None
    done = load_result(folder)
    if done.config != config:
        raise UserError(f"{str(folder)!r} has a different run from the one its name says: move it, or choose another folder")
    for left in (folder / run_files.LOG, folder / run_files.FAILURES, folder / run_files.LOCK):
        if done.complete and left.exists():  # a read-only disk refuses even the removal of nothing
            left.unlink()
    return done


def missing_episodes(player: Player, suite: Suite, task: str, output_dir: Path, batch_size: int = BATCH) -> list[int]:
    """The indices of the episodes that `run_task` would add. Reads the run's files and changes none."""
    folder = output_dir / player.folder / task.replace(":", "-") / run_hash(run_config(player, suite, task, batch_size))
    if (folder / run_files.RESULTS).exists() and load_result(folder).complete:
        return []
    done = {row["index"] for row in run_files.read_rows(folder / run_files.LOG)}
    return [index for index in range(suite.episodes * suite.repeats) if index not in done]


def asked_in(player: Player, suite: Suite) -> PromptFormat:
    """The prompt format of a run: the one chosen for the player, else its adapter's, else the suite's."""
    return format_of(player.policy, player.prompt_format, find_format(suite.prompt_format))


def run_config(player: Player, suite: Suite, task: str, batch_size: int = BATCH) -> dict[str, Any]:
    """Everything that determines the result of a run, on one machine with one number of threads."""
    prompt_format = asked_in(player, suite)
    return {
        "harness": HARNESS,
        "player": player.name,
        "identity": player.identity | ({"batch_size": batch_size} if player.batched else {}),
        "prompt_format": prompt_format.name,
        "prompt_format_hash": format_hash(prompt_format),
        "task": task,
        "task_hash": hash_of(task),
        "suite": suite.name,
        "split": suite.split,
        "episodes": suite.episodes,
        **({"repeats": suite.repeats} if suite.repeats > 1 else {}),
    }


def play_logged(
    game: Game,
    policy: Policy,
    keys: Sequence[tuple[int, int]],
    folder: Path,
    title: str,
    prompt_format: PromptFormat | None,
    batched: bool = True,
    batch_size: int = BATCH,
    show_progress: bool = True,
) -> None:
    """Plays the episodes that are not in the log of a folder yet, in batches; `batched` is whether replies round by the batch."""
    # 1) the batches
    log, failures = folder / run_files.LOG, folder / run_files.FAILURES
    failures.unlink(missing_ok=True)
    done, _ = run_files.read_log(log, game.id)
    of_run = [index for index in range(len(keys)) if batched or index not in done]
    batches = [of_run[start : start + batch_size] for start in range(0, len(of_run), batch_size)]

    # 2) the episodes of a batch, each logged after the turn in which it ends
    rewards, errors = [episode.reward for episode in done.values()], Counter[str]()
    batch, missing, ended, turn = list[int](), set[int](), list[tuple[int, Episode]](), 0

    def on_episode(position: int, episode: Episode) -> None:
        index = batch[position]
        if index not in missing:  # an earlier call has logged it
            return
        missing.remove(index)
        if not episode.error:
            rewards.append(episode.reward)
            ended.append((index, episode))
            return
        line = {"index": index, "seed": episode.seed, "turn": len(episode.steps) + 1, "error": episode.error}  # the turn from 1
        with failures.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        if not errors[episode.error]:
            bar.write(f"failed: {episode.error}", file=sys.stderr)
        errors[episode.error] += 1

    def on_turn(live: int) -> None:  # noqa: ARG001
        nonlocal turn
        turn += 1
        if ended:
            run_files.append_episodes(log, ended)
            ended.clear()
        mean = f"{sum(rewards) / len(rewards):.3f}" if rewards else "–"
        bar.set_postfix_str(f"{len(rewards)}/{len(keys)} finished, reward {mean}, failed {errors.total()}", refresh=False)
        bar.update(len(rewards) + len(missing) * turn / game.horizon - bar.n)

    with progress(title, len(keys), initial=len(done), hidden=not show_progress) as bar:
        for batch in batches:
            if missing := set(batch) - done.keys():
                turn, chosen = 0, [keys[index] for index in batch]
                play_episodes(game, policy, chosen, on_turn, on_episode=on_episode, prompt_format=prompt_format)


@contextmanager
def progress(
    title: str, total: int | None = None, *, unit: str = "episode", initial: int = 0, hidden: bool = False, brief: bool = False
) -> Iterator[tqdm[Any]]:
    """A progress bar that is redrawn while a step computes. A `brief` one appears after `DELAY` and disappears at its end."""
    shape = "{desc} [{elapsed}]" if total is None else "{l_bar}{bar}| [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
    look: dict[str, Any] = {"bar_format": shape, "miniters": 0, "delay": DELAY * brief, "leave": not brief or total is None}
    with tqdm(desc=title, unit=unit, total=total, initial=initial, disable=hidden, **look) as bar:
        ended = Event()

        def tick() -> None:
            while not ended.wait(TICK if sys.stderr.isatty() else 5 * TICK):
                bar.update(0)

        clock = Thread(target=tick, daemon=True)
        if not hidden:
            clock.start()
        try:
            yield bar
        finally:
            ended.set()
            if not hidden:
                clock.join()


def advance(bar: tqdm[Any], game: Game, episodes: int) -> Callable[[int], object]:
    """`on_turn` for some episodes. A live episode counts as the played share of its horizon: the first turn gives a time left."""
    before, turns = bar.n, count(1)
    return lambda live: bar.update(before + episodes - live * (1 - next(turns) / game.horizon) - bar.n)


def _finish(folder: Path, config: dict[str, Any]) -> None:
    """Scores the episodes of the log and writes the final files."""
    game = make_game(config["task"])
    logged, near_draws = run_files.read_log(folder / run_files.LOG, game.id)
    indices = sorted(logged)
    episodes = [logged[index] for index in indices]
    scored = [judged(episode, game) for episode in episodes]
    steps, scores = [of_steps for of_steps, _ in scored], [score for _, score in scored]
    try:
        summary = run_summary(config, episodes, scores, steps, near_draws)
    except ValueError as error:  # returns outside the bounds that the game declares
        raise UserError(f"{config['task']}: {error}; correct the reward_range or return_range; episodes are safe") from error
    boards = [index // config.get("repeats", 1) for index in indices]
    run_files.write_tables(folder, run_tables(config, boards, episodes, scores, steps))
    write_json(folder / run_files.RESULTS, summary)
