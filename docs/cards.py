"""The example cards, and the tour's table of their run: `python docs/cards.py` makes them from stored files.

`python docs/cards.py RUN` first stores another run, a finished one of `msgrpo train --preset quickstart` whose adapter is the
built-in `lake`, and plays the episodes of the other cards again. A test compares the pages with the stored run.
"""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.cli.flags import print_next
from msgrpo_hub.cli.training import next_commands, summary_text
from msgrpo_hub.downloads.fetching import ADAPTER_SETTINGS, ADAPTER_WEIGHTS
from msgrpo_hub.downloads.names import adapters_path
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.hub.adapter_card import FinishedRun, read_run, render_adapter
from msgrpo_hub.hub.adapters import as_json, public_config, published_results
from msgrpo_hub.hub.bases import Base, render_base
from msgrpo_hub.hub.leaderboard import read_folder
from msgrpo_hub.hub.results import render_results
from msgrpo_hub.hub.rollouts import stage_rollouts
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rendering.replay_svg import replay_svg
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.shards import read_table
from msgrpo_hub.training.config import stored_config
from msgrpo_hub.training.run_folder import RunFolder
from msgrpo_hub.training.summary import read_summary

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, TOUR = ROOT / "model_cards" / "examples", ROOT / "docs" / "guide" / "quickstart.md"
RUN, PLAYED = RunFolder(EXAMPLES / "adapter"), EXAMPLES / "results" / "results"
"""The stored run, without its weights, and the stored evaluations."""

PLAYERS, EPISODES = ("random", "pocket", "lake"), 60
BASE = Base(
    repo_id="ada/pocket", commit="0123456789abcdef0123456789abcdef01234567", license={"license": "apache-2.0"}, built_in=True
)
_BLOCK = re.compile(r"(<!-- the end of its output: python docs/cards.py -->\n```\n).*?(```\n)", re.DOTALL)


def main(arguments: list[str]) -> None:
    if arguments:
        store(RunFolder(Path(arguments[0])))
    for path, text in rendered().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def rendered() -> dict[Path, str]:
    """Path → content of every file that this script makes."""
    run = read_run(RUN.path)
    config = public_config(run.config, BASE, run.summary["init_adapter_commit"])
    with TemporaryDirectory() as folder:
        stage_rollouts(PLAYED, "ada/lake-rollouts", Path(folder))
        rollouts, episodes = ((Path(folder) / name).read_text(encoding="utf-8") for name in ("README.md", "replay.svg"))
    board, film = replace(read_folder(PLAYED), source="ada/board"), replay(run)
    return {
        EXAMPLES / "adapter" / "README.md": render_adapter(run, "ada/lake", config, BASE, "ada/lake-rollouts"),
        EXAMPLES / "adapter" / "results.json": as_json(published_results(run, config, BASE)),
        EXAMPLES / "adapter" / "replay.svg": film,
        adapters_path() / "lake.svg": film,
        EXAMPLES / "base" / "README.md": render_base(BASE.repo_id),
        EXAMPLES / "base" / "replay.svg": film,
        EXAMPLES / "results" / "README.md": render_results(board),
        EXAMPLES / "rollouts" / "README.md": rollouts,
        EXAMPLES / "rollouts" / "replay.svg": episodes,
        ROOT / "docs" / "replay-snake.svg": scripted("Snake-Solo-v1", ("random-safe", "greedy")),
        TOUR: with_end(TOUR.read_text(encoding="utf-8")),
    }


def replay(run: FinishedRun) -> str:
    """Base and adapter on the test episode that the run replays."""
    index = run.summary["replayed_test_episode"]
    results = {result.player: result for result in find_results(PLAYED)}
    pair = [(name, results[player].episodes[index]) for name, player in (("base", "pocket"), ("adapter", "lake"))]
    return replay_svg(run.games[0].game, pair)


def scripted(game_id: str, players: tuple[str, ...]) -> str:
    """Scripted players on the first test episode of a game."""
    game, seed = make_game(game_id), episode_seed(game_id, "test", 0)
    episodes = [play_episodes(game, ScriptedPolicy(SCRIPTED[name]), [(seed, 0)])[0] for name in players]
    return replay_svg(game, list(zip(players, episodes, strict=True)))


def with_end(page: str) -> str:
    """A page with the last lines of `make quickstart`, as the stored run printed them."""
    summary, folder, lines = read_summary(RUN.summary), Path("runs/quickstart"), StringIO()
    with redirect_stdout(lines), redirect_stderr(lines):
        print(summary_text(summary, folder))
        print_next(*next_commands(summary, stored_config(RUN.config), folder))
    return _BLOCK.sub(lambda match: f"{match[1]}{lines.getvalue()}{match[2]}", page)


# ---- storing another run


def store(run: RunFolder) -> None:
    """Stores the small files of a run, and plays the episodes of the other cards."""
    weights, built_in = ((folder / ADAPTER_WEIGHTS).read_bytes() for folder in (run.adapter, adapters_path() / "lake"))
    assert weights == built_in, f"{run.path} is not the run of the built-in `lake`: `python -m benchmark.built_in` comes first"
    shutil.rmtree(RUN.path, ignore_errors=True)
    shutil.rmtree(PLAYED, ignore_errors=True)
    RUN.adapter.mkdir(parents=True)
    files = (run.config, run.summary, run.metrics, run.test_episodes, run.curves, run.replay)
    for path in files:
        shutil.copyfile(path, RUN.path / path.relative_to(run.path))
    shutil.copyfile(adapters_path() / "lake" / ADAPTER_SETTINGS, RUN.adapter / ADAPTER_SETTINGS)  # without a path of this machine
    settings = PlayerSettings(temperature=1.0, max_new_tokens=32)
    suite = Suite(name="cards", tasks=("FrozenLake-NotSlippery-v1",), episodes=EPISODES)
    results = evaluate(PLAYERS, suite, PLAYED, settings=settings)
    _check_same_play(results)


def _check_same_play(results: list[Result]) -> None:
    """Compares the evaluated episode that the replay shows with the run's record."""
    replayed, names = read_run(RUN.path).summary["replayed_test_episode"], {"base": "pocket", "adapter": "lake"}
    for row in read_table(RUN.test_episodes, "default").to_pylist():
        if row["player"] in names and row["temperature"] == 1.0 and row["index"] == replayed:
            [result] = [result for result in results if result.player == names[row["player"]]]
            episode = result.episodes[replayed]
            assert (episode.seed, episode.reward) == (row["seed"], row["reward"]), "another episode than the run's: play it again"


if __name__ == "__main__":
    main(sys.argv[1:])
