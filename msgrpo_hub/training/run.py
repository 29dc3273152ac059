"""A whole run: from a configuration to an adapter, its curves, its final table and a replay."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from tqdm import tqdm

from msgrpo_hub.agent.prompt_formats import find_format
from msgrpo_hub.downloads.fetching import PLAY_SETTINGS
from msgrpo_hub.errors import UserError
from msgrpo_hub.rendering.curves import plot_curves
from msgrpo_hub.rendering.replay import replay_svg
from msgrpo_hub.storage.files import write_atomically, write_json
from msgrpo_hub.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.metrics import Metrics, append_metrics, read_metrics
from msgrpo_hub.training.provenance import pin_base, record
from msgrpo_hub.training.rollout_log import RolloutLog
from msgrpo_hub.training.run_folder import RunFolder, disk_errors, fingerprint
from msgrpo_hub.training.summary import episode_table, left_out, play_test, scores, telling_episode
from msgrpo_hub.training.trainer import Trainer


def train(config: TrainConfig, output_dir: str | Path, *, resume: bool = False, show_progress: bool = True) -> dict[str, Any]:
    """Trains a LoRA adapter with MS-GRPO and evaluates it.

    Args:
        config: what to train, on what, and how.
        output_dir: gets config.toml, provenance.json, metrics.jsonl, checkpoint.safetensors, adapter/ (the last weights), best/
            (the best on the validation episodes), curves.png, replay.svg, test_episodes.parquet and summary.json; with
            `save_rollouts` also rollouts/, the training episodes.
        resume: go on with the run that lies there; without one, start it. A finished run gives back its summary.
        show_progress: draw a progress bar on standard error.

    Returns:
        The summary that is also written to summary.json; empty in all processes but the first.

    Raises:
        UserError: bad input, an unusable folder, or a diverged run; what was saved stays as it was.
    """
    folder = RunFolder(Path(output_dir))
    if config.threads:
        torch.set_num_threads(config.threads)
    accelerator = _accelerator(config, folder)
    if accelerator.is_main_process:
        folder.check(config, resume)
    accelerator.wait_for_everyone()
    if folder.summary.exists():
        return dict(json.loads(folder.summary.read_text()))
    pinned, provenance = pin_base(config, folder.provenance)
    trainer = Trainer(pinned, accelerator)
    if accelerator.is_main_process:
        folder.claim(config)
        if not folder.provenance.exists():
            with disk_errors(folder.path, 0):
                record(provenance, folder.provenance)
    progress = Progress()
    if folder.checkpoint.exists():
        progress = load_checkpoint(folder.checkpoint, trainer.parameters, trainer.optimizer, fingerprint(pinned))
    accelerator.wait_for_everyone()
    with _trackers(accelerator, config):
        with disk_errors(folder.path, progress.updates):
            _learn(trainer, folder, progress, show_progress)
        with disk_errors(folder.path, config.updates):
            return _finish(trainer, folder) if accelerator.is_main_process else {}


def _learn(trainer: Trainer, folder: RunFolder, progress: Progress, show_progress: bool) -> None:
    """Runs the remaining updates; after each, the metrics and the checkpoint are safe on the disk."""
    config, accelerator = trainer.config, trainer.accelerator
    main = accelerator.is_main_process
    if main:
        kept = "".join(json.dumps(line) + "\n" for line in read_metrics(folder.metrics, progress.updates))
        write_atomically(folder.metrics, lambda beside: beside.write_text(kept))
    keep = RolloutLog(folder.rollouts, progress.updates, config.prompt_format).write if main and config.save_rollouts else None
    bar = tqdm(
        total=config.updates, initial=progress.updates, desc="training", unit="update", disable=not (main and show_progress)
    )
    with bar:
        for index in range(progress.updates + 1, config.updates + 1):
            with disk_errors(folder.path, index - 1):
                metrics = trainer.update(index, keep)
                progress = replace(progress, updates=index)
                if main and config.eval_every and (index % config.eval_every == 0 or index == config.updates):
                    metrics |= trainer.evaluate()
                    progress = _keep_best(trainer, folder, progress, metrics["validation_reward"])
                if main:
                    append_metrics(folder.metrics, metrics)
                    save_checkpoint(folder.checkpoint, trainer.parameters, trainer.optimizer, progress, fingerprint(config))
            accelerator.log({name: value for name, value in metrics.items() if name != "update"}, step=index)
            bar.update()
            bar.set_postfix(reward=f"{metrics['reward']:.2f}", success=f"{metrics['success']:.2f}")


def _keep_best(trainer: Trainer, folder: RunFolder, progress: Progress, reward: float) -> Progress:
    """Saves the adapter when it is the best so far on the validation episodes."""
    if reward <= progress.best_reward:
        return progress
    save_adapter(trainer, folder.best)
    return replace(progress, best_update=progress.updates, best_reward=reward)


def save_adapter(trainer: Trainer, path: Path) -> None:
    """Writes the adapter in PEFT's layout, each file put in place at once."""
    beside = path.with_name(f".{path.name}.new")
    trainer.model.save_pretrained(str(beside))
    write_json(beside / PLAY_SETTINGS, {"prompt_format": trainer.config.prompt_format})
    path.mkdir(exist_ok=True)
    for file in sorted(beside.iterdir()):
        file.replace(path / file.name)
    beside.rmdir()


