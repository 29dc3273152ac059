"""A game of another package from training to the Hub: the README's own, and Cliff Walking, each installed as a distribution."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.suites import Run, run
from tests.hub_server.client import LOADS_MODELS, put
from tests.hub_server.lanes import Loopback, loopback, loopback_server
from tests.players.test_entry_points import FILES, Install, as_ini, distribution, folder, install

pytestmark = pytest.mark.slow

__all__ = ["folder", "install", "loopback", "loopback_server", "run"]  # the fixtures

warm = LOADS_MODELS

TINY = [
    *("--updates", "1", "--groups", "1", "--group-size", "16", "--selected-per-group", "4"),
    *("--test-episodes", "2", "--eval-episodes", "1", "--max-new-tokens", "4", "--learning-rate", "1e-2"),
]
CLIFF = (Path(__file__).parents[2] / "examples" / "cliff_walking.py").read_text()


@pytest.fixture(scope="module")
def cliff(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example installed beside the README's package."""
    ours = "[msgrpo_hub.games]\n"
    points = as_ini(FILES["pyproject.toml"]).replace(ours, f"{ours}CliffWalking-v1 = cliff_walking:CliffWalking\n")
    site = distribution(tmp_path_factory.mktemp("cliff") / "site", points)
    (site / "cliff_walking.py").write_text(CLIFF)
    return site


def push(site: str, *arguments: str) -> None:
    """`msgrpo push` over there, in a process that finds the package."""
    from msgrpo_hub.cli import main

    sys.path.insert(0, site)
    try:
        main(["push", *arguments])
    finally:
        sys.path.remove(site)


@pytest.mark.parametrize(
    ("game", "players", "left_out"),
    [
        ("Lamp-v1", ["silent", "random", "random-safe", "base", "adapter"], ["greedy does not know Lamp-v1: left out"]),
        ("CliffWalking-v1", ["silent", "random", "base", "adapter", "optimal"], None),
    ],
)
def test_a_game_of_another_package_is_trained_evaluated_pushed_and_replayed(
    game: str,
    players: list[str],
    left_out: list[str] | None,
    cliff: Path,
    install: Install,
    run: Run,
    tiny_model: Path,
    loopback: Loopback,
) -> None:
    install(cliff)
    done = run("train", "--game", game, "--model", str(tiny_model), *TINY, "--output-dir", "runs/own")
    assert done.code == 0, done.err
    summary = json.loads(Path("runs/own/summary.json").read_text())
    assert (summary["players"], summary.get("left_out")) == (players, left_out)
    assert all(line in done.out + done.err for line in left_out or [])
    assert "<svg" in Path("runs/own/replay.svg").read_text()

    suite = run("games", game, "--suite").out.replace("episodes = 50", "episodes = 3")
    Path("own.toml").write_text(suite)
    done = run("eval", "runs/own/adapter", "random", "--suite", "own.toml", "--max-new-tokens", "4", "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)
    assert [row["references"].get("optimal") for row in rows] == [-13.0 if left_out is None else None] * 2
    assert run("verify", "runs/eval").code == 0
    done = run("report", "runs/eval")
    assert done.code == 0, done.err
    base, repo = loopback.repository(), loopback.repository()
    loopback.owner.call(put, base, {path.name: path.read_bytes() for path in tiny_model.iterdir()})
    arguments = ["adapter", Path("runs/own").absolute(), repo, "--base", base, "--dry-run", Path("out").absolute()]
    pushed = loopback.owner.attempt(push, str(cliff), *map(str, arguments))
    assert pushed.code == 0, pushed.err
    assert game in Path("out/README.md").read_text()
