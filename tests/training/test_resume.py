"""A run that is killed or fails at any moment resumes bit for bit, and refuses files that are damaged or not its own."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from msgrpo_hub.agent import Policy
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import runner
from msgrpo_hub.games import Game, episode_seed, make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training import TrainConfig, summary, train
from msgrpo_hub.training.config import fingerprint, preset, stored_config, to_toml
from msgrpo_hub.training.machine import choose_threads, read_provenance
from msgrpo_hub.training.run_folder import FORMAT, RunFolder, digest_of
from tests.files import hashes, once, sha256
from tests.training.runs import WEIGHTS, assert_same_run, metrics, resumed, summary_of, updates_safe

if TYPE_CHECKING:
    from tests.command import Command, Finished

pytestmark = pytest.mark.slow

# ---- killed

Moment = tuple[str, str, int]
MOMENTS: dict[str, list[tuple[str, Moment, int]]] = {
    "sampling and learning": [
        ("before the first update", ("Trainer.act", "call", 1), 0),
        ("while sampling", ("FastForward.run", "call", 20), 0),
        ("between sampling and training", ("select_episodes", "call", 2), 1),
        ("between two trees of a gradient", ("policy_loss", "return", 1), 1),
        ("when the weights have moved and nothing is saved", ("Trainer.step", "return", 3), 3),
        ("while evaluating", ("Trainer.evaluate", "call", 1), 3),
    ],
    "saving": [
        ("before the first checkpoint is in place", ("save_checkpoint.<locals>.<lambda>", "return", 1), 0),
        ("when the best adapter is saved and the checkpoint is not", ("save_adapter", "return", 1), 1),
        ("when the metrics are saved and the checkpoint is not", ("append_metrics", "return", 2), 2),
        ("before a checkpoint is in place", ("save_checkpoint.<locals>.<lambda>", "return", 2), 3),
        ("when a checkpoint is in place", ("save_checkpoint", "return", 2), 5),
    ],
    "the end": [
        ("after the last update", ("_finish", "call", 1), 6),
        ("in the final evaluation", ("append_episodes", "return", 2), 6),
        ("before the summary is in place", ("write_json.<locals>.<lambda>", "return", 2), 6),
    ],
}
"""When a SIGKILL comes, counted from the kill before, and how many updates are saved then."""


@pytest.mark.parametrize("moments", MOMENTS.values(), ids=MOMENTS)
def test_a_run_killed_at_certain_moments_resumes_bit_for_bit(
    moments: list[tuple[str, Moment, int]], msgrpo: Command, flags: list[str], finished_run: Path, tmp_path: Path
) -> None:
    for name, moment, safe in moments:
        ended = msgrpo("train", *flags, "--resume", "--output-dir", tmp_path / "run", die_at=moment)
        assert (ended.code, updates_safe(tmp_path / "run")) == (-signal.SIGKILL, safe), (name, ended.err)
    done = resumed(msgrpo, tmp_path / "run")
    assert done.code == 0, done.err
    assert_same_run(tmp_path / "run", finished_run)


def test_a_run_stopped_in_its_final_test_plays_only_the_unfinished_batches_again(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It plays 10 episodes four times: base and adapter, each sampled and greedy, in batches of 4."""
    batches = list[int]()

    def stopped(game: Game, policy: Policy, keys: Sequence[tuple[int, int]], *given: Any, **how: Any) -> list[Episode]:
        batches.append(len(keys))
        if len(batches) == 8:
            raise KeyboardInterrupt
        return play_episodes(game, policy, keys, *given, **how)

    monkeypatch.setattr(summary, "BATCH", 4)
    monkeypatch.setattr(runner, "play_episodes", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", show_progress=False)
    train(config, tmp_path / "run", resume=True, show_progress=False)
    assert batches == [4, 4, 2, 4, 4, 2, 4, 4, 4, 2, 4, 4, 2]
    train(config, tmp_path / "whole", show_progress=False)
    assert sha256(tmp_path / "run" / "test_episodes.parquet") == sha256(tmp_path / "whole" / "test_episodes.parquet")
    assert not (tmp_path / "run" / ".testing").exists()


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGHUP, 129, "ended by SIGHUP")],
)
def test_a_signal_ends_with_one_line_and_finished_updates_are_saved(
    number: signal.Signals, code: int, word: str, msgrpo: Command, flags: list[str], finished_run: Path, tmp_path: Path
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the tests were started so that this signal is ignored, as by nohup, and so do the processes they start")
    running, run = msgrpo.start("train", *flags, "--output-dir", tmp_path / "run"), tmp_path / "run"
    wait_for(run / "checkpoint.safetensors")
    for _ in range(3):  # as of a finger that slips
        running.send(number)
        time.sleep(0.01)
    ended = running.wait()
    assert (ended.code, ended.out) == (code, "")
    assert ended.said == [f"{word}; finished updates are saved, continue with --resume"]
    assert 1 <= updates_safe(run) < 6
    assert resumed(msgrpo, run).code == 0
    assert_same_run(run, finished_run)


def wait_for(file: Path) -> None:
    until = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size) and time.monotonic() < until:
        time.sleep(0.005)