def _finish(trainer: Trainer, folder: RunFolder) -> dict[str, Any]:
    """Adapter, curves, final table and replay."""
    config, game = trainer.config, trainer.game
    save_adapter(trainer, folder.adapter)
    metrics = read_metrics(folder.metrics)
    write_atomically(folder.curves, lambda beside: plot_curves(metrics, beside))
    started = time.monotonic()
    summary: dict[str, Any] = {"game": game.id, "model": config.model, "seed": config.seed, "episodes": config.test_episodes}
    if config.test_episodes:
        played = play_test(game, trainer.agent, trainer.starts.test, config.eval_temperature)
        rows = {player.name: player for player in played}
        summary |= {"players": list(rows), **{name: scores(game, player) for name, player in rows.items()}}
        if unknown := left_out(game):
            summary["left_out"] = unknown
        write_atomically(folder.test_episodes, lambda beside: pq.write_table(episode_table(played), beside))
        shown = telling_episode(rows["base"], rows["adapter"])
        prompt_format = find_format(config.prompt_format, may_import=True)
        pair = [(name, rows[name].sampled[shown]) for name in ("base", "adapter")]
        write_atomically(folder.replay, lambda beside: beside.write_text(replay_svg(game, pair, prompt_format)))
        summary["replayed_test_episode"] = shown
    summary |= _seconds(metrics, time.monotonic() - started)
    summary |= json.loads(folder.provenance.read_text())
    summary |= {"config": asdict(config), "processes": trainer.accelerator.num_processes, "threads": torch.get_num_threads()}
    write_atomically(folder.summary, lambda beside: beside.write_text(json.dumps(summary, indent=2) + "\n"))
    return summary


def _seconds(metrics: list[Metrics], evaluating: float) -> dict[str, float]:
    acting = sum(line["seconds_acting"] for line in metrics)
    training = sum(line["seconds_training"] for line in metrics)
    return {
        "seconds_acting": acting,
        "seconds_training": training,
        "seconds_evaluating": evaluating,
        "seconds": acting + training + evaluating,
    }


def _accelerator(config: TrainConfig, folder: RunFolder) -> Accelerator:
    if config.report_to in ("none", "all"):
        return Accelerator(log_with=None if config.report_to == "none" else "all", project_dir=str(folder.path))
    if config.report_to not in [tracker.value for tracker in get_available_trackers()]:
        raise UserError(f"report_to = {config.report_to!r} cannot be used, it is not installed: install it or take 'none'")
    return Accelerator(log_with=config.report_to, project_dir=str(folder.path))


@contextmanager
def _trackers(accelerator: Accelerator, config: TrainConfig) -> Iterator[None]:
    if accelerator.log_with:
        accelerator.init_trackers("msgrpo", config={k: str(v) for k, v in asdict(config).items()})
    try:
        yield
    finally:
        accelerator.end_training()
