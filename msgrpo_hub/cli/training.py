"""`msgrpo train` trains a LoRA adapter with MS-GRPO."""

from __future__ import annotations

import argparse
import gc
import os
import re
import shlex
from dataclasses import asdict, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from msgrpo_hub.cli.flags import add_fields, add_json, given_fields, print_next, read_as, show
from msgrpo_hub.cli.hub import adapter_push, add_visibility, show_pushed
from msgrpo_hub.cli.play import quiet_loading
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.fields import Range, Seed, is_import
from msgrpo_hub.games.registry import TYPED, import_game
from msgrpo_hub.training.presets import PRESETS, remark

if TYPE_CHECKING:
    from msgrpo_hub.training.config import TrainConfig

MINUTES = 10.0  # the default of --checkpoint-every


def add_train(parser: argparse.ArgumentParser) -> None:
    """Train a LoRA adapter with MS-GRPO. The configuration starts from a preset or a file, if given, and every flag below
    changes one field of it. Every finished update is saved; an interrupted run continues with --resume, byte for byte."""
    from msgrpo_hub.training.config import CHOICES, TrainConfig

    flag = parser.add_argument
    flag("--preset", help=f"one of {', '.join(PRESETS)}; paper-* need a GPU")
    flag("--config", type=Path, metavar="FILE", help="a TOML file, such as the config.toml of another run")
    flag("--output-dir", type=Path, required=True, metavar="DIR", help="the run folder")
    text = "train several seeds in turn, as in 0-4 or 0,2,5, each in DIR/seed-N, and sum them up"
    flag("--seeds", type=read_seeds, metavar="LIST", help=text)
    text = "who plays the episodes of updates: this process, or vLLM servers that see the run folder. Default: engine"
    flag("--acting", default="engine", metavar="engine|vllm:URL[,URL…]", help=text)
    flag("--resume", action="store_true", help="continue the run in the output folder, or start it")
    text = "resume even with other threads, batches, processes, device or versions than before; the summary says so"
    flag("--accept-rounding", action="store_true", help=text)
    text = "say what would run and how much memory it needs; downloads settings and tokenizer, but no weights"
    flag("--dry-run", action="store_true", help=text)
    add_json(parser, "print the summary as JSON")
    flag("--push-to-hub", metavar="REPO", help="push the adapter to USER/NAME after training")
    text = "for --push-to-hub: where the base model is on the Hub, if it was trained from a folder"
    flag("--base", metavar="REPO", help=text)
    add_visibility(parser)
    text = "keep the run in USER/NAME on the Hub too, a private repository; --resume in a new folder continues that run"
    flag("--checkpoint-repo", metavar="REPO", help=text)
    text = f"time between two pushes to it; 0 pushes after every update. Default: {MINUTES:g}"
    flag("--checkpoint-every", type=read_as(Annotated[float, Range(0, 1_000_000)]), metavar="MINUTES", help=text)
    remarks = {field.name: remark(field.name, field.default) for field in fields(TrainConfig)}
    add_fields(parser, TrainConfig, "configuration", CHOICES, remarks)