def test_a_torn_last_line_of_metrics_is_dropped(msgrpo: Command, finished_run: Path, run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3.0, "rewa')
    assert resumed(msgrpo, run).code == 0
    assert_same_run(run, finished_run)


# ---- a full disk


def assert_one_line(ended: Finished, folder: Path) -> None:
    """The error has the number of updates in the checkpoint."""
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.said
    assert line.startswith(f"error: cannot write to '{folder}' (")
    assert line.endswith(f"): {updates_safe(folder)} updates are safe there; make room, then continue with --resume")


@pytest.mark.parametrize("largest", [300, 30_000, 50_000])
def test_a_file_that_does_not_fit_ends_in_one_line_and_the_run_resumes_when_there_is_room(
    largest: int, msgrpo: Command, flags: list[str], finished_run: Path, tmp_path: Path
) -> None:
    """The configuration, the checkpoint or the curves do not fit."""
    run = tmp_path / "run"
    assert_one_line(msgrpo("train", *flags, "--output-dir", run, largest_file=largest), run)
    assert msgrpo("train", *flags, "--resume", "--output-dir", run).code == 0
    assert_same_run(run, finished_run)


def test_a_run_whose_folder_is_moved_away_ends_in_one_line_and_can_start_again(
    msgrpo: Command, flags: list[str], finished_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    training = msgrpo.start("train", *flags, "--output-dir", run)
    wait_for(run / "metrics.jsonl")
    run.rename(tmp_path / "elsewhere")
    ended = training.wait()
    gone = f"error: cannot write to '{run}', which is gone: nothing of it is safe; run the same command again"
    assert (ended.code, ended.said) == (2, [gone])
    assert not run.exists()
    assert msgrpo("train", *flags, "--output-dir", run).code == 0
    assert_same_run(run, finished_run)


# ---- damaged and foreign files


def replace_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def of_another_run(path: Path) -> None:
    """Changes the fingerprint of the run; the checksum fits."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = json.loads(file.metadata()[FORMAT]) | {"run": "another"}
    del metadata["digest"]
    save_file(tensors, path, {FORMAT: json.dumps(metadata | {"digest": digest_of(metadata, tensors)})})


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (replace_bytes(lambda content: content[: len(content) // 2]), "cannot be read"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be read"),
    "a flipped bit": (replace_bytes(lambda c: c[:-1] + bytes([c[-1] ^ 1])), "checksum is wrong"),
    "other tensors": (lambda path: save_file({"a": torch.zeros(3)}, path), "cannot be read"),
    "of another run": (of_another_run, "it belongs to a run with another configuration"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_a_checkpoint_that_is_damaged_or_of_another_run_is_refused_with_the_reason_and_nothing_is_overwritten(
    damage: Callable[[Path], object], reason: str, msgrpo: Command, run: Path
) -> None:
    damage(run / "checkpoint.safetensors")
    before, ended = hashes(run), resumed(msgrpo, run)
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.err.splitlines()
    assert f"the checkpoint '{run / 'checkpoint.safetensors'}'" in line
    assert reason in line
    assert hashes(run) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("summary.json", text) for text in ("{}", "[]")),
        ("metrics.jsonl", '{"update": 1.0, "seconds_acting": 1.0, "seconds_training": 1.0}\ngarbage\nmore\n'),
        ("metrics.jsonl", None),
        *(("provenance.json", text) for text in ("{}", "{")),
        ("provenance.json", '{"base_commit": 3}'),
        *(("provenance.json", f'{{"base_commit": "0", {text}}}') for text in ('"rounding": 1', '"sft_commit": ["0123"]')),
    ],
)
def test_a_damaged_file_of_a_run_is_named_and_nothing_is_finished(
    name: str, content: str | None, finished_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    if name != "summary.json":
        (run / "summary.json").unlink()
    (run / name).unlink()
    if content is not None:
        (run / name).write_text(content)
    with pytest.raises(UserError, match=name):
        train(stored_config(run / "config.toml"), run, resume=True, show_progress=False)
    assert (run / "summary.json").exists() == (name == "summary.json")


# ---- the folder

LEFT = (".checkpoint.safetensors.new", ".acting.new/weights", ".adapter.new/file", "rollouts/.one.parquet.new", ".tmpX1y2Z3")
OWN = {".thesis.new", "mine/.tmp_work/data", "mine/.draft.new", ".tmp", ".tmp_notes", "mine/.tmp1a2B3c"}


def test_a_run_deletes_what_a_killed_run_left_and_nothing_else(tmp_path: Path) -> None:
    def files() -> set[str]:
        return {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}

    for name in (*OWN, *LEFT, "adapter/.file.new"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    RunFolder(tmp_path).claim(to_toml(TrainConfig()))
    assert files() == {*OWN, *LEFT, "adapter/.file.new", "config.toml"}, "the first run of a folder has left nothing there"
    RunFolder(tmp_path).claim(to_toml(TrainConfig()))
    assert files() == {*OWN, "config.toml"}


def test_whole_numbers_are_the_same_run_in_python_and_in_its_file(tmp_path: Path) -> None:
    floats = {name for name, kind in get_type_hints(TrainConfig).items() if float in (kind, *get_args(kind))}
    config = TrainConfig(**dict.fromkeys(floats - {"lora_dropout"}, 1))  # type: ignore[arg-type]
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert {type(getattr(config, name)) for name in floats} == {float}
    assert fingerprint(config) == fingerprint(stored_config(tmp_path / "config.toml"))


# ---- rounding


def test_a_run_takes_the_threads_given_else_its_own_else_those_for_its_model(
    msgrpo: Command, finished_run: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = read_provenance(run / "provenance.json")
    cases = [(0, {}, 1, [1]), (0, {}, 500, []), (2, {}, 1, [2]), (2, {}, 500, [2]), (0, began, 500, [1])]
    for given, record, millions, expected in cases:
        chosen = list[int]()
        monkeypatch.setattr(torch, "set_num_threads", chosen.append)
        choose_threads(given, record, millions * 10**6)
        assert chosen == expected
    assert resumed(msgrpo, run, "--threads", 0).code == 0
    assert_same_run(run, finished_run)
    assert "resumed_otherwise" not in summary_of(run)


@pytest.mark.parametrize(("flag", "name", "values"), [("--threads", "threads", [1, 2]), ("--max-rows", "max_rows", [512, 5])])
def test_other_rounding_is_refused_until_it_is_accepted_and_then_recorded(
    flag: str, name: str, values: list[int], msgrpo: Command, run: Path
) -> None:
    refused = resumed(msgrpo, run, flag, values[1])
    assert refused.code == 2
    assert refused.said == [
        f"error: the run started with {name} = {values[0]} and would continue with {values[1]}: expected the same, because the "
        "adapter would differ from the adapter of an uninterrupted run; accept that with --accept-rounding"
    ]
    assert updates_safe(run) == 2
    assert resumed(msgrpo, run, flag, values[1], "--accept-rounding").code == 0
    assert summary_of(run)["resumed_otherwise"] == [{name: values}]


# ---- the best weights

BEST = ["--keep", "best", "--game", "Snake-Solo-v1", "--eval-every", "1"]


@pytest.fixture(scope="module")
def best(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that keeps the best weights. They are not the last."""

    def train(folder: Path) -> None:
        (folder / "said.txt").write_text(msgrpo("train", *flags, *BEST, "--output-dir", folder).out)

    return once(tmp_path_factory, "keeps-best", train)


def test_keep_best_saves_and_plays_the_best_weights_on_the_validation_episodes(best: Path) -> None:
    assert preset("quickstart").keeps_best
    summary, update = summary_of(best), 1 + int(np.argmax([line["validation_reward"] for line in metrics(best)]))
    assert 1 <= update < 6
    assert (summary["adapter_update"], summary["best_update"], summary["config"]["keep"]) == (update, update, "best")
    assert sha256(best / "adapter" / WEIGHTS) == sha256(best / "best" / WEIGHTS)
    assert f"Kept: update {update}, the best on the validation episodes\n" in (best / "said.txt").read_text()
    game = make_game(summary["game"])
    limit = summary["config"]["max_new_tokens"]
    model = LanguageModel.from_pretrained(str(best / "adapter"), temperature=1.0, max_new_tokens=limit)
    episodes = play_episodes(game, model, [(episode_seed(game.id, "test", index), 0) for index in range(4)])
    assert summary["adapter"]["reward"] == np.mean([episode.reward for episode in episodes])


def test_a_killed_run_keeps_the_best_weights_even_without_its_folder_best(
    best: Path, msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for moment in (("Trainer.gradient", "call", 5), ("_finish", "call", 1)):
        ended = msgrpo("train", *flags, *BEST, "--resume", "--output-dir", run, die_at=moment)
        assert ended.code == -signal.SIGKILL
        shutil.rmtree(run / "best", ignore_errors=moment[0] == "_finish")  # it exists if a later update was better
    assert resumed(msgrpo, run).code == 0
    assert sha256(run / "adapter" / WEIGHTS) == sha256(best / "adapter" / WEIGHTS)
