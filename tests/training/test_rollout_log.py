"""Saved episodes of a run: each exactly once, whenever the run is killed; published in blocks that never change."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import make_game
from msgrpo_hub.msgrpo import CreditContext, SelectedEpisode, Selection
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.storage.shards import read_table, shards
from msgrpo_hub.storage.tables import Rollout, read_rollouts
from msgrpo_hub.training.callbacks import BLOCKS, RolloutLog, Run, Update, blocks
from msgrpo_hub.training.config import TrainConfig, to_toml
from msgrpo_hub.training.run_folder import Progress, save_checkpoint
from tests.files import hashes

if TYPE_CHECKING:
    from tests.command import Command

pytestmark = pytest.mark.slow

MOMENTS = {
    "before the first episodes are in place": ("RolloutLog.on_update", "call", 1),
    "when one of its two tables is in place": ("write_atomically", "return", 5),
    "when its episodes are saved and its checkpoint is not": ("RolloutLog.on_update", "return", 1),
    "while a table is written": ("write_table", "return", 3),
    "when its checkpoint is in place": ("save_checkpoint", "return", 1),
    "in the final evaluation": ("play_test", "call", 1),
}
"""When a SIGKILL comes, counted from the kill before."""


@pytest.fixture(scope="module")
def short(flags: list[str]) -> list[str]:
    return [*flags, *"--updates 3 --eval-every 0 --test-episodes 2".split()]  # noqa: SIM905


@pytest.fixture(scope="module")
def uninterrupted(msgrpo: Command, short: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "uninterrupted"
    ended = msgrpo("train", *short, "--save-rollouts", "--output-dir", folder)
    assert ended.code == 0, ended.err
    return folder


def saved(folder: Path) -> list[Rollout]:
    tables = [(read_table(heads, "default"), read_table(steps, "steps")) for heads, steps in shards(folder)]
    return [rollout for pair in tables for rollout in read_rollouts(*pair)]


def ranges(folder: Path) -> list[tuple[int, int]]:
    """The first and the last update of each block."""
    return [(int(first), int(last)) for first, last in (name.split("-")[2:4] for name in blocks(folder)[1])]


def test_every_episode_of_every_update_is_saved_once(uninterrupted: Path) -> None:
    rollouts = saved(uninterrupted)
    assert [rollout.update for rollout in rollouts] == [update for update in (1, 2, 3) for _ in range(12)]
    assert len({(rollout.episode.seed, rollout.episode.member) for rollout in rollouts}) == 36
    selected = [sum(bool(rollout.selected) for rollout in rollouts if rollout.update == update) for update in (1, 2, 3)]
    assert set(selected) <= {0, 3, 6}  # 3 of each group whose returns differ
    assert any(selected)


def test_of_two_processes_one_saves_the_episodes_of_both(one_and_two: Path) -> None:
    both, one = saved(one_and_two / "two"), saved(one_and_two / "one")
    assert len(both) == len(one) == 6 * 12
    for a, b in zip(both[:12], one[:12], strict=True):  # later updates differ by rounding
        assert [step.completion.token_ids for step in a.episode.steps] == [step.completion.token_ids for step in b.episode.steps]
        assert (a.update, a.episode.seed, a.advantage, a.selected) == (b.update, b.episode.seed, b.advantage, b.selected)


def test_a_run_killed_at_any_moment_saves_what_an_uninterrupted_one_saves(
    msgrpo: Command, short: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for name, moment in MOMENTS.items():
        ended = msgrpo("train", *short, "--save-rollouts", "--resume", "--output-dir", run, die_at=moment)
        assert ended.code == -signal.SIGKILL, (name, ended.err)
    assert msgrpo("train", "--resume", "--output-dir", run).code == 0
    assert hashes(run / "rollouts") == hashes(uninterrupted / "rollouts")
    assert [*blocks(run)[1]] == [*blocks(uninterrupted)[1]]


def test_episodes_beyond_the_checkpoint_are_not_published_and_deleted_at_resume(
    msgrpo: Command, short: list[str], tmp_path: Path
) -> None:
    """They are played again, and may be different with other rounding."""
    run = tmp_path / "run"
    kill = ("RolloutLog.on_update", "return", 2)
    assert msgrpo("train", *short, "--save-rollouts", "--output-dir", run, die_at=kill).code == -signal.SIGKILL
    assert {"default/train-00001.parquet", "default/train-00002.parquet"} <= hashes(run / "rollouts").keys()
    assert ranges(run) == [(1, 1)]
    assert msgrpo("train", "--resume", "--output-dir", run, die_at=("Trainer.act", "call", 1)).code == -signal.SIGKILL
    assert hashes(run / "rollouts").keys() == {"default/train-00001.parquet", "steps/train-00001.parquet"}


@pytest.mark.parametrize("gone", ["default/train-00001.parquet", "default/train-00003.parquet", "steps/train-00002.parquet"])
def test_a_missing_shard_stops_resume_verification_and_push_in_one_line(
    gone: str, msgrpo: Command, uninterrupted: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(uninterrupted, tmp_path / "run"))
    (run / "summary.json").unlink()
    (run / "rollouts" / gone).unlink()
    before, episodes = hashes(run), f"the episodes of update {int(gone[-9])} are missing"
    in_report = gone.partition("/")[2] if gone.startswith("steps") else episodes
    for words, arguments in (
        (episodes, ("train", "--resume", "--output-dir", run)),
        (in_report, ("verify", run)),
        (in_report, ("verify", run, "--json")),
        ("", ("push", "rollouts", run, "ada/lake", "--dry-run", tmp_path / "dry")),
    ):
        ended = msgrpo(*arguments)
        assert (ended.code, len(ended.said)) == (2, 1), (arguments, ended.err)
        assert words in ended.out + ended.err
    assert hashes(run) == before
    assert not (tmp_path / "dry").exists()


def make_run(folder: Path, updates: int, done: int) -> Path:
    """The folder of a run after some of its updates, each of one group of two random episodes with A = 1 and −1."""
    config = TrainConfig(updates=updates, group_size=2, groups=1, selected_per_group=1, save_rollouts=True)
    folder.mkdir()
    (folder / "config.toml").write_text(to_toml(config))
    (folder / "provenance.json").write_text('{"base_commit": "0123"}')
    log, advantages = RolloutLog(), torch.tensor([1.0, -1.0])
    log.on_start(Run(config=config, folder=folder, updates=0))
    for index in range(1, done + 1):
        groups = play_groups(make_game(config.game), ScriptedPolicy(choose_random), [index], 2)
        first, second = groups[0].episodes
        steps = [[a.expand(len(episode.steps)) for a, episode in zip(advantages, (first, second), strict=True)]]
        selected = [SelectedEpisode(second, (-1.0,) * len(second.steps))]
        plan = Selection([], CreditContext(), [advantages], steps, selected)
        log.on_update(Update(index=index, groups=groups, metrics={}, selection=plan))
    parameters = {"w": nn.Parameter(torch.zeros(1))}
    optimizer = torch.optim.AdamW(parameters.values())
    save_checkpoint(folder / "checkpoint.safetensors", parameters, optimizer, Progress(updates=done), "run")
    return folder


def test_blocks_are_few_and_their_borders_do_not_depend_on_the_progress_of_the_run(tmp_path: Path) -> None:
    assert BLOCKS == 32
    assert ranges(make_run(tmp_path / "a", 70, 7)) == [(1, 3), (4, 6)]
    assert ranges(make_run(tmp_path / "b", 70, 70)) == [*((n, n + 2) for n in range(1, 69, 3)), (70, 70)]
    assert ranges(make_run(tmp_path / "c", 700, 10)) == []  # blocks of 22
    names = [*blocks(tmp_path / "b")[1]]
    assert names[:2] == [*blocks(tmp_path / "a")[1]]
    assert sorted(names) == names
