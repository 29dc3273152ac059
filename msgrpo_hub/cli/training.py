"""`msgrpo train`: a LoRA adapter with MS-GRPO."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from msgrpo_hub.cli.flags import add_fields
from msgrpo_hub.cli.hub import add_visibility, show_pushed
from msgrpo_hub.cli.play import quiet_loading
from msgrpo_hub.errors import UserError


def train_command(commands: Any) -> None:
    from msgrpo_hub.training.config import PRESETS, TrainConfig

    parser = commands.add_parser("train", help="train a LoRA adapter with MS-GRPO")
    parser.add_argument("--preset", help=f"one of {', '.join(PRESETS)}")
    parser.add_argument("--config", type=Path, help="a TOML file, such as the config.toml of another run")
    parser.add_argument("--output-dir", type=Path, required=True, help="the folder of the run")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the output folder, or start it")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--push-to-hub", metavar="REPO", help="push the adapter to USER/NAME when it is trained")
    parser.add_argument("--base", metavar="REPO", help="for --push-to-hub: who holds the base, where it is not on the Hub itself")
    add_visibility(parser)
    add_fields(parser, TrainConfig)
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> None:
    config = train_config(options)
    quiet_loading(config.model)
    if options.push_to_hub:
        from msgrpo_hub.hub.adapters import check_push

        check_push(config, options.push_to_hub, options.base)  # now, not after hours of training
    from msgrpo_hub.training.run import train

    summary = train(config, options.output_dir, resume=options.resume)
    if not summary:
        return
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        _show(summary, config, options.output_dir)
    if options.push_to_hub:
        _push(options)


def _push(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub import push_adapter

    private = getattr(options, "private", None)
    pushed = push_adapter(options.output_dir, options.push_to_hub, private=private, base=options.base)
    show_pushed(pushed, quiet=options.json, next_command=f"msgrpo eval {options.push_to_hub} --suite quick")


def _show(summary: dict[str, Any], config: Any, folder: Path) -> None:
    from msgrpo_hub.training.summary import table

    if "players" in summary:
        print(table(summary))
    print(f"{summary['seconds_acting']:.0f} s acting, {summary['seconds_training']:.0f} s training", end="")
    print(f", {summary['seconds']:.0f} s in all with the evaluation\n")
    print(f"The adapter is in {folder}/adapter, curves in {folder}/curves.png, a replay in {folder}/replay.svg")
    print(
        f"Next: msgrpo play {config.game} --player {folder}/adapter --seed {summary.get('replayed_test_episode', 0)}\n"
        f"      msgrpo train --config {folder}/config.toml --seed {config.seed + 1} --output-dir {folder}-{config.seed + 1}"
        + (f"\n      msgrpo push rollouts {folder} USER/NAME" if config.save_rollouts else ""),
        file=sys.stderr,
    )


def train_config(options: argparse.Namespace) -> Any:
    """Preset or file (or, with --resume, the run's own configuration), then the flags over it."""
    from dataclasses import asdict, fields

    from msgrpo_hub.training.config import TrainConfig, from_values, load_config, preset

    own = options.output_dir / "config.toml"
    if options.preset and options.config:
        raise UserError("--preset and --config are both given: expected one of them")
    if options.preset:
        base = preset(options.preset)
    elif options.config:
        base = load_config(options.config)
    else:
        base = load_config(own) if options.resume and own.exists() else TrainConfig()
    flags = {field.name: getattr(options, field.name) for field in fields(TrainConfig) if hasattr(options, field.name)}
    return from_values(asdict(base) | flags, "the flags")
