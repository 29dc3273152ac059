"""Environments of others as games, with the real openenv: played, trained on, evaluated and verified.

`OPENENV_REPOSITORY` names a clone of OpenEnv for the environments in its repository.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.suites import hash_of
from msgrpo_hub.interop.openenv_game import OpenEnvGame, connect
from msgrpo_hub.interop.openenv_package import stage_env
from msgrpo_hub.rollout import play_groups
from tests.cli.suites import Run
from tests.interop.replies import Mixed, Stops
from tests.interop.serving import Served, free_port

pytest.importorskip("openenv.core", reason="needs the extra openenv: make test-interop")

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "environments.md").read_text(encoding="utf-8")
REPOSITORY = os.environ.get("OPENENV_REPOSITORY", "")
from_the_repository = pytest.mark.skipif(not REPOSITORY, reason="OPENENV_REPOSITORY names no clone of OpenEnv")


def own_snake(url: str) -> OpenEnvGame:
    """Our own environment as a foreign one; it takes a seed and a member."""
    from msgrpo_hub.games import make_game

    snake = make_game("Snake-Solo-v1")
    return OpenEnvGame(
        "Snake-OpenEnv-v1",
        url,
        actions_sent={name: {"reply": f"<action>{name}</action>"} for name in snake.actions},
        horizon=snake.horizon,
        instructions=snake.instructions,
        reward_range=snake.reward_range,
        return_range=(-1.0, 20.0),
        text=lambda observation: str(observation["text"]),
    )


@pytest.fixture(scope="module")
def snake(tmp_path_factory: pytest.TempPathFactory, serve: Callable[[str, Path], Served]) -> Served:
    folder = tmp_path_factory.mktemp("environment")
    stage_env("you/snake", folder, game="Snake-Solo-v1")
    return serve("server.app:app", folder)


def episodes(game: OpenEnvGame, group_size: int = 4) -> list[Episode]:
    return [episode for group in play_groups(game, Mixed(), [1, 2], group_size) for episode in group.episodes]


def test_few_sessions_and_a_server_that_dies_change_no_episode(snake: Served) -> None:
    game = own_snake(snake.url)
    expected = episodes(game)

    class Kills(Mixed):
        turns = 0

        def complete(self, prompts: Any, rngs: Any) -> list[Completion]:
            self.turns += 1
            if self.turns == 4:
                snake.restart()
            return super().complete(prompts, rngs)

    assert [episode for group in play_groups(game, Kills(), [1, 2], 4) for episode in group.episodes] == expected
    game._clients._limit = 1
    assert episodes(game) == expected
    assert snake.is_left()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_sessions_are_closed_after_an_error_and_after_ctrl_c(error: BaseException, snake: Served) -> None:
    class Checks(Stops):
        def complete(self, prompts: Any, rngs: Any) -> list[Completion]:
            assert self.left > 1 or snake.connections()  # a member whose first reply has no action has none yet
            return super().complete(prompts, rngs)

    with pytest.raises(type(error)):
        play_groups(own_snake(snake.url), Checks(3, error), [1, 2], 4)
    assert snake.is_left()


def test_an_address_without_a_server_is_one_line() -> None:
    with pytest.raises(UserError, match=r"no OpenEnv server answers at http://127\.0\.0\.1:\d+: start it there"):
        connect(f"http://127.0.0.1:{free_port()}")


ECHO = """
from msgrpo_hub.interop.openenv_game import OpenEnvGame

game = OpenEnvGame(
    "Echo-OpenEnv-v1",
    "http://localhost:8000",
    actions_sent={"Left": {"message": "a"}, "Right": {"message": "abcdefghij"}},
    horizon=3,
    instructions="Left sends a short message and Right a long one. Longer messages are better.",
    reward_range=(0.0, 1.0),
    return_range=(0.0, 3.0),
)
"""
"""The template of `openenv init`: it never ends, takes no seed, and has one session."""

MAZE = """
from msgrpo_hub.interop.openenv_game import OpenEnvGame

MOVES = ("Up", "Down", "Left", "Right")
game = OpenEnvGame(
    "Maze-OpenEnv-v1",
    "http://localhost:8000",
    actions_sent={name: {"action": number} for number, name in enumerate(MOVES)},
    horizon=12,
    instructions="Find the way out of the maze, from (0, 0) to (7, 7).",
    reward_range=(-0.75, 10.0),
    return_range=(-9.0, 10.0),
    legal=lambda observation: [MOVES[number] for number in observation["legal_actions"]],
)
"""


def echo(folder: Path, serve: Callable[[str, Path], Served]) -> Served:
    command = [Path(sys.executable).with_name("openenv"), "init", "echo_env", "--output-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return serve("echo_env.server.app:app", folder)


def of_repository(name: str) -> Callable[[Path, Callable[[str, Path], Served]], Served]:
    return lambda _, serve: serve(f"{name}.server.app:app", Path(REPOSITORY) / "envs")


[GRID] = re.findall(r"```py\n# grid_world.py\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(
    ("game", "code", "started"),
    [
        ("Echo-OpenEnv-v1", ECHO, echo),
        pytest.param("GridWorld-OpenEnv-v1", GRID, of_repository("grid_world_env"), marks=from_the_repository),
        pytest.param("Maze-OpenEnv-v1", MAZE, of_repository("maze_env"), marks=from_the_repository),
    ],
)
def test_an_environment_of_others_is_trained_on_evaluated_and_verified(
    game: str,
    code: str,
    started: Callable[[Path, Callable[[str, Path], Served]], Served],
    tmp_path: Path,
    serve: Callable[[str, Path], Served],
    run: Run,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = started(tmp_path, serve)
    site = tmp_path / "site" / "foreign-1.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1\n")
    (site / "entry_points.txt").write_text(f"[msgrpo_hub.games]\n{game} = foreign_game:game\n")
    (site.parent / "foreign_game.py").write_text(code.replace("http://localhost:8000", served.url))
    monkeypatch.syspath_prepend(site.parent)
    monkeypatch.delitem(sys.modules, "foreign_game", raising=False)
    monkeypatch.chdir(tmp_path)
    hash_of.cache_clear()

    done = run("train", "--game", game, "--model", tiny_model, *TINY, "--output-dir", "runs/own", "--save-rollouts")
    assert done.code == 0, done.err
    summary = json.loads(Path("runs/own/summary.json").read_text())
    assert summary["players"] == ["silent", "random", "random-safe", "base", "adapter"]
    Path("own.toml").write_text(run("games", game, "--suite").out.replace("episodes = 50", "episodes = 5"))
    done = run("eval", "random", "runs/own/adapter", "--suite", "own.toml", "--max-new-tokens", "4", "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)
    assert [row["references"] for row in rows] == [{}, {}]
    assert served.is_left()
    served.stop()  # from here on no server is needed
    for folder in ("runs/eval", "runs/own"):
        verified = run("verify", folder)
        assert (verified.code, "not simulated again" in verified.out) == (0, True), verified.out + verified.err
    assert run("report", "runs/eval").code == 0
    failed = run("play", game)
    assert (failed.code, len(failed.said)) == (2, 1)
    assert "no OpenEnv server answers at" in failed.err
    hash_of.cache_clear()


TINY = [
    *("--updates", "1", "--groups", "1", "--group-size", "16", "--selected-per-group", "4", "--threads", "1"),
    *("--test-episodes", "2", "--eval-episodes", "1", "--max-new-tokens", "4", "--learning-rate", "1e-2"),
]
