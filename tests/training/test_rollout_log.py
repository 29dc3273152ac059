"""The episodes of a run: none is lost and none is twice, whenever it is killed; and blocks that stay as they are."""

from __future__ import annotations

import hashlib
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.episode import Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.storage.shards import read_shard, shards
from msgrpo_hub.storage.tables import read_rollouts
from msgrpo_hub.training.callbacks import BLOCKS, RolloutLog, Run, Update, blocks
from msgrpo_hub.training.config import TrainConfig, to_toml
from msgrpo_hub.training.run_folder import Progress, save_checkpoint

if TYPE_CHECKING:
    from tests.command import Command

pytestmark = pytest.mark.slow

MOMENTS = {
    "before the first episodes are in place": ("RolloutLog.on_update", "call", 1),
    "when one of its two tables is in place": ("write_atomically", "return", 5),
    "when its episodes are kept and its checkpoint is not": ("RolloutLog.on_update", "return", 1),
    "in the middle of a table": ("write_table", "return", 3),
    "when its checkpoint is in place": ("save_checkpoint", "return", 1),
    "in the final evaluation": ("play_test", "call", 1),
}
"""Where a SIGKILL falls, counted from the kill before."""


def kept(folder: Path) -> dict[str, str]:
    """The hash of every file of the log."""
    own = folder / "rollouts"
    return {
        path.relative_to(own).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in own.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def short(flags: list[str]) -> list[str]:
    """Flags of a shorter run."""
    return [*flags, *"--updates 3 --eval-every 0 --test-episodes 2".split()]  # noqa: SIM905


@pytest.fixture(scope="module")
def uninterrupted(msgrpo: Command, short: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept") / "uninterrupted"
    ended = msgrpo("train", *short, "--save-rollouts", "--output-dir", folder)
    assert ended.code == 0, ended.err
    return folder


# ---- while it trains


def test_every_episode_of_every_update_is_kept_once(uninterrupted: Path) -> None:
    rollouts = [rollout for pair in shards(uninterrupted) for rollout in read_rollouts(*read_shard(*pair))]
    assert [rollout.update for rollout in rollouts] == [update for update in (1, 2, 3) for _ in range(12)]
    assert len({(rollout.episode.seed, rollout.episode.member) for rollout in rollouts}) == 36
    drawn = [sum(bool(rollout.selected) for rollout in rollouts if rollout.update == update) for update in (1, 2, 3)]
    assert set(drawn) <= {0, 3, 6}  # 3 of each group whose returns differ
    assert any(drawn)


def test_a_run_that_does_not_keep_them_trains_the_same(
    msgrpo: Command, short: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    assert msgrpo("train", *short, "--output-dir", tmp_path / "run").code == 0
    weights = "adapter/adapter_model.safetensors"
    assert (tmp_path / "run" / weights).read_bytes() == (uninterrupted / weights).read_bytes()
    assert not (tmp_path / "run" / "rollouts").exists()
    with pytest.raises(UserError, match="did not save its episodes: train it with --save-rollouts"):
        blocks(tmp_path / "run")


def test_a_run_killed_at_any_moment_keeps_what_an_uninterrupted_one_keeps(
    msgrpo: Command, short: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for name, moment in MOMENTS.items():
        ended = msgrpo("train", *short, "--save-rollouts", "--resume", "--output-dir", run, die_at=moment)
        assert ended.code == -signal.SIGKILL, (name, ended.err)
    assert msgrpo("train", "--resume", "--output-dir", run).code == 0
    assert kept(run) == kept(uninterrupted)
    assert [block.name for block in blocks(run)[1]] == [block.name for block in blocks(uninterrupted)[1]]


@pytest.mark.parametrize("gone", ["default/train-00001.parquet", "default/train-00003.parquet", "steps/train-00002.parquet"])
def test_a_shard_that_is_gone_stops_resume_verification_and_push_in_one_line(
    gone: str, msgrpo: Command, uninterrupted: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(uninterrupted, tmp_path / "run"))
    (run / "summary.json").unlink()
    (run / "rollouts" / gone).unlink()
    before = kept(run)
    for arguments in (
        ("train", "--resume", "--output-dir", run),
        ("verify", run),
        ("verify", run, "--json"),
        ("push", "rollouts", run, "ada/lake", "--dry-run", tmp_path / "dry"),
    ):
        ended = msgrpo(*arguments)
        assert (ended.code, len(ended.said)) == (2, 1), (arguments, ended.err)
        told = gone.partition("/")[2] if gone.startswith("steps") else f"the episodes of update {int(gone[-9])} are missing"
        assert arguments[0] != "train" or "the episodes of update" in ended.err
        assert arguments[0] != "verify" or told in ended.out
    assert kept(run) == before
    assert not (run / "summary.json").exists()
    assert not (tmp_path / "dry").exists()


# ---- blocks


def keep(folder: Path, config: TrainConfig, index: int, groups: list[Group]) -> None:
    """Logs an update in which the first episode of a group had A = 1 and the second, which was selected, A = −1."""
    advantages, episode = torch.tensor([1.0, -1.0]), groups[0].episodes[1]
    steps = [[a.expand(len(e.steps)) for a, e in zip(advantages, groups[0].episodes, strict=True)]]
    selected = [SelectedEpisode(episode, (-1.0,) * len(episode.steps))]
    log = RolloutLog()
    log.on_start(Run(config=config, folder=folder, updates=index - 1))
    parts: dict[str, Any] = {"advantages": [advantages], "step_advantages": steps, "selected": selected}
    log.on_update(Update(index=index, groups=groups, metrics={}, **parts))


def make_run(folder: Path, updates: int, done: int) -> Path:
    """The folder of a run of so many updates after some of them, played at random."""
    config = TrainConfig(updates=updates, group_size=2, groups=1, selected_per_group=1, save_rollouts=True)
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(to_toml(config))
    (folder / "provenance.json").write_text('{"base_commit": "0123"}')
    game = make_game(config.game)
    for update in range(1, done + 1):
        keep(folder, config, update, play_groups(game, ScriptedPolicy(choose_random), [update], 2))
    parameters = {"w": nn.Parameter(torch.zeros(1))}
    progress = Progress(updates=done)
    save_checkpoint(folder / "checkpoint.safetensors", parameters, torch.optim.AdamW(parameters.values()), progress, "run")
    return folder


def ranges(folder: Path) -> list[tuple[int, int]]:
    return [(int(first), int(last)) for first, last in (block.name.split("-")[2:4] for block in blocks(folder)[1])]


def test_blocks_are_few_and_their_borders_do_not_depend_on_how_far_it_went(tmp_path: Path) -> None:
    assert BLOCKS == 32
    assert ranges(make_run(tmp_path / "a", 70, 7)) == [(1, 3), (4, 6)]
    assert ranges(make_run(tmp_path / "b", 70, 70)) == [*((n, n + 2) for n in range(1, 69, 3)), (70, 70)]
    assert ranges(make_run(tmp_path / "c", 700, 10)) == []  # blocks of 22
    names = [block.name for block in blocks(tmp_path / "b")[1]]
    assert names[:2] == [block.name for block in blocks(tmp_path / "a")[1]]
    assert sorted(names) == names
    assert len(names) <= BLOCKS
