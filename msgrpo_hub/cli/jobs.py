"""`msgrpo jobs`: a training or an evaluation on the Hub's machines."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgrpo_hub.cli.flags import as_flags, given_fields, print_next, read_as, show
from msgrpo_hub.downloads.names import POCKET, built_in_adapters, exists
from msgrpo_hub.errors import UserError, plain
from msgrpo_hub.fields import Count, is_import, names_code
from msgrpo_hub.games.registry import TYPED
from msgrpo_hub.players.settings import PlayerSettings


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Train or evaluate on the Hub's machines."""
    from msgrpo_hub.cli.evaluation import add_eval
    from msgrpo_hub.cli.training import add_train

    parser.epilog = "`msgrpo jobs train --help` and `msgrpo jobs eval --help` show all flags; --json prints the job as JSON."
    commands = parser.add_subparsers(dest="kind", required=True, metavar="COMMAND", parser_class=type(parser))
    for name, add, what in (("train", add_train, "training"), ("eval", add_eval, "evaluation")):
        command = commands.add_parser(name, help=f"one {what}, with the flags of `msgrpo {name}`")
        add(command)
        dry_run = "print the machine, the cost and the command, and send nothing"
        for action in command._actions:
            if action.dest == "output_dir":
                action.required, action.default = False, None
            if action.dest in ("output_dir", "seeds", "acting", "resume"):  # a job refuses or sets them
                action.help = argparse.SUPPRESS
            if action.dest == "dry_run":  # of `msgrpo train`
                action.help = dry_run
        command.description = (
            f"Run one {what} on a machine of the Hub and follow its log. The machine and the highest cost are printed first. "
            "The state goes to a private repository. Another attempt, or the same command again, continues from there."
        )
        flag = command.add_argument_group("job").add_argument
        flag("--flavor", required=True, metavar="NAME", help="the machine, as `hf jobs hardware` lists them")
        flag("--timeout", default="1h", metavar="TIME", help="most time of a job, such as 90m or 6h. Default: 1h")
        text = "how often the Hub starts it at most, after a failure or a preemption. Default: 1"
        flag("--attempts", type=read_as(Count), default=1, metavar="N", help=text)
        text = "a variable of this environment that the job gets as a secret, such as WANDB_API_KEY, besides the Hub's token"
        flag("--secret", action="append", default=[], metavar="NAME", help=text)
        text = "run this wheel, which is uploaded, instead of the release in the index"
        flag("--wheel", type=Path, metavar="FILE", help=text)
        if name == "eval":
            flag("--dry-run", action="store_true", help=dry_run)


