"""`--keep`: which weights adapter/ and the final table have."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.metrics import read_metrics
from tests.files import once, sha256
from tests.training.interrupted import resumed

if TYPE_CHECKING:
    from tests.command import Command

WEIGHTS = "adapter_model.safetensors"
BEST = ["--keep", "best", "--game", "Snake-Solo-v1", "--eval-every", "1"]


@pytest.fixture(scope="module")
def best(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that keeps the best, which is not the last."""

    def train(folder: Path) -> None:
        done = msgrpo("train", *flags, *BEST, "--output-dir", folder)
        (folder / "said.txt").write_text(done.out)

    return once(tmp_path_factory, "keeps-best", train)


def test_the_first_command_of_all_does_not_end_with_a_collapsed_adapter() -> None:
    assert preset("quickstart").keeps_best


@pytest.mark.slow
def test_the_adapter_is_the_best_on_the_validation_episodes_and_the_summary_says_so(best: Path) -> None:
    rewards = [line["validation_reward"] for line in read_metrics(best / "metrics.jsonl")]
    summary = json.loads((best / "summary.json").read_text())
    update = 1 + int(np.argmax(rewards))
    assert 1 <= update < 6
    assert (summary["adapter_update"], summary["best_update"], summary["config"]["keep"]) == (update, update, "best")
    assert sha256(best / "adapter" / WEIGHTS) == sha256(best / "best" / WEIGHTS)
    assert f"Kept: update {update}, the best on the validation episodes\n" in (best / "said.txt").read_text()


@pytest.mark.slow
def test_the_final_table_is_that_of_the_kept_weights(best: Path) -> None:
    summary = json.loads((best / "summary.json").read_text())
    game, config = make_game(summary["game"]), summary["config"]
    model = LanguageModel.from_pretrained(str(best / "adapter"), temperature=1.0, max_new_tokens=config["max_new_tokens"])
    episodes = play_episodes(game, model, [(episode_seed(game.id, "test", index), 0) for index in range(4)])
    assert summary["adapter"]["reward"] == np.mean([episode.reward for episode in episodes])


@pytest.mark.slow
def test_the_best_weights_are_in_the_checkpoint_so_a_killed_run_keeps_them(
    best: Path, msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    """Also where its folder best/ is gone."""
    for moment in (("Trainer.gradient", "call", 5), ("_finish", "call", 1)):
        ended = msgrpo("train", *flags, *BEST, "--resume", "--output-dir", tmp_path / "run", die_at=moment)
        assert ended.code == -signal.SIGKILL
        resumed_again = moment[0] == "_finish"  # then best/ is there only if a later update was better
        shutil.rmtree(tmp_path / "run" / "best", ignore_errors=resumed_again)
    assert resumed(msgrpo, tmp_path / "run").code == 0
    assert sha256(tmp_path / "run" / "adapter" / WEIGHTS) == sha256(best / "adapter" / WEIGHTS)
