"""`msgrpo train` trains a LoRA adapter with MS-GRPO; `msgrpo curves` draws several runs together."""

from __future__ import annotations

import argparse
import gc
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from msgrpo_hub.cli.flags import add_fields, given_fields, read_as, read_path
from msgrpo_hub.cli.hub import add_visibility, show_pushed
from msgrpo_hub.cli.output import add_json, print_json, print_next, print_text
from msgrpo_hub.cli.play import quiet_loading
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.fields import Range, Seed

if TYPE_CHECKING:
    from msgrpo_hub.training.config import TrainConfig
    from msgrpo_hub.training.seeds import Variant


def add_train(parser: argparse.ArgumentParser) -> None:
    from msgrpo_hub.training.config import CHOICES, TrainConfig
    from msgrpo_hub.training.presets import PRESETS, remark

    parser.description = (
        "Train a LoRA adapter with MS-GRPO. The configuration starts from a preset or a file, if given, and every flag below "
        "changes one field of it. Every finished update is saved; an interrupted run continues with --resume, byte for byte."
    )
    parser.add_argument("--preset", help=f"one of {', '.join(PRESETS)}; paper-* need a GPU")
    parser.add_argument("--config", type=read_path, metavar="FILE", help="a TOML file, such as the config.toml of another run")
    parser.add_argument("--output-dir", type=read_path, required=True, metavar="DIR", help="the run folder")
    parser.add_argument(
        "--seeds",
        type=read_seeds,
        metavar="LIST",
        help="train several seeds in turn, as in 0-4 or 0,2,5, each in DIR/seed-N, and sum them up",
    )
    parser.add_argument(
        "--acting",
        default="engine",
        metavar="engine|vllm:URL[,URL…]",
        help="who plays the episodes of updates: this process, or vLLM servers that see the run folder. Default: engine",
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in the output folder, or start it")
    parser.add_argument(
        "--accept-rounding",
        action="store_true",
        help="resume even with other threads, batches, processes, device or versions than before; the summary says so",
    )
    add_json(parser, "print the summary as JSON")
    parser.add_argument("--push-to-hub", metavar="REPO", help="push the adapter to USER/NAME after training")
    parser.add_argument(
        "--base", metavar="REPO", help="for --push-to-hub: where the base model is on the Hub, if it was trained from a folder"
    )
    add_visibility(parser)
    add_checkpoints(parser)
    remarks = {field.name: remark(field.name, field.default) for field in fields(TrainConfig)}
    add_fields(parser, TrainConfig, "configuration", CHOICES, remarks)
    parser.set_defaults(run=_train)


def add_checkpoints(parser: argparse.ArgumentParser) -> None:
    """`--checkpoint-repo` and `--checkpoint-every`."""
    parser.add_argument(
        "--checkpoint-repo",
        metavar="REPO",
        help="keep the run in USER/NAME on the Hub too, a private repository; --resume in a new folder continues that run",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=read_as(Annotated[float, Range(0, 1_000_000)]),
        default=None,
        metavar="MINUTES",
        help="time between two pushes to it; 0 pushes after every update. Default: 10",
    )


_MOST_SEEDS = 1000


def read_seeds(text: str) -> tuple[int, ...]:
    """Reads a list of training seeds.

    >>> read_seeds("0-2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin, end = (read_as(Seed)(end) for end in (first, last if dash else first))
        if end < begin or end - begin >= _MOST_SEEDS:
            raise argparse.ArgumentTypeError(f"{shown(part)}: expected the smaller seed first, and at most {_MOST_SEEDS} seeds")
        seeds += range(begin, end + 1)
    if len({*seeds}) < len(seeds):
        raise argparse.ArgumentTypeError(f"{shown(text)} has a seed twice: expected each once, as in 0-4 or 0,2,5")
    return tuple(seeds)


def _train(options: argparse.Namespace) -> None:
    # 1) checks, before hours of training
    folder, has_visibility = options.output_dir, hasattr(options, "private")
    if not options.push_to_hub and (options.base or has_visibility) and not options.seeds:
        raise UserError("--base, --private and --public are for a push: expected --push-to-hub USER/NAME as well")
    config = train_config(options)
    runs = _seed_runs(options, config) if options.seeds else {folder: config}
    check_repos(options)
    quiet_loading(config.model)
    if options.push_to_hub:
        from msgrpo_hub.hub.adapters import check_push

        check_push(config, options.push_to_hub, options.base)

    # 2) one run per seed, one after another
    from msgrpo_hub.training.run import train

    how = {"acting": options.acting, "accept_rounding": options.accept_rounding, "callbacks": _checkpoints(options)}
    summaries = {}
    for path, own in runs.items():
        try:
            summary = summaries[path] = train(own, path, resume=options.resume or bool(options.seeds), **how)
        except UserError as error:
            if not options.seeds:
                raise
            raise UserError(f"seed {own.seed}: {error}; {_state_of(runs)}") from error
        except KeyboardInterrupt as end:
            if options.seeds:
                end.add_note(_state_of(runs))
            raise
        gc.collect()  # the next run needs the memory of this one's model
    if not summary:  # a process other than the first
        return

    # 3) results and next commands
    if options.seeds:
        _show_seeds(options, [path for path, of_seed in summaries.items() if "learned_nothing" not in of_seed])
        return
    if options.json:
        print_json(summary)
    else:
        show_summary(summary, folder)
    print_next(*next_commands(summary, config, folder))
    if options.push_to_hub:
        from msgrpo_hub.hub import push_adapter

        private = getattr(options, "private", None)
        pushed = push_adapter(folder, options.push_to_hub, private=private, base=options.base)
        show_pushed(pushed, quiet=options.json, next_command=f"msgrpo eval {options.push_to_hub} --suite quick")


def check_repos(options: argparse.Namespace) -> None:
    """Raises `UserError` if the adapter and the state of its run would share a repository."""
    if options.push_to_hub and options.push_to_hub == options.checkpoint_repo:
        raise UserError(f"--push-to-hub and --checkpoint-repo are both {options.push_to_hub!r}: expected a repository for each")


def _checkpoints(options: argparse.Namespace) -> list[Any]:
    """The callback that keeps the run on the Hub, if requested."""
    if not options.checkpoint_repo:
        if options.checkpoint_every is not None:
            raise UserError("--checkpoint-every without --checkpoint-repo: expected --checkpoint-repo USER/NAME as well")
        return []
    from msgrpo_hub.hub.checkpoints import HubCheckpoints

    return [HubCheckpoints(options.checkpoint_repo, minutes_between(options), fetch=options.resume)]


def minutes_between(options: argparse.Namespace) -> float:
    """Minutes between two pushes of checkpoints."""
    return 10.0 if options.checkpoint_every is None else float(options.checkpoint_every)


def _seed_runs(options: argparse.Namespace, config: TrainConfig) -> dict[Path, TrainConfig]:
    """Folder → configuration of each seed's run. Raises `UserError` if one of them cannot start."""
    from dataclasses import replace

    from msgrpo_hub.training.config import fixed_fields
    from msgrpo_hub.training.run_folder import RunFolder, seed_folders

    folder = options.output_dir
    if hasattr(options, "seed"):
        raise UserError("--seed and --seeds are both given: expected one of them")
    if options.checkpoint_repo:
        raise UserError("--checkpoint-repo is for one seed: expected one `msgrpo train` per seed, each with its own repository")
    if options.push_to_hub or options.base or hasattr(options, "private"):
        raise UserError(f"--push-to-hub is for one seed: expected `msgrpo push adapter {folder}/seed-N USER/NAME` after training")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("several seeds under a launcher such as torchrun: expected one process, or one seed")
    if RunFolder(folder).config.exists():
        raise UserError(f"{str(folder)!r} holds a run of one seed: name another --output-dir for several")
    runs = {folder / f"seed-{seed}": replace(config, seed=seed) for seed in options.seeds}
    for path, own in runs.items():
        if RunFolder(path).config.exists():
            RunFolder(path).check(fixed_fields(own), options.resume)
    for path in seed_folders(folder):  # also of other seeds: all runs of the folder are one variant
        seed = int(path.name.removeprefix("seed-"))
        RunFolder(path).check(fixed_fields(replace(config, seed=seed)), resume=True)
    return runs


def _state_of(runs: Mapping[Path, TrainConfig]) -> str:
    """How many seeds are finished, how far the others are, and what to do."""
    from msgrpo_hub.training.run_folder import RunFolder

    unfinished = [(config, RunFolder(path)) for path, config in runs.items() if not RunFolder(path).summary.exists()]
    begun = [(config, updates) for config, run in unfinished if (updates := run.updates())]
    rest = [f"seed {config.seed} has {updates} of {config.updates} updates" for config, updates in begun]
    return "; ".join([f"{len(runs) - len(unfinished)} of {len(runs)} seeds are finished", *rest, "continue with --resume"])


def _show_seeds(options: argparse.Namespace, learned: Sequence[Path]) -> None:
    """Prints the table over seeds and the next commands; `learned` are the folders of this call whose run learned."""
    from msgrpo_hub.training.seeds import data_of, find_variants, seed_table

    folder, variants = options.output_dir, find_variants([options.output_dir])
    if options.json:
        print_json([data_of(variant) for variant in variants])
    else:
        print(f"{seed_table(variants)}\n\nThe adapters are in {folder}/seed-N/adapter")
    pushes = [f"msgrpo push adapter {shlex.quote(str(path))} USER/NAME" for path in learned[:1]]
    print_next(f"msgrpo curves {shlex.quote(str(folder))}", *pushes)


def show_summary(summary: dict[str, Any], folder: Path) -> None:
    """Prints the final table of a run, and where its files are."""
    from msgrpo_hub.training.summary import table

    if "players" in summary:
        rest = {"episodes": summary["episodes"]}
        print("\n\n".join(table(of_game | rest) for of_game in (summary, *summary.get("other_games", []))))
    print(f"{summary['seconds_acting']:.0f} s sampling, {summary['seconds_training']:.0f} s training", end="")
    print(f", {summary['seconds']:.0f} s in all with the evaluation\n")
    if why := summary.get("learned_nothing"):
        print(f"It learned nothing: {why}")
    if why := summary.get("rewards_taught_nothing"):
        print(f"It learned from its teacher alone: {why}")
    if summary["config"].get("keep") == "best" and summary["best_update"]:
        print(f"Kept: update {summary['adapter_update']}, the best on the validation episodes")
    replay = f", a replay in {folder}/replay.svg" if "players" in summary else ""
    print(f"The adapter is in {folder}/adapter, the learning curves in {folder}/curves.png{replay}")


def next_commands(summary: dict[str, Any], config: Any, folder: Path) -> list[str]:
    """The commands to try after a run: first the episode of its replay, with the same sampling."""
    from msgrpo_hub.choices import is_import
    from msgrpo_hub.training.config import CHOICES

    typed = {name: f" --{name.replace('_', '-')} {value}" for name in CHOICES if is_import(value := str(getattr(config, name)))}
    own_format = typed.get("prompt_format", "")
    sampled = f"--seed {summary.get('replayed_test_episode', 0)} --temperature {config.eval_temperature:g}{own_format}"
    adapter, settings, own, further = (
        shlex.quote(str(path)) for path in (folder / "adapter", folder / "config.toml", folder, f"{folder}-{config.seed + 1}")
    )
    return [
        f"msgrpo play {summary['game']} --player {adapter} {sampled}",
        f"msgrpo train --config {settings}{''.join(typed.values())} --seed {config.seed + 1} --output-dir {further}",
        *([f"msgrpo push rollouts {own} USER/NAME"] if config.save_rollouts else []),
    ]


def train_config(options: argparse.Namespace) -> Any:
    """The configuration of a preset or a file, or with --resume of the run itself, changed by the flags."""
    from dataclasses import asdict

    from msgrpo_hub.training.config import TrainConfig, from_values, load_config, preset
    from msgrpo_hub.training.run_folder import seed_folders

    flags = given_fields(options, TrainConfig)
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


CURVES_FILE = "seed-curves.png"
CURVES_KINDS = ("png", "svg")


def add_curves(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draw runs together: each training seed's line, and the mean of each variant with a 95 % interval over its seeds. A "
        "variant is a folder of `msgrpo train --seeds`, or runs whose settings differ in nothing but the seed."
    )
    parser.add_argument("folders", type=read_path, nargs="+", metavar="FOLDER", help="a run, or a folder of runs at any depth")
    parser.add_argument("--x", choices=("updates", "episodes", "seconds"), default="updates", help="the x axis. Default: updates")
    parser.add_argument(
        "--output",
        type=read_path,
        metavar="FILE",
        help=f"the figure, .png or .svg. Default: {CURVES_FILE} in the common folder",
    )
    add_json(parser, "print the figures over the seeds as JSON")
    parser.set_defaults(run=_curves)


def _curves(options: argparse.Namespace) -> None:
    from msgrpo_hub.training.seeds import data_of, find_variants, seed_table

    variants = find_variants(options.folders)
    output = options.output or Path(os.path.commonpath([folder.resolve() for folder in options.folders])) / CURVES_FILE
    kind = output.suffix.removeprefix(".").lower()
    if kind not in CURVES_KINDS or output.is_dir() or not output.parent.is_dir():
        raise UserError(f"--output {str(output)!r}: expected the name of a file in a folder that exists, ending in .png or .svg")
    _draw(variants, options.x, output, kind)
    if options.json:
        print_json({"figure": str(output), "variants": [data_of(variant) for variant in variants]})
    else:
        print_text(f"{seed_table(variants)}\n\n{output}".strip())
    print_next(f"open {shlex.quote(str(output))}")


def _draw(variants: Sequence[Variant], x: str, output: Path, kind: str) -> None:
    from msgrpo_hub.rendering.seed_curves import has_curves, plot_seed_curves
    from msgrpo_hub.storage.files import disk_errors, write_atomically
    from msgrpo_hub.training.seeds import X_AXES, seed_lines

    lines = [seed_lines(variant, x) for variant in variants]
    if not has_curves(lines):
        raise UserError(
            "no update is finished in any of these runs, beyond those that are taught: nothing to draw; wait for the first"
        )
    draw = partial(plot_seed_curves, lines, x_label=X_AXES[x][0], kind=kind)
    with disk_errors(output.parent, lambda: "the runs are untouched"):
        write_atomically(output, draw)
