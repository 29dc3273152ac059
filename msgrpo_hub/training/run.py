"""A whole run: from a configuration to an adapter, its curves, its final table and a replay."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from accelerate import Accelerator
from tqdm import tqdm

from msgrpo_hub.agent.prompt_formats import find_format
from msgrpo_hub.credit import LearningCredit
from msgrpo_hub.downloads.fetching import TEMPLATE
from msgrpo_hub.downloads.names import exists, is_folder, pocket_path
from msgrpo_hub.downloads.play_settings import PLAY_SETTINGS, PlaySettings
from msgrpo_hub.fields import checked
from msgrpo_hub.games import distinct_boards
from msgrpo_hub.models.adapters import RESIZED
from msgrpo_hub.models.chat_templates import pocket_template
from msgrpo_hub.models.devices import on_threads
from msgrpo_hub.rendering.curves import plot_curves
from msgrpo_hub.rendering.replay import replay_svg
from msgrpo_hub.storage.files import write_atomically, write_json
from msgrpo_hub.storage.shards import write_table
from msgrpo_hub.training.acting import MakeActor, actor_of
from msgrpo_hub.training.callbacks import Callback, Run
from msgrpo_hub.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.memory import check_memory
from msgrpo_hub.training.metrics import Metrics, append_metrics, read_metrics
from msgrpo_hub.training.outcome import check_start, outcome
from msgrpo_hub.training.processes import agreed, check_shared, make_accelerator
from msgrpo_hub.training.provenance import pin_sources, record
from msgrpo_hub.training.rollout_log import RolloutLog, run_origin
from msgrpo_hub.training.rounding import check_rounding, choose_threads, read_provenance, rounding
from msgrpo_hub.training.run_folder import RunFolder, fingerprint
from msgrpo_hub.training.run_lock import SignOfLife, locked
from msgrpo_hub.training.summary import episode_table, left_out, play_test, read_summary, replayed_episode, scores
from msgrpo_hub.training.trackers import TrackerLog
from msgrpo_hub.training.trainer import Trainer


@checked
def train(
    config: TrainConfig,
    output_dir: str | Path,
    *,
    acting: str = "engine",
    resume: bool = False,
    accept_rounding: bool = False,
    show_progress: bool = True,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Trains a LoRA adapter with MS-GRPO and evaluates it.

    Args:
        config: what to train, on what, and how.
        output_dir: gets config.toml, provenance.json, metrics.jsonl, checkpoint.safetensors, adapter/ (the last weights, or
            with `keep` the best), best/ (the best on the validation episodes), curves.png, replay.svg, test_episodes.parquet and
            summary.json; with `save_rollouts` also rollouts/, the training episodes.
        acting: who plays the episodes of updates: `engine` in this process, or vLLM servers, as `vllm:URL[,URL…]`. They must see
            the output folder under the same path. Such a run does not repeat bit for bit.
        resume: continue the run in that folder, or start a new one. A finished run returns its summary.
        accept_rounding: resume also where threads, batches, processes, device or versions are not those that the run began with.
            Its adapter may then differ from that of an uninterrupted run; summary.json says so.
        show_progress: draw a progress bar on standard error.
        callbacks: called beside the training, in the first process; see `Callback`.

    Returns:
        The summary that is also written to summary.json; empty in all processes but the first.

    Raises:
        UserError: bad input, an unusable folder, or a diverged run; what was saved stays as it was.
    """
    folder = RunFolder(Path(output_dir))
    make_actor = actor_of(acting, folder.acting)
    made = [path for path in (folder.path, *folder.path.parents) if not exists(path)]
    accelerator = make_accelerator(config, folder)
    with ExitStack() as held:
        held.enter_context(on_threads(None))
        with agreed(accelerator):
            if accelerator.is_main_process:
                for callback in callbacks:
                    callback.before_start(folder.path)
                folder.check(config, resume)
                held.enter_context(locked(folder.path, made))
        with agreed(accelerator):
            check_shared(folder, accelerator)
        if folder.summary.exists():
            return read_summary(folder.summary) if accelerator.is_main_process else {}
        trainer, progress = _prepared(config, folder, accelerator, make_actor, accept_rounding)
        called = [*_own_callbacks(config, folder, accelerator), *callbacks] if accelerator.is_main_process else []
        try:
            with folder.disk_errors():
                with agreed(accelerator):
                    for callback in called:
                        callback.on_start(Run(config=config, folder=folder.path, updates=progress.updates))
                progress = _learn(trainer, folder, progress, called, show_progress)
                summary = _finish(trainer, folder, progress) if accelerator.is_main_process else {}
                for callback in called:
                    callback.on_end(summary)
                return summary
        finally:
            trainer.actor.close()
            accelerator.end_training()