def run_jobs(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub import jobs
    from msgrpo_hub.hub.uploading import check_repo_id, check_token

    # 1) checks on this machine
    if options.output_dir is not None:
        raise UserError("--output-dir is a folder of this machine, not of a job: expected --push-to-hub USER/NAME alone")
    if not options.push_to_hub:
        raise UserError("a job without --push-to-hub would leave nothing: expected --push-to-hub USER/NAME")
    timeout = jobs.read_timeout(options.timeout)
    if missing := [name for name in options.secret if not os.environ.get(name)]:
        raise UserError(f"--secret {missing[0]}: expected a variable of this environment that is set")
    secrets = {"HF_TOKEN": check_token()} | {name: os.environ[name] for name in options.secret}
    if (wheel := options.wheel) and not (wheel.is_file() and re.fullmatch(r"msgrpo_hub-[\w.+!]+-py3-none-any\.whl", wheel.name)):
        raise UserError(f"--wheel {str(wheel)!r}: expected a wheel of msgrpo-hub, such as `make wheel` leaves in dist/")
    options.checkpoint_repo = check_repo_id(options.checkpoint_repo or f"{check_repo_id(options.push_to_hub)}-run")
    command = {"train": _training, "eval": _evaluation}[options.kind](options)
    hardware = jobs.find_hardware(options.flavor)
    job = jobs.Job(**command, state=options.checkpoint_repo, hardware=hardware, timeout=timeout, attempts=options.attempts)

    # 2) the machine and the cost, before anything is sent
    times = f"{job.attempts} attempts of " * (job.attempts > 1) + str(timedelta(seconds=timeout))
    cost = job.cost(timeout * job.attempts)
    most = f"; at most ${math.ceil(round(100 * cost, 6)) / 100:.2f} for {times}" if cost is not None else ""
    print(f"{job.machine}{most}, as the Hub says now", file=sys.stderr)
    print(f"the state of the run goes to {job.state} (private)", file=sys.stderr)
    data: dict[str, Any] = {"command": ["msgrpo", *job.arguments], "state": job.state, "flavor": hardware.name}
    data |= {"timeout": timeout, "attempts": job.attempts}
    data["price"] = {"usd": hardware.unit_cost_usd, "unit": hardware.unit_label, "most_usd": cost}
    if options.dry_run:
        show(data, " ".join(["msgrpo", *job.arguments]), as_json=options.json)
        return

    # 3) the job, its log and its result
    sent = jobs.submit(job, secrets, options.wheel)
    if not options.json:
        print(sent.url, flush=True)
    ended = jobs.follow(sent, lambda line: print(plain(line), file=sys.stderr))
    seconds = (ended.durations.running_secs or 0) if ended.durations else 0
    cost = job.cost(seconds)
    paid = f", about ${cost:.2f}" if cost is not None else ""
    print(f"{ended.status.stage.lower()} after {timedelta(seconds=round(seconds))}{paid}", file=sys.stderr)
    if options.json:
        show({"id": ended.id, "url": ended.url, "stage": ended.status.stage} | data, "", as_json=True)
    if ended.status.stage != "COMPLETED":
        why = f" ({ended.status.message})" if ended.status.message else ""
        again = "the same command again goes on with the run"
        raise UserError(f"the job ended as {ended.status.stage}{why}: see {ended.url}; {again}")
    repo = options.push_to_hub
    print_next(f"msgrpo eval {repo} --suite quick" if options.kind == "train" else f"msgrpo leaderboard {repo}")


def _training(options: argparse.Namespace) -> dict[str, Any]:
    """The command of a training and its packages, checked on this machine as far as possible."""
    from msgrpo_hub.cli.training import MINUTES, train_config
    from msgrpo_hub.hub.adapters import check_push
    from msgrpo_hub.hub.checkpoints import check_same_run
    from msgrpo_hub.training.config import CHOICES, RESUMABLE_FIELDS, TrainConfig

    if options.seeds:
        raise UserError("--seeds: a job trains one seed: expected one job per seed, with --seed and a repository of its own")
    if options.acting != "engine":
        raise UserError(f"--acting {options.acting}: servers must see the run folder, and a job has its own: expected `engine`")
    with TemporaryDirectory() as folder:
        options.output_dir = Path(folder)
        config = train_config(options)  # with --resume, the configuration of the run in the repository
    own = asdict(config) | {"game": next(iter(TYPED.values()), "")}
    _check_portable(own, ("model", "init_adapter", "sft", "chat_template"), (*CHOICES, "game"))
    check_push(config, options.push_to_hub, options.base)
    check_same_run(config, options.checkpoint_repo)
    defaults = asdict(TrainConfig())
    values = {name: value for name, value in asdict(config).items() if value != defaults[name]}
    typed = given_fields(options, TrainConfig)
    values |= {name: typed[name] for name in RESUMABLE_FIELDS if name in typed}  # a resumed run would keep its own
    values["checkpoint_every"] = MINUTES if options.checkpoint_every is None else options.checkpoint_every
    values |= {"base": options.base} if options.base else {}
    return {
        "arguments": _arguments(options, ["train", "--output-dir=run", "--resume", "--accept-rounding"], values),
        "packages": ("quantized",) * config.load_in_4bit + ("trl",) * bool(config.sft),
        "others": () if config.report_to in ("none", "all") else (config.report_to,),
        "several_processes": True,
    }


def _evaluation(options: argparse.Namespace) -> dict[str, Any]:
    """The command of an evaluation, checked on this machine as far as possible."""
    from msgrpo_hub.evaluation.suites import load_suite

    if options.estimate or options.price_in is not None or options.price_out is not None:
        raise UserError("--estimate plays on this machine: expected `msgrpo eval --estimate`, or a job without it")
    if options.suite.endswith(".toml") or exists(options.suite):
        raise UserError(f"--suite {options.suite!r} is a file of this machine: expected the name of a built-in suite")
    load_suite(options.suite)
    built_in = (POCKET, *built_in_adapters())  # the same on every machine
    for player in options.players:
        here = any(exists(part) and part not in built_in for part in player.split("+"))
        if here or names_code(player) or player.startswith("dqn:"):
            raise UserError(f"{player!r} is on this machine only: expected a player that the job can load; push it first")
    values = given_fields(options, PlayerSettings)
    _check_portable(values, ("chat_template",), ("prompt_format",))
    values |= {"suite": options.suite, "batch_size": options.batch_size}
    values |= {"repeats": options.repeats} if options.repeats else {}
    return {
        "arguments": _arguments(options, ["eval", *options.players, "--output-dir=run"], values),
        "packages": ("quantized",) * bool(values.get("load_in_4bit")),
    }


def _check_portable(values: dict[str, Any], files: tuple[str, ...], choices: tuple[str, ...]) -> None:
    """Raises `UserError` if a setting names a file or code of this machine, which a job does not have."""
    for name in (*files, *choices):
        value = str(values.get(name, ""))
        here = name in files and exists(value) and value not in (POCKET, *built_in_adapters())
        if here or (name in choices and is_import(value)):
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} {value!r} is on this machine only: expected a value that the job can load, such as a Hub id")


def _arguments(options: argparse.Namespace, command: list[str], values: dict[str, Any]) -> tuple[str, ...]:
    """A command of `msgrpo` with its flags. Values are joined to them, so that the client takes none for a file to upload."""
    values |= {"push_to_hub": options.push_to_hub, "checkpoint_repo": options.checkpoint_repo}
    flags = ["=".join(as_flags({name: value})) for name, value in values.items()]
    if options.private is not None:
        flags.append("--private" if options.private else "--public")
    return (*command, *flags)
