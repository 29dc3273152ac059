"""The end of a run: its final table and files, and the cause if it learned nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import runner
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.shards import read_table
from msgrpo_hub.training import TrainConfig, train
from msgrpo_hub.training.config import load_config
from msgrpo_hub.training.summary import check_start, outcome, size_of_test, table
from tests.training.runs import metrics, summary_of

if TYPE_CHECKING:
    from tests.command import Command

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
PLAYERS = {
    LAKE: ["silent", "random", "base", "adapter", "optimal"],
    SNAKE: ["silent", "random", "random-safe", "base", "adapter", "greedy"],
}


@pytest.fixture(scope="module", params=PLAYERS)
def tested(
    request: pytest.FixtureRequest, msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A game and a run on it with 40 test episodes, evaluated at temperature 0.7."""
    folder = tmp_path_factory.mktemp("run") / "run"
    changes = ["--test-episodes", "40", "--eval-temperature", "0.7", "--game", request.param]
    assert msgrpo("train", *flags, *changes, "--output-dir", folder).code == 0
    return request.param, folder


@pytest.mark.slow
def test_the_table_has_each_player_with_its_figures_inside_their_intervals(tested: tuple[str, Path]) -> None:
    game, folder = tested
    summary = summary_of(folder)
    assert summary["players"] == PLAYERS[game]
    lines = dict(zip(PLAYERS[game], table(summary).splitlines()[3:], strict=False))  # a footnote may follow
    assert lines["silent"].endswith("  100.0% / 0.0% / 0.0% DOES NOT PLAY")  # on Snake it always succeeds
    assert lines["random"].endswith(f"  0.0% / 0.0% / {summary['random']['illegal_rate']:.1%}")
    for player in summary["players"]:
        row = summary[player]
        assert row["episodes"] == 40
        for figure in ("success", "success_greedy", "reward", "reward_greedy"):
            low, high = row[f"{figure}_interval"]
            assert low <= row[figure] <= high, (player, figure)
            assert 0 <= low <= high <= 1 or "reward" in figure
        assert row["success_interval"][0] < row["success_interval"][1]
    assert game != LAKE or [summary["optimal"][name] for name in ("success", "success_greedy", "reward")] == [1, 1, 1]


@pytest.mark.slow
def test_the_figures_are_those_of_the_base_and_the_saved_adapter_on_the_test_episodes(tested: tuple[str, Path]) -> None:
    game, folder = tested
    summary, config = summary_of(folder), load_config(folder / "config.toml")
    keys = [(episode_seed(game, "test", index), 0) for index in range(40)]
    for player, source in (("base", config.model), ("adapter", str(folder / "adapter"))):
        for temperature, suffix in ((0.7, ""), (0.0, "_greedy")):
            model = LanguageModel.from_pretrained(source, temperature=temperature, max_new_tokens=config.max_new_tokens)
            episodes = play_episodes(make_game(game), model, keys)
            assert summary[player][f"reward{suffix}"] == np.mean([episode.reward for episode in episodes])
            assert summary[player][f"success{suffix}"] == np.mean([episode.success for episode in episodes])
    assert summary["base"]["unreadable_rate"] + summary["base"]["truncated_rate"] > 0
    assert summary["adapter"] != summary["base"]


@pytest.mark.slow
def test_a_run_leaves_its_curves_and_a_replay_of_the_episode_that_it_names(tested: tuple[str, Path]) -> None:
    game, folder = tested
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    title = ET.parse(folder / "replay.svg").getroot().findtext("{http://www.w3.org/2000/svg}title")
    seed = episode_seed(game, "test", summary_of(folder)["replayed_test_episode"])
    assert title == f"{game}, seed {seed}: base, adapter"


@pytest.mark.slow
def test_the_figures_follow_from_the_stored_test_episodes(tested: tuple[str, Path]) -> None:
    game, folder = tested
    rows, summary = read_table(folder / "test_episodes.parquet", "default").to_pylist(), summary_of(folder)
    assert len(rows) == 40 * (len(PLAYERS[game]) + 2)  # scripted players have no temperature
    for player in PLAYERS[game]:
        is_model = player in ("base", "adapter")
        for temperature, suffix in ((0.7, ""), (0.0, "_greedy")):
            own = [row for row in rows if (row["player"], row["temperature"]) == (player, temperature if is_model else None)]
            assert [row["index"] for row in own] == list(range(40))
            assert {(row["game"], row["split"], row["base"]) for row in own} == {(game, "test", "folder" if is_model else None)}
            assert [row["seed"] for row in own] == [episode_seed(game, "test", index) for index in range(40)]
            assert np.mean([row["reward"] for row in own]) == pytest.approx(summary[player][f"reward{suffix}"])
            assert np.mean([row["success"] for row in own]) == summary[player][f"success{suffix}"]


@pytest.mark.parametrize(("seconds", "games", "episodes"), [(0, 1, 20), (950, 1, 60), (950, 2, 30), (10**6, 1, 200)])
def test_the_final_test_takes_a_quarter_of_the_time_of_the_run(seconds: float, games: int, episodes: int) -> None:
    lines = [{"seconds_acting": 0.0, "seconds_training": seconds}, {"seconds_validating": 50.0 * games}]
    assert size_of_test(TrainConfig(), lines, games) == episodes  # played four times, for a second each
    assert size_of_test(TrainConfig(test_episodes=7), lines, games) == 7