def _prepared(
    config: TrainConfig, folder: RunFolder, accelerator: Accelerator, make_actor: MakeActor, accept_rounding: bool
) -> tuple[Trainer, Progress]:
    """A trainer in the state that the run is in; the folder now belongs to this run."""
    pinned, provenance = pin_sources(config, folder.provenance)
    trainer = Trainer(pinned, accelerator, make_actor)
    settings = trainer.model.peft_config["default"]
    base = Path(str(settings.base_model_name_or_path)).resolve()
    if is_folder(base) and base != pocket_path().resolve():  # so that it is found from any folder, and a change is noticed
        settings.base_model_name_or_path, settings.revision = str(base), provenance.base_commit
    choose_threads(config, folder.provenance, trainer.agent.model.num_parameters())
    device, engine = trainer.model.device.type, trainer.chosen_engine()
    now = rounding(config, accelerator.num_processes, device, engine, trainer.actor.name)
    with agreed(accelerator), folder.disk_errors():
        if accelerator.is_main_process:
            check_memory(config, trainer.agent, trainer.starts.games.values())
            check_rounding(now, folder.provenance, accept_rounding)
            folder.claim(config)
            if not folder.provenance.exists():
                record(provenance, folder.provenance, device, engine, now)
    with agreed(accelerator):
        progress = _resumed(trainer, folder)
    return trainer, progress


def _own_callbacks(config: TrainConfig, folder: RunFolder, accelerator: Accelerator) -> list[Callback]:
    rollouts: list[Callback] = [RolloutLog()] if config.save_rollouts else []
    return [SignOfLife(folder.path), *rollouts, *([TrackerLog(accelerator)] if accelerator.log_with else [])]


def _resumed(trainer: Trainer, folder: RunFolder) -> Progress:
    """Puts the checkpoint of a run that resumes in place, and says how far it was."""
    if not folder.checkpoint.exists():
        return Progress()
    run = fingerprint(trainer.config)
    progress, credit = load_checkpoint(folder.checkpoint, trainer.parameters, trainer.optimizer, run)
    if isinstance(trainer.credit, LearningCredit):
        trainer.credit.load_state_dict(credit)
    return progress


def _learn(
    trainer: Trainer, folder: RunFolder, progress: Progress, callbacks: Sequence[Callback], show_progress: bool
) -> Progress:
    """Runs the remaining updates; after each, the metrics and the checkpoint are safe on the disk."""
    config, main, lines = trainer.config, trainer.accelerator.is_main_process, list[Metrics]()
    if main:
        lines = read_metrics(folder.metrics, progress.updates)
        kept = "".join(json.dumps(line) + "\n" for line in lines)
        write_atomically(folder.metrics, lambda beside: beside.write_text(kept, encoding="utf-8"))
    bar = tqdm(
        total=config.updates, initial=progress.updates, desc="training", unit="update", disable=not (main and show_progress)
    )
    with bar:
        for index in range(progress.updates + 1, config.updates + 1):
            update = trainer.update(index)
            progress = replace(progress, updates=index)
            if main and config.eval_every and (index % config.eval_every == 0 or index == config.updates):
                started = time.monotonic()
                update.metrics.update(trainer.evaluate())
                update.metrics["seconds_validating"] = time.monotonic() - started
                progress = _keep_best(trainer, folder, progress, update.metrics["validation_reward"])
            for callback in callbacks:
                callback.on_update(update)
            if main:
                append_metrics(folder.metrics, update.metrics)
                _save(trainer, folder, progress)
            bar.update()
            lines.append(update.metrics)
            with agreed(trainer.accelerator):
                if main:
                    check_start(config, lines)
            shown = ("loss",) if index <= config.taught else ("reward", "success")
            bar.set_postfix({name: f"{update.metrics[name]:.2f}" for name in shown})
    return progress


def _save(trainer: Trainer, folder: RunFolder, progress: Progress) -> None:
    credit = trainer.credit.state_dict() if isinstance(trainer.credit, LearningCredit) else None
    save_checkpoint(
        folder.checkpoint, trainer.parameters, trainer.optimizer, progress, fingerprint(trainer.config), credit=credit
    )


def _keep_best(trainer: Trainer, folder: RunFolder, progress: Progress, reward: float) -> Progress:
    """Saves the adapter when it is the best so far on the validation episodes."""
    if reward <= progress.best_reward:
        return progress
    save_adapter(trainer, folder.best)
    weights = {name: parameter.detach().cpu().clone() for name, parameter in trainer.parameters.items()}
    kept = weights if trainer.config.keeps_best else {}
    return replace(progress, best_update=progress.updates, best_reward=reward, best_weights=kept)


