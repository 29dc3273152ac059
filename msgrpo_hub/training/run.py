"""A whole run: from a configuration to an adapter, its curves, its final table and a replay."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from tqdm import tqdm

from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.agent.prompt_formats import find_format
from msgrpo_hub.credit import LearningCredit
from msgrpo_hub.downloads.names import exists, is_folder, pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import progress
from msgrpo_hub.fields import check
from msgrpo_hub.games import distinct_boards, episode_seed
from msgrpo_hub.models.devices import on_threads
from msgrpo_hub.models.vllm_server import VllmServer, parse_servers
from msgrpo_hub.players.sample_play import longest_prompts
from msgrpo_hub.rendering.charts import plot_curves
from msgrpo_hub.rendering.replay_svg import replay_svg, write_videos
from msgrpo_hub.storage.files import write_atomically, write_json
from msgrpo_hub.storage.shards import write_table
from msgrpo_hub.training import machine
from msgrpo_hub.training.acting import EngineActor, MakeActor, VllmActor
from msgrpo_hub.training.adapter import save_adapter
from msgrpo_hub.training.callbacks import Callback, RolloutLog, Run, run_origin, sample_reply
from msgrpo_hub.training.config import TrainConfig, fingerprint, fixed_fields, to_toml
from msgrpo_hub.training.machine import agreed, read_provenance
from msgrpo_hub.training.run_folder import Progress, RunFolder, load_checkpoint, locked, save_checkpoint
from msgrpo_hub.training.summary import (
    append_metrics,
    check_start,
    episode_table,
    outcome,
    play_test,
    read_metrics,
    read_summary,
    scores,
    size_of_test,
)
from msgrpo_hub.training.trainer import Trainer


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
        config: the settings of the run.
        output_dir: gets the files of `RunFolder`.
        acting: where training episodes are played: `engine` in this process, or vLLM servers, as `vllm:URL[,URL…]`, which
            must see the output folder under the same path. Such a run is not reproducible bit for bit.
        resume: continue the run in that folder, or start a new one. A finished run returns its summary.
        accept_rounding: resume even with other threads, batches, processes, device or versions; summary.json says so.
        show_progress: draw a progress bar on standard error.
        callbacks: called in the first process; see `Callback`.

    Returns:
        The content of summary.json; empty in all processes but the first.

    Raises:
        UserError: bad input, an unusable folder, or a diverged run; saved updates stay.
    """
    check("config", config, TrainConfig)
    check("output_dir", output_dir, str | Path)
    folder = RunFolder(Path(output_dir))
    make_actor: MakeActor = EngineActor
    if servers := servers_of(config, acting):
        make_actor = partial(VllmActor, servers=servers, folder=folder.acting)
    made = [path for path in (folder.path, *folder.path.parents) if not exists(path)]
    accelerator = machine.make_accelerator(config.device, config.report_to, folder.path)
    main = accelerator.is_main_process
    with ExitStack() as held:
        held.enter_context(on_threads(None))

        # 1) the folder, which one run holds at a time, and the state of that run
        with agreed(accelerator):
            if machine.sharding():
                check_sharded(config, acting)
            if main:
                for callback in callbacks:
                    callback.before_start(folder.path)
                folder.check(fixed_fields(config), resume)
                held.enter_context(locked(folder.path, made))
        with agreed(accelerator):
            seen = (folder.path.is_dir(), folder.summary.exists(), folder.updates())
            if accelerator.num_processes > 1 and len({*gather_object([seen])}) > 1:
                raise UserError(f"the processes do not see the same files in {str(folder.path)!r}: expected a shared disk")
        if folder.summary.exists():
            return read_summary(folder.summary) if main else {}
        hidden = not (main and show_progress)
        trainer = _trainer(config, folder, accelerator, make_actor, accept_rounding, hidden)
        held.callback(accelerator.end_training)
        if isinstance(trainer.actor, VllmActor):
            held.callback(trainer.actor.close)
        held.enter_context(folder.disk_errors())
        progress = Progress()
        with agreed(accelerator):
            if folder.checkpoint.exists():
                run = fingerprint(config)
                progress, state = load_checkpoint(folder.checkpoint, trainer.parameters, trainer.optimizer, run)
                if isinstance(trainer.credit, LearningCredit):
                    trainer.credit.load_state_dict(state)
        called: list[Callback] = [*([RolloutLog()] if config.save_rollouts else []), *callbacks] if main else []
        accelerator.init_trackers("msgrpo", config={name: str(value) for name, value in asdict(config).items()})
        with agreed(accelerator):
            for callback in called:
                callback.on_start(Run(config=config, folder=folder.path, updates=progress.updates))
            lines = read_metrics(folder.metrics, progress.updates) if main else []
            text = "".join(json.dumps(line) + "\n" for line in lines)  # without updates beyond the checkpoint
            if main:
                write_atomically(folder.metrics, lambda beside: beside.write_text(text, encoding="utf-8"))

        # 2) the remaining updates; after each, metrics and checkpoint are on the disk
        if main and progress.updates < config.updates:
            shutil.rmtree(folder.testing, ignore_errors=True)  # played by other weights
        shown: dict[str, str] = {}
        bar = tqdm(total=config.updates, initial=progress.updates, desc="training", unit="update", disable=hidden)
        held.enter_context(bar)
        for index in range(progress.updates + 1, config.updates + 1):
            update = trainer.update(index)
            progress = replace(progress, updates=index)
            if main and config.eval_every and (index % config.eval_every == 0 or index == config.updates):
                started = time.monotonic()
                update.metrics.update(trainer.evaluate())
                update.metrics["seconds_validating"] = time.monotonic() - started
                if (reward := update.metrics["validation_reward"]) > progress.best_reward:
                    save_adapter(trainer.agent, folder.best, config.prompt_format)
                    weights = {name: parameter.detach().cpu().clone() for name, parameter in trainer.parameters.items()}
                    kept = weights if config.keeps_best else {}
                    progress = replace(progress, best_update=index, best_reward=reward, best_weights=kept)
            for callback in called:
                callback.on_update(update)
            accelerator.log({name: value for name, value in update.metrics.items() if name != "update"}, step=index)
            if main:
                append_metrics(folder.metrics, update.metrics)
                state = trainer.credit.state_dict() if isinstance(trainer.credit, LearningCredit) else {}
                save_checkpoint(folder.checkpoint, trainer.parameters, trainer.optimizer, progress, fingerprint(config), state)
            bar.update()
            lines.append(update.metrics)
            with agreed(accelerator):
                if main:
                    check_start(config, lines)
            of = "validation_" if index <= config.taught else ""  # during SFT the policy plays only the validation episodes
            names = {"loss": "loss", "reward": "reward", "success": "success", "validation_success": "validation success"}
            names |= {f"{of}unreadable_rate": "unparsed", f"{of}truncated_rate": "truncated"}
            shown |= {name: f"{update.metrics[key]:.2f}" for key, name in names.items() if key in update.metrics}
            bar.set_postfix(shown)
            if main and config.show_replies and index % config.show_replies == 0:
                bar.write(sample_reply(update, index <= config.taught), file=sys.stderr)
        bar.close()

        # 3) adapter, curves, table and replay
        summary = _finish(trainer, config, folder, progress, show_progress) if main else {}
        for callback in called:
            callback.on_end(summary)
        return summary