def read_seeds(text: str) -> tuple[int, ...]:
    """Reads a list of training seeds.

    >>> read_seeds("0-2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin, end = (read_as(Seed)(end) for end in (first, last if dash else first))
        if end < begin or end - begin >= 1000:
            raise argparse.ArgumentTypeError(f"{shown(part)}: expected the smaller seed first, and at most 1000 seeds")
        seeds += range(begin, end + 1)
    if len({*seeds}) < len(seeds):
        raise argparse.ArgumentTypeError(f"{shown(text)} has a seed twice: expected each once, as in 0-4 or 0,2,5")
    return tuple(seeds)


def run_train(options: argparse.Namespace) -> None:
    # 1) checks, before hours of training
    folder = options.output_dir
    if not options.push_to_hub and (options.base or options.private is not None) and not options.seeds:
        raise UserError("--base, --private and --public are for a push: expected --push-to-hub USER/NAME as well")
    config = train_config(options)
    runs = _seed_runs(options, config) if options.seeds else {folder: config}
    quiet_loading(config.model)
    if options.dry_run:
        from msgrpo_hub.training.dry_run import dry_run, plan_text

        path, own = next(iter(runs.items()))
        if os.environ.get("RANK", "0") == "0":
            plan = dry_run(own, path, options.acting, resume=options.resume or bool(options.seeds)) | {"runs": len(runs)}
            show(plan, plan_text(plan), as_json=options.json)
        return
    if options.push_to_hub:
        from msgrpo_hub.hub.adapters import check_push

        check_push(config, options.push_to_hub, options.base)
    callbacks = []
    if options.checkpoint_repo:
        from msgrpo_hub.hub.checkpoints import HubCheckpoints

        minutes = MINUTES if options.checkpoint_every is None else options.checkpoint_every
        callbacks.append(HubCheckpoints(options.checkpoint_repo, minutes, fetch=options.resume))
    elif options.checkpoint_every is not None:
        raise UserError("--checkpoint-every without --checkpoint-repo: expected --checkpoint-repo USER/NAME as well")

    # 2) one run per seed, one after another
    from msgrpo_hub.training.run import train

    how = {"acting": options.acting, "accept_rounding": options.accept_rounding, "callbacks": callbacks}
    for path, own in runs.items():
        try:
            summary = train(own, path, resume=options.resume or bool(options.seeds), **how)
        except UserError as error:
            if not options.seeds:
                raise
            raise UserError(f"seed {own.seed}: {error}; continue with --resume") from error
        gc.collect()  # the next run needs the memory of this one's model
    if not summary:  # a process other than the first
        return

    # 3) results and next commands
    if options.seeds:
        from msgrpo_hub.training.seeds import data_of, find_variants, seed_table

        variants, text = find_variants([folder]), f"\n\nThe adapters are in {folder}/seed-N/adapter"
        show([data_of(variant) for variant in variants], seed_table(variants) + text, as_json=options.json)
        print_next(f"msgrpo curves {shlex.quote(str(folder))}", *[*filter(None, map(adapter_push, runs))][:1])
        return
    show(summary, summary_text(summary, folder), as_json=options.json)
    print_next(*next_commands(summary, config, folder))
    if options.push_to_hub:
        from msgrpo_hub.hub import push_adapter

        pushed = push_adapter(folder, options.push_to_hub, private=options.private, base=options.base)
        show_pushed(pushed, quiet=options.json, next_command=f"msgrpo eval {options.push_to_hub} --suite quick")


def _seed_runs(options: argparse.Namespace, config: TrainConfig) -> dict[Path, TrainConfig]:
    """Folder → configuration of each seed's run. Raises `UserError` if one of them cannot start."""
    from msgrpo_hub.training.config import fixed_fields
    from msgrpo_hub.training.run_folder import RunFolder, seed_folders

    folder = options.output_dir
    if hasattr(options, "seed"):
        raise UserError("--seed and --seeds are both given: expected one of them")
    if options.checkpoint_repo:
        raise UserError("--checkpoint-repo is for one seed: expected one `msgrpo train` per seed, each with its own repository")
    if options.push_to_hub or options.base or options.private is not None:
        raise UserError(f"--push-to-hub is for one seed: expected `msgrpo push adapter {folder}/seed-N USER/NAME` after training")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("several seeds under a launcher such as torchrun: expected one process, or one seed")
    if RunFolder(folder).config.exists():
        raise UserError(f"{str(folder)!r} holds a run of one seed: name another --output-dir for several")
    runs = {folder / f"seed-{seed}": replace(config, seed=seed) for seed in options.seeds}
    for path in seed_folders(folder):  # also of other seeds: all runs of the folder are one variant
        run, seed = RunFolder(path), int(path.name.removeprefix("seed-"))
        run.check(fixed_fields(replace(config, seed=seed)), options.resume or path not in runs)
        if path in runs:
            run.updates()  # refuses a damaged checkpoint
    return runs


