"""The final table of a run: what it must hold, and that its figures are those of the episodes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.shards import read_table
from msgrpo_hub.training.config import load_config

if TYPE_CHECKING:
    from tests.command import Command

pytestmark = pytest.mark.slow

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
PLAYERS = {
    LAKE: ["silent", "random", "base", "adapter", "optimal"],
    SNAKE: ["silent", "random", "random-safe", "base", "adapter", "greedy"],
}
FIGURES = ["success", "success_greedy", "reward", "reward_greedy"]


@pytest.fixture(scope="module", params=PLAYERS)
def run(
    request: pytest.FixtureRequest, msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A run on a game with 40 test episodes, evaluated at another temperature than 1: the game, and the folder."""
    folder = tmp_path_factory.mktemp("run") / "run"
    changes = ["--test-episodes", "40", "--eval-temperature", "0.7", "--game", request.param]
    assert msgrpo("train", *flags, *changes, "--output-dir", folder).code == 0
    return request.param, folder


def read(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def test_the_summary_has_each_player_with_estimates_inside_their_intervals(run: tuple[str, Path]) -> None:
    game, folder = run
    summary = read(folder)
    assert summary["players"] == PLAYERS[game]
    for player in summary["players"]:
        row = summary[player]
        assert row["episodes"] == 40
        for figure in FIGURES:
            low, high = row[f"{figure}_interval"]
            assert low <= row[figure] <= high, (player, figure)
            assert 0 <= low <= high <= 1 or "reward" in figure
        assert row["success_interval"][0] < row["success_interval"][1]
    if game == LAKE:
        assert summary["optimal"]["success"] == summary["optimal"]["success_greedy"] == summary["optimal"]["reward"] == 1


def test_the_figures_are_those_of_the_base_and_of_the_adapter_at_the_evaluation_temperature(run: tuple[str, Path]) -> None:
    """Played again by the adapter as it was saved, on the same test episodes."""
    game, folder = run
    summary, config = read(folder), load_config(folder / "config.toml")
    episode_keys = [(episode_seed(game, "test", index), 0) for index in range(40)]
    for player, source in (("base", config.model), ("adapter", str(folder / "adapter"))):
        for temperature, suffix in ((0.7, ""), (0.0, "_greedy")):
            model = LanguageModel.from_pretrained(source, temperature=temperature, max_new_tokens=config.max_new_tokens)
            episodes = play_episodes(make_game(game), model, episode_keys)
            assert summary[player][f"reward{suffix}"] == np.mean([episode.reward for episode in episodes])
            assert summary[player][f"success{suffix}"] == np.mean([episode.success for episode in episodes])
    assert summary["base"]["unreadable_rate"] + summary["base"]["truncated_rate"] > 0
    assert summary["adapter"] != summary["base"]


def test_the_run_leaves_its_curves_and_a_replay_of_the_episode_it_names(run: tuple[str, Path]) -> None:
    _, folder = run
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    title = ET.parse(folder / "replay.svg").getroot().findtext("{http://www.w3.org/2000/svg}title")
    seed = episode_seed(run[0], "test", read(folder)["replayed_test_episode"])
    assert title == f"{run[0]}, seed {seed}: base, adapter"


def test_the_rows_of_the_episodes_are_what_the_figures_are_made_of(run: tuple[str, Path]) -> None:
    game, folder = run
    rows, summary = read_table(folder / "test_episodes.parquet", "default").to_pylist(), read(folder)
    assert len(rows) == 40 * (len(PLAYERS[game]) + 2)  # a scripted player knows no temperature
    for player in PLAYERS[game]:
        is_model = player in ("base", "adapter")
        for temperature, suffix in ((0.7, ""), (0.0, "_greedy")):
            own = [row for row in rows if (row["player"], row["temperature"]) == (player, temperature if is_model else None)]
            assert [row["index"] for row in own] == list(range(40))
            assert {(row["game"], row["split"], row["base"]) for row in own} == {(game, "test", "folder" if is_model else None)}
            assert [row["seed"] for row in own] == [episode_seed(game, "test", index) for index in range(40)]
            assert np.mean([row["reward"] for row in own]) == pytest.approx(summary[player][f"reward{suffix}"])
            assert np.mean([row["success"] for row in own]) == summary[player][f"success{suffix}"]
        sampled = [row for row in rows if (row["player"], row["temperature"]) == (player, 0.7 if is_model else None)]
        turns = sum(row["steps"] for row in sampled)
        for column, rate in (("unreadable", "unreadable"), ("truncated_replies", "truncated"), ("illegal", "illegal")):
            assert sum(row[column] for row in sampled) / turns == pytest.approx(summary[player][f"{rate}_rate"])