def servers_of(config: TrainConfig, acting: str) -> list[VllmServer]:
    """The servers that sample; none for `engine`. Raises `UserError` for another text, and for staleness without servers."""
    if acting != "engine":
        return parse_servers(acting)
    if config.staleness:
        remedy = "expected vLLM servers, which sample while the trainer learns: add --acting vllm:URL, or use --staleness 0"
        raise UserError(f"staleness = 1 with acting = 'engine': {remedy}")
    return []


def check_sharded(config: TrainConfig, acting: str) -> None:
    """Raises `UserError` for settings that need the base in one piece."""
    samples = acting == "engine" and config.taught < config.updates
    problems = {
        "load_in_4bit = True: expected False, since accelerate does not shard 4-bit weights": config.load_in_4bit,
        "acting = 'engine': expected vllm:URL, or --taught for all updates, since a sharded base does not sample": samples,
        "an evaluation: expected --eval-every 0 and --test-episodes 0; evaluate the adapter with `msgrpo eval` on a server": (
            config.eval_every or config.test_episodes
        ),
    }
    for problem in filter(problems.get, problems):
        raise UserError(f"FSDP with {problem}")


def _trainer(
    config: TrainConfig, folder: RunFolder, accelerator: Accelerator, make_actor: MakeActor, accept_rounding: bool, hidden: bool
) -> Trainer:
    """Loads the model and claims the folder for this run."""
    began = read_provenance(folder.provenance)
    pinned, sources = machine.pin_sources(config, began)
    with progress(f"loading {config.model}", hidden=hidden, brief=True):
        trainer = Trainer(pinned, accelerator, make_actor)
    trainer.hidden, agent = hidden, trainer.agent
    settings = trainer.model.peft_config["default"]
    base = Path(str(settings.base_model_name_or_path)).resolve()
    if is_folder(base) and base != pocket_path().resolve():  # absolute, and with the hash of the folder as its revision
        settings.base_model_name_or_path, settings.revision = str(base), sources["base_commit"]
    machine.choose_threads(config.threads, began, agent.model.num_parameters())
    games = trainer.starts.games.values()
    longest = max(agent.encode(longest_prompts(games, format_of(agent))), key=len)
    with progress("comparing the fast engine with the model's own code", hidden=hidden, brief=True):
        engine = agent.engine.choose(longest, agent.max_new_tokens).name
    with agreed(accelerator), folder.disk_errors():
        if accelerator.is_main_process:
            machine.check_memory(agent, games, config)
            budget = machine.token_budget(config, trainer.model)
            numeric: dict[str, Any] = {"max_rows": config.max_rows, "token_budget": budget}
            numeric |= {"gradient_checkpointing": config.gradient_checkpointing}
            numeric |= {"processes": accelerator.num_processes, "acting": trainer.actor.name}
            folder.claim(to_toml(config))
            machine.record(folder.provenance, sources, agent.model.device.type, engine, numeric, accept_rounding)
    return trainer