def test_every_part_of_a_run_has_a_progress_bar_and_replies_are_shown(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "DELAY", 0.0)
    own = replace(config, teacher="optimal", taught=1, updates=2, eval_every=1, max_new_tokens=8, show_replies=1)
    train(own, tmp_path / "run")
    said = capsys.readouterr().err
    parts = [f"update {index}, {part}: " for index in (1, 2) for part in ("sampling", "training", "validating")]
    parts += ["loading ", "comparing the fast engine", "SFT target: <", "base at temperature 1", "adapter at temperature 0"]
    assert not [part for part in parts if part not in said]
    names = ("loss=", "reward=", "success=", "validation success=", "unparsed=", "truncated=")
    assert all(name in said.split("| 2/2 ")[-1] for name in names)


CONFIG = TrainConfig(updates=2, groups=8, max_new_tokens=32)
LINE = {"zero_variance_groups": 8.0, "truncated_rate": 0.0, "unreadable_rate": 0.0, "success": 0.0}
BEGIN = "in all 16 groups every episode had the same return, so there were no advantages; "
TAUGHT = {"teacher_reward": 1.0, "loss": 0.5}
ALIKE = "the episodes of a group ended alike: raise --temperature or --group-size, or take an easier --game"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        (
            {"truncated_rate": 0.75},
            "0% of the replies could not be parsed and 75% were truncated: raise --max-new-tokens (it was 32), or start with "
            "--teacher auto --taught 20, or take --prompt-format action-only, or take an easier --game",
        ),
        (
            {"unreadable_rate": 1.0},
            "100% of the replies could not be parsed and 0% were truncated: start with --teacher auto --taught 20, or take "
            "--prompt-format action-only, or take an easier --game",
        ),
        ({"success": 1.0}, "every episode succeeded: take a harder --game"),
        ({}, ALIKE),
    ],
)
def test_a_run_without_advantages_says_the_likely_cause_and_what_to_do(changes: dict[str, float], cause: str) -> None:
    assert outcome(CONFIG, [LINE | changes] * 2) == {"learned_nothing": BEGIN + cause}


def test_rewards_that_taught_nothing_after_a_teacher_differ_from_a_run_that_learned_nothing() -> None:
    taught = replace(CONFIG, teacher="optimal", taught=1, updates=3)
    assert outcome(taught, [TAUGHT, LINE, LINE]) == {"rewards_taught_nothing": BEGIN + ALIKE}
    assert outcome(taught, [TAUGHT, LINE, LINE | {"zero_variance_groups": 7.0}]) == {}
    assert outcome(replace(taught, updates=1), [TAUGHT]) == {}


def test_three_updates_without_advantages_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    config, lines = replace(CONFIG, updates=9), [LINE | {"unreadable_rate": 0.9}] * 6
    for index in range(1, 7):
        check_start(config, lines[:index])
    assert [message.partition(" were truncated: ")[0] for message in caplog.messages] == [
        "updates 1 to 3 changed nothing: 90% of the replies could not be parsed and 0%"
    ]
    caplog.clear()
    check_start(config, [LINE | {"zero_variance_groups": 7.0}, *lines[:2]])  # not yet three in a row
    check_start(config, [LINE | {"success": 1.0}] * 3)  # nothing is left to learn
    check_start(config, [TAUGHT] * 3)
    assert not caplog.records
    check_start(replace(config, teacher="optimal", taught=2), [TAUGHT, TAUGHT, *lines[:3]])
    assert caplog.messages[0].startswith("updates 3 to 5 changed nothing: ")


def test_a_run_without_any_parsed_reply_stops_once_after_its_third_update_with_rewards() -> None:
    config, line = replace(CONFIG, updates=9), LINE | {"unreadable_rate": 0.75, "truncated_rate": 0.25}
    check_start(config, [line] * 2)
    with pytest.raises(UserError, match=r"stopped after update 3, which is saved, .* start with --teacher auto .* --resume"):
        check_start(config, [line] * 3)
    check_start(config, [line] * 4)
    check_start(replace(config, updates=3), [line] * 3)  # it ends anyway


@pytest.mark.slow
def test_a_stopped_run_is_saved_and_resumes_and_says_that_it_learned_nothing(
    msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    """Replies of one token, which never end a thought."""
    run = tmp_path / "run"
    train = ["train", *flags, *["--updates", "4", "--max-new-tokens", "1", "--temperature", "0.01", "--output-dir"], run]
    stopped = msgrpo(*train)
    assert stopped.code == 2
    assert stopped.err.splitlines()[-1].startswith("error: stopped after update 3, which is saved, because rewards can teach")
    assert len(metrics(run)) == 3
    done = msgrpo(*train, "--resume")
    assert done.code == 0, done.err
    assert len(metrics(run)) == 4
    assert f"\nIt learned nothing: {summary_of(run)['learned_nothing']}\n" in done.out
