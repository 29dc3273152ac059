"""`msgrpo push`: adapters, rollouts, results, the base, the demo and games go to the Hub, or with `--dry-run` into a folder."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from msgrpo_hub.cli.flags import add_json, print_next, show
from msgrpo_hub.cli.play import quiet_loading
from msgrpo_hub.errors import UserError


class Kind(NamedTuple):
    """A kind of repository."""

    module: str
    """Module with `push_KIND` and `stage_KIND`, whose parameters are the flags that they take."""
    help: str
    next_command: str
    """The command to name after a push, with {folder} and {repo}."""
    folder: str = ""
    """Help for the folder it is made from; empty if it is not made from one."""
    takes: tuple[str, ...] = ()
    """The flags in `SOME` that apply to it."""


KINDS = {
    "adapter": Kind(
        "hub.adapters",
        "the adapter of a finished run, with card and results",
        "msgrpo eval {repo} --suite quick",
        "the folder of the run",
        ("message", "base", "rollouts"),
    ),
    "rollouts": Kind(
        "hub.rollouts",
        "the episodes of a run as a dataset, private unless --public is given",
        "msgrpo verify {folder}",
        "of `train --save-rollouts`, or of `eval`",
        ("message", "adapter"),
    ),
    "results": Kind(
        "hub.results",
        "runs of `msgrpo eval`, added to a shared dataset of results",
        "msgrpo leaderboard {repo}",
        "filled by `msgrpo eval`",
        ("message",),
    ),
    "base": Kind(
        "hub.bases",
        "the built-in base, so that adapters of it load for anybody",
        "msgrpo push adapter RUN USER/NAME --base {repo}",
        takes=("adapter",),
    ),
    "space": Kind(
        "hub.spaces",
        "the demo as a Gradio Space",
        "open the Space; it is built in some minutes",
        takes=("adapter", "hardware"),
    ),
    "env": Kind(
        "interop.openenv_package",
        "a game as an OpenEnv environment, for other trainers",
        "openenv validate --url the address in the Space's README, when it is built",
        takes=("game",),
    ),
}

SOME = {
    "message": ("title of the commit", None),
    "base": ("repository of the adapter's base, if the base is built in or a folder", "REPO"),
    "rollouts": ("public dataset with the training episodes of the adapter, for its card", "REPO"),
    "adapter": ("USER/NAME that the card links to, or USER/NAME[@revision] that the Space shows instead of its own", "REPO"),
    "hardware": ("of the Space, such as zero-a10g", None),
    "game": ("id of the game, such as Snake-Standard-v1; required", "GAME"),
}
"""Flag that applies to some kinds only → its help and its metavar."""


def add_push(parser: argparse.ArgumentParser) -> None:
    """Push an adapter, rollouts, results, the built-in base, the demo or a game to the Hub."""
    parser.epilog = "`msgrpo push KIND --help` shows the flags of a kind."
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND", parser_class=type(parser))
    for name, kind in KINDS.items():
        own = kinds.add_parser(name, help=kind.help, description=kind.help)
        if kind.folder:
            own.add_argument("folder", type=Path, metavar="DIR", help=kind.folder)
        own.add_argument("repo", metavar="REPO", help="USER/NAME on the Hub")
        for flag in kind.takes:
            text, metavar = SOME[flag]
            own.add_argument(f"--{flag}", metavar=metavar, help=text, required=flag == "game")
        add_visibility(own)
        own.add_argument("--revision", metavar="BRANCH", help="a branch instead of main; made where it is missing")
        text = "a collection that gets it, by title or slug; with an adapter, also its base and its rollouts"
        own.add_argument("--collection", metavar="TITLE", help=text)
        own.add_argument("--create-pr", action="store_true", help="open a pull request instead of committing")
        own.add_argument("--dry-run", type=Path, metavar="FOLDER", help="write what would be pushed into a new folder instead")
        add_json(own)


def add_visibility(parser: argparse.ArgumentParser) -> None:
    """`--private` and `--public`; without either, the user's settings on the Hub decide for a new repository."""
    either = parser.add_mutually_exclusive_group()
    for flag, private in (("--private", True), ("--public", False)):
        text = f"make a new repository {flag[2:]}; an existing repository must have this visibility"
        either.add_argument(flag, dest="private", action="store_const", const=private, help=text)


def run_push(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub.uploading import Where, check_repo_id

    kind = KINDS[options.kind]
    flags = {"commit_message" if name == "message" else name: value for name, value in vars(options).items()}
    if options.kind == "adapter":
        quiet_loading(options.repo)
    module = import_module(f"msgrpo_hub.{kind.module}")
    source = [flags.pop("folder"), options.repo] if kind.folder else [options.repo]

    def call(verb: str, *more: Path) -> Any:
        function = getattr(module, f"{verb}_{options.kind}")
        taken = {*signature(function).parameters}
        taken |= {*Where.__annotations__} if "where" in taken else set()
        return function(*source, *more, **{name: value for name, value in flags.items() if name in taken})

    if options.dry_run:
        _dry_run(options.dry_run, lambda folder: call("stage", folder), as_json=options.json)
        return
    usual = "private" if options.kind == "rollouts" else "with the visibility of your settings"
    visible = f"{usual} if new" if options.private is None else "private" if options.private else "public"
    print(f"pushing to {check_repo_id(options.repo)} ({visible})", file=sys.stderr)
    pushed = call("push")
    next_command = kind.next_command.format(folder=shlex.quote(str(source[0])), repo=options.repo)
    if options.kind == "rollouts" and (own := adapter_push(source[0])):
        next_command = f"{own} --rollouts {options.repo}"
    show_pushed(pushed, as_json=options.json, next_command=next_command)


def adapter_push(folder: Path) -> str:
    """The command that pushes the adapter of a finished run; empty if the folder holds none, or none that learned."""
    from msgrpo_hub.downloads.names import is_folder, located
    from msgrpo_hub.training.summary import read_summary

    if not (path := folder / "summary.json").exists() or "learned_nothing" in (summary := read_summary(path)):
        return ""
    base = " --base USER/BASE" if is_folder(located(summary["config"]["model"])) else ""
    return f"msgrpo push adapter {shlex.quote(str(folder))} USER/NAME{base}"


def show_pushed(pushed: Any, *, next_command: str, as_json: bool = False, quiet: bool = False) -> None:
    """Prints the URL or all of `pushed` as JSON, unless the command has printed other data, and a summary on standard error."""
    if not quiet:
        show(asdict(pushed), str(pushed.pull_request or pushed.url), as_json=as_json)
    sent = f"{len(pushed.changed)} files in one commit" if pushed.changed else "nothing, the repository holds all of it already"
    visible = "private" if pushed.private else "public"
    print(f"pushed {sent}; {pushed.repo_id} is {visible}, at {pushed.commit[:12]}", file=sys.stderr)
    print_next(next_command)


def _dry_run(folder: Path, stage: Callable[[Path], object], *, as_json: bool) -> None:
    """Writes and lists the files of a push, after the same checks."""
    from msgrpo_hub.hub.uploading import check_files, files_in
    from msgrpo_hub.storage.files import disk_errors

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{str(folder)!r} exists and is not empty: expected a new or an empty folder")
    with disk_errors(folder, lambda: "nothing was left there"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stage(folder)
            check_files(files := files_in(folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        sizes = {name: path.stat().st_size for name, path in files.items()}
    lines = [f"{size:>10}  {name}" for name, size in sizes.items()]
    show({"folder": str(folder), "files": list(sizes)}, "\n".join(lines), as_json=as_json)
    print_next(f"look at {folder}/README.md, then push without --dry-run")