def _finish(trainer: Trainer, config: TrainConfig, folder: RunFolder, progress: Progress, show_progress: bool) -> dict[str, Any]:
    """Writes adapter, curves, test episodes, replay and summary."""
    # 1) the weights to keep, and the curves
    if config.keeps_best:
        with torch.no_grad():
            for name, parameter in trainer.parameters.items():
                parameter.copy_(progress.best_weights[name])
    save_adapter(trainer.agent, folder.adapter, config.prompt_format)
    metrics, started = read_metrics(folder.metrics), time.monotonic()
    title = f"{config.game}, {config.model}{f' + {config.init_adapter}' if config.init_adapter else ''}, seed {config.seed}"
    write_atomically(folder.curves, lambda beside: plot_curves(metrics, beside, title))

    # 2) the final table of every game; the first game at the top of the summary
    games, adapter = trainer.starts.games, trainer.agent
    episodes = size_of_test(config, metrics, len(games))
    summary: dict[str, Any] = {"model": config.model, "seed": config.seed, "episodes": episodes}
    tables, played = list[dict[str, Any]](), {}
    for name, game in games.items() if episodes else ():
        seeds = [episode_seed(name, "test", index) for index in range(episodes)]
        played[name] = play_test(game, adapter, seeds, config.eval_temperature, folder.testing, show_progress)
        rows = {player.name: scores(game, player) for player in played[name]}
        tables.append({"game": name, "boards": distinct_boards(name, tuple(seeds)), "players": list(rows), **rows})
        if not {"optimal", "greedy"} & rows.keys():
            tables[-1]["left_out"] = [f"greedy does not know {name}: left out"]
    if not tables:
        summary["game"] = next(iter(games))
    else:
        first, *others = tables
        origin = replace(run_origin(folder), split="test", temperature=config.eval_temperature)
        everything = pa.concat_tables([episode_table(players, origin, config.prompt_format) for players in played.values()])
        write_atomically(folder.test_episodes, partial(write_table, everything))

        if not others:  # the curves of several games are of all of them
            known: dict[str, Any] = {name: first[name] for name in ("base", "optimal") if name in first}
            write_atomically(folder.curves, lambda beside: plot_curves(metrics, beside, title, known))

        # 3) a replay of the adapter where it gains most on the base
        by_name = {player.name: player for player in played[first["game"]]}
        pairs = zip(by_name["base"].sampled, by_name["adapter"].sampled, strict=True)
        index = int(np.argmax([adapted.reward - base.reward for base, adapted in pairs]))
        pair = [(name, by_name[name].sampled[index]) for name in ("base", "adapter")]
        replay = (games[first["game"]], pair, find_format(config.prompt_format, may_import=True))
        write_atomically(folder.replay, lambda beside: beside.write_text(replay_svg(*replay), encoding="utf-8"))
        if all(map(find_spec, ("imageio_ffmpeg", "resvg_py"))):
            write_videos([folder.video, folder.gif], *replay)
        summary |= first | ({"other_games": others} if others else {}) | {"replayed_test_episode": index}

    # 4) the summary
    acting, training = (sum(line[f"seconds_{part}"] for line in metrics) for part in ("acting", "training"))
    evaluating = time.monotonic() - started + sum(line.get("seconds_validating", 0.0) for line in metrics)
    summary |= {"seconds_acting": acting, "seconds_training": training, "seconds_evaluating": evaluating}
    kept = progress.best_update if config.keeps_best else progress.updates
    summary |= {"seconds": acting + training + evaluating, "adapter_update": kept, "best_update": progress.best_update}
    summary |= outcome(config, metrics)
    summary |= read_provenance(folder.provenance)
    summary |= {"config": asdict(config), "processes": trainer.accelerator.num_processes, "threads": torch.get_num_threads()}
    shutil.rmtree(folder.testing, ignore_errors=True)
    write_json(folder.summary, summary, sort_keys=False)
    return summary