def save_adapter(trainer: Trainer, path: Path) -> None:
    """Writes the adapter in PEFT's layout, each file put in place at once."""
    beside = path.with_name(f".{path.name}.new")
    beside.mkdir(exist_ok=True)  # fails where the folder of the run is gone; PEFT would make it anew
    resized = trainer.model.get_base_model() in RESIZED  # which PEFT would ask the Hub
    trainer.model.save_pretrained(str(beside), save_embedding_layers=resized)
    (beside / "README.md").unlink(missing_ok=True)  # PEFT's template for a card: `msgrpo push` writes a card
    tokenizer, switches = trainer.agent.tokenizer, dict(trainer.agent.chat_template_kwargs)
    write_json(
        beside / PLAY_SETTINGS,
        PlaySettings(prompt_format=trainer.config.prompt_format, chat_template_kwargs=switches).record(),
    )
    if tokenizer.name_or_path != trainer.model.config._name_or_path:  # the one beside init_adapter
        tokenizer.save_pretrained(beside)
    template = tokenizer.get_chat_template()
    if tokenizer.name_or_path != str(pocket_path()) or template != pocket_template():  # which is in every installation
        (beside / TEMPLATE).write_text(template, encoding="utf-8")
    path.mkdir(exist_ok=True)
    for file in sorted(beside.iterdir()):
        file.replace(path / file.name)
    beside.rmdir()


def _kept(trainer: Trainer, progress: Progress) -> int:
    """Gives the trainer the weights that the run keeps. Returns the update that they are of."""
    if not trainer.config.keeps_best:
        return progress.updates
    with torch.no_grad():
        for name, parameter in trainer.parameters.items():
            parameter.copy_(progress.best_weights[name])
    return progress.best_update


def _finish(trainer: Trainer, folder: RunFolder, progress: Progress) -> dict[str, Any]:
    """Adapter, curves, final tables and replay."""
    config, adapter_update = trainer.config, _kept(trainer, progress)
    save_adapter(trainer, folder.adapter)
    metrics = read_metrics(folder.metrics)
    write_atomically(folder.curves, lambda beside: plot_curves(metrics, beside))
    started = time.monotonic()
    summary: dict[str, Any] = {"model": config.model, "seed": config.seed, "episodes": config.test_episodes}
    if config.test_episodes:
        summary |= _test(trainer, folder)
    else:
        summary["game"] = next(iter(trainer.starts.games))
    summary |= _seconds(metrics, time.monotonic() - started)
    summary |= {"adapter_update": adapter_update, "best_update": progress.best_update}
    summary |= outcome(config, metrics, trainer.parameters)
    summary |= read_provenance(folder.provenance)
    summary |= {"config": asdict(config), "processes": trainer.accelerator.num_processes, "threads": torch.get_num_threads()}
    write_json(folder.summary, summary, sort_keys=False)
    return summary


def _test(trainer: Trainer, folder: RunFolder) -> dict[str, Any]:
    """The final table of every game, and a replay of the first. A run of several games has the others under `other_games`."""
    config, played, tables = trainer.config, {}, {}
    for name, game in trainer.starts.games.items():
        played[name] = play_test(game, trainer.agent, trainer.starts.test(name), config.eval_temperature)
        rows = {player.name: scores(game, player) for player in played[name]}
        boards, unknown = distinct_boards(name, tuple(trainer.starts.test(name))), left_out(game)
        table = {"game": name, "boards": boards, "players": list(rows), **rows}
        tables[name] = table | ({"left_out": unknown} if unknown else {})
    first, *others = trainer.starts.games
    origin = replace(run_origin(folder), split="test", temperature=config.eval_temperature)
    everything = pa.concat_tables([episode_table(players, origin, config.prompt_format) for players in played.values()])
    write_atomically(folder.test_episodes, partial(write_table, everything))
    by_name = {player.name: player for player in played[first]}
    shown = replayed_episode(by_name["base"], by_name["adapter"])
    pair = [(name, by_name[name].sampled[shown]) for name in ("base", "adapter")]
    svg = replay_svg(trainer.starts.games[first], pair, find_format(config.prompt_format, may_import=True))
    write_atomically(folder.replay, lambda beside: beside.write_text(svg, encoding="utf-8"))
    more = {"other_games": [tables[name] for name in others]} if others else {}
    return tables[first] | {"replayed_test_episode": shown} | more


def _seconds(metrics: list[Metrics], evaluating: float) -> dict[str, float]:
    evaluating += sum(line.get("seconds_validating", 0.0) for line in metrics)
    acting = sum(line["seconds_acting"] for line in metrics)
    training = sum(line["seconds_training"] for line in metrics)
    return {
        "seconds_acting": acting,
        "seconds_training": training,
        "seconds_evaluating": evaluating,
        "seconds": acting + training + evaluating,
    }