def summary_text(summary: dict[str, Any], folder: Path) -> str:
    """The final table of a run, and where its files are."""
    from msgrpo_hub.training.summary import table

    lines = []
    if "players" in summary:
        rest = {"episodes": summary["episodes"]}
        lines.append("\n\n".join(table(of_game | rest) for of_game in (summary, *summary.get("other_games", []))))
    times = f"{summary['seconds_acting']:.0f} s sampling, {summary['seconds_training']:.0f} s training"
    lines.append(f"{times}, {summary['seconds']:.0f} s in all with the evaluation\n")
    if why := summary.get("learned_nothing"):
        lines.append(f"It learned nothing: {why}")
    if why := summary.get("rewards_taught_nothing"):
        lines.append(f"It learned from SFT alone: {why}")
    if summary["config"].get("keep") == "best" and summary["best_update"]:
        lines.append(f"Kept: update {summary['adapter_update']}, the best on the validation episodes")
    replay = f", a replay in {folder}/replay.svg" if "players" in summary else ""
    return "\n".join([*lines, f"The adapter is in {folder}/adapter, the learning curves in {folder}/curves.png{replay}"])


def next_commands(summary: dict[str, Any], config: Any, folder: Path) -> list[str]:
    """The commands to try after a run: first the episode of its replay, with the same sampling."""
    from msgrpo_hub.training.config import CHOICES

    typed = {name: f" --{name.replace('_', '-')} {value}" for name in CHOICES if is_import(value := str(getattr(config, name)))}
    own_format = typed.get("prompt_format", "")
    sampled = f"--seed {summary.get('replayed_test_episode', 0)} --temperature {config.eval_temperature:g}{own_format}"
    adapter, settings, own, further = (
        shlex.quote(str(path)) for path in (folder / "adapter", folder / "config.toml", folder, f"{folder}-{config.seed + 1}")
    )
    return [
        f"msgrpo play {TYPED.get(game := summary['game'], game)} --player {adapter} {sampled}",
        f"msgrpo train --config {settings}{''.join(typed.values())} --seed {config.seed + 1} --output-dir {further}",
        *([f"msgrpo push rollouts {own} USER/NAME"] if config.save_rollouts else []),
    ]


def train_config(options: argparse.Namespace) -> TrainConfig:
    """The configuration of a preset or a file, or with --resume of the run itself, changed by the flags."""
    from msgrpo_hub.training.config import TrainConfig, from_values, load_config, preset
    from msgrpo_hub.training.run_folder import seed_folders

    flags = given_fields(options, TrainConfig)
    if "game" in flags:
        flags["game"] = re.sub(r"[^,=\s]+", lambda name: import_game(name[0]), flags["game"])
    if flags.get("sft"):  # in place of the teacher of a preset
        flags = {"teacher": "none", "teacher_thoughts": False} | flags
    if options.push_to_hub and options.push_to_hub == options.checkpoint_repo:
        raise UserError(f"--push-to-hub and --checkpoint-repo are both {options.push_to_hub!r}: expected a repository for each")
    if options.preset is not None and options.config:
        raise UserError("--preset and --config are both given: expected one of them")
    base = preset(options.preset) if options.preset is not None else TrainConfig()
    with TemporaryDirectory() as temporary:
        path = options.config
        if options.resume and path is None and options.preset is None:
            runs = [options.output_dir, *seed_folders(options.output_dir)]
            path = next((run / "config.toml" for run in runs if (run / "config.toml").exists()), None)
            if path is None and options.checkpoint_repo:
                from msgrpo_hub.hub.checkpoints import CONFIG, fetch_state

                found = fetch_state(options.checkpoint_repo, Path(temporary), (CONFIG,))
                path = Path(temporary) / CONFIG if found else None
        base = load_config(path, typed=flags) if path else base
    return from_values(asdict(base) | flags)
