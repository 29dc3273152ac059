"""Environments of others as games, with the real openenv: played, trained on, evaluated and verified."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.evaluation.suites import hash_of
from msgrpo_hub.games import make_game
from msgrpo_hub.interop.openenv_game import OpenEnvGame
from msgrpo_hub.interop.openenv_package import stage_env
from msgrpo_hub.rollout import play_groups
from tests.cli.suites import Run
from tests.interop.replies import Mixed
from tests.interop.serving import Served

pytest.importorskip("openenv.core", reason="needs the extra openenv: make test-interop")

Serve = Callable[[str, Path], Served]


def own_snake(url: str) -> OpenEnvGame:
    """Our own environment as a foreign one; it takes a seed and a member."""
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
def snake(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Served:
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
    game._limit = 1
    assert episodes(game) == expected


ECHO = """
from msgrpo_hub.interop.openenv_game import OpenEnvGame

game = OpenEnvGame(
    "Echo-OpenEnv-v1",
    "URL",
    actions_sent={"Left": {"message": "a"}, "Right": {"message": "abcdefghij"}},
    horizon=3,
    instructions="Left sends a short message and Right a long one. Longer messages are better.",
    reward_range=(0.0, 1.0),
    return_range=(0.0, 3.0),
)
"""
TINY = [
    *("--updates", "1", "--groups", "1", "--group-size", "16", "--selected-per-group", "4", "--threads", "1"),
    *("--test-episodes", "2", "--eval-episodes", "1", "--max-new-tokens", "4", "--learning-rate", "1e-2"),
]


def test_an_environment_of_others_is_trained_on_evaluated_and_verified(
    tmp_path: Path, serve: Serve, run: Run, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The template of `openenv init`: it never ends, takes no seed, and has one session."""
    command = [Path(sys.executable).with_name("openenv"), "init", "echo_env", "--output-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    served, game = serve("echo_env.server.app:app", tmp_path), "Echo-OpenEnv-v1"
    (tmp_path / "foreign_game.py").write_text(ECHO.replace("URL", served.url))
    monkeypatch.chdir(tmp_path)
    hash_of.cache_clear()

    done = run(
        "train", "--game", "foreign_game:game", "--model", tiny_model, *TINY, "--output-dir", "runs/own", "--save-rollouts"
    )
    assert done.code == 0, done.err
    summary = json.loads(Path("runs/own/summary.json").read_text())
    assert summary["players"] == ["silent", "random", "random-safe", "base", "adapter"]
    Path("own.toml").write_text(run("games", game, "--suite").out.replace("episodes = 50", "episodes = 5"))
    done = run("eval", "random", "runs/own/adapter", "--suite", "own.toml", "--max-new-tokens", "4", "--json")
    assert done.code == 0, done.err
    assert [row["references"] for row in json.loads(done.out)] == [{}, {}]
    served.stop()  # from here on no server is needed
    for folder in ("runs/eval", "runs/own"):
        verified = run("verify", folder)
        assert (verified.code, "not simulated again" in verified.out) == (0, True), verified.out + verified.err
    assert run("report", "runs/eval").code == 0
    failed = run("play", game)
    assert (failed.code, len(failed.said)) == (2, 1)
    assert "no OpenEnv server answers at" in failed.err
    hash_of.cache_clear()
