"""`msgrpo push`: adapters, rollouts, results, the base, the demo and games go to the Hub, or with `--dry-run` into a folder."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from msgrpo_hub.cli.flags import add_json, print_next, read_path, show
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
    visibility: str = "a new one gets the visibility of your settings"


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
        "the episodes of a run as a dataset, private by default",
        "msgrpo push adapter {folder} USER/NAME --rollouts {repo}",
        "of `train --save-rollouts`, or of `eval`",
        ("message",),
        "a new one is private, unless --public is given",
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
    "adapter": ("that the Space shows, USER/NAME[@revision]; without it, the bundled one", "REPO"),
    "hardware": ("of the Space, such as zero-a10g", None),
    "game": ("id of the game, such as Snake-Standard-v1; required", "GAME"),
}
"""Flag that applies to some kinds only → its help and its metavar."""


def add_push(parser: argparse.ArgumentParser) -> None:
    """Push an adapter, rollouts, results, the built-in base, the demo or a game to the Hub."""
    _add_push_flags(parser)
    parser.epilog = "`msgrpo push KIND --help` shows the flags of a kind."
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND", parser_class=type(parser))
    for name, kind in KINDS.items():  # the flags may stand before or after the kind
        own = kinds.add_parser(name, help=kind.help, description=kind.help)
        _add_push_flags(own, kind.takes)
        if kind.folder:
            own.add_argument("folder", type=read_path, metavar="DIR", help=kind.folder)
        own.add_argument("repo", metavar="REPO", help="USER/NAME on the Hub")


def add_visibility(parser: argparse.ArgumentParser) -> None:
    """`--private` and `--public`; without either, the user's settings on the Hub decide for a new repository."""
    either = parser.add_mutually_exclusive_group()
    for flag, private in (("--private", True), ("--public", False)):
        text = f"make a new repository {flag[2:]}; an existing repository must have this visibility"
        either.add_argument(flag, dest="private", action="store_const", const=private, default=argparse.SUPPRESS, help=text)


def _add_push_flags(flags: argparse.ArgumentParser, takes: Collection[str] = ()) -> None:
    """The flags of a push. Flags that the kind refuses have no help."""
    flags.argument_default = argparse.SUPPRESS  # a flag before the kind is not undone by the kind's own default
    add_visibility(flags)
    flags.add_argument("--revision", metavar="BRANCH", help="a branch instead of main; made where it is missing")
    flags.add_argument("--create-pr", action="store_true", help="open a pull request instead of committing")
    for name, (text, metavar) in SOME.items():
        flags.add_argument(f"--{name}", metavar=metavar, help=text if name in takes else argparse.SUPPRESS)
    flags.add_argument("--dry-run", type=read_path, metavar="FOLDER", help="write what would be pushed into a new folder instead")
    add_json(flags)


def run_push(options: argparse.Namespace) -> None:
    # 1) check the flags
    kind, given = KINDS[options.kind], vars(options)
    for name in SOME:
        if name in given and name not in kind.takes:
            owners = " and ".join(f"`msgrpo push {owner}`" for owner, other in KINDS.items() if name in other.takes)
            raise UserError(f"--{name} is for {owners}: expected none with `msgrpo push {options.kind}`")
    if options.kind == "env" and "game" not in given:
        raise UserError("`msgrpo push env` without --game: expected one, as its --help says")
    if options.kind == "adapter":
        quiet_loading(options.repo)
    from msgrpo_hub.hub.uploading import Where, check_repo_id

    # 2) push, or write the files
    module = import_module(f"msgrpo_hub.{kind.module}")
    flags = {"commit_message" if name == "message" else name: value for name, value in given.items() if name != "folder"}
    source = [options.folder, options.repo] if kind.folder else [options.repo]

    def call(verb: str, *more: Path) -> Any:
        function = getattr(module, f"{verb}_{options.kind}")
        taken = {*signature(function).parameters}
        taken |= {*Where.__annotations__} if "where" in taken else set()
        return function(*source, *more, **{name: value for name, value in flags.items() if name in taken})

    if "dry_run" in given:
        _dry_run(options, lambda folder: call("stage", folder))
        return
    for name in filter(None, (options.repo, given.get("rollouts"))):
        check_repo_id(name)
    visible = kind.visibility if "private" not in given else "private" if given["private"] else "public"
    print(f"pushing to {options.repo} ({visible})", file=sys.stderr)
    pushed = call("push")
    next_command = kind.next_command.format(folder=shlex.quote(str(given.get("folder"))), repo=options.repo)
    show_pushed(pushed, as_json="json" in given, next_command=next_command)


def show_pushed(pushed: Any, *, next_command: str, as_json: bool = False, quiet: bool = False) -> None:
    """Prints the URL or all of `pushed` as JSON, unless the command has printed other data, and a summary on standard error."""
    if not quiet:
        show(lambda: asdict(pushed), lambda: str(pushed.pull_request or pushed.url), as_json=as_json)
    sent = f"{len(pushed.changed)} files in one commit" if pushed.changed else "nothing, the repository holds all of it already"
    visible = "private" if pushed.private else "public"
    print(f"pushed {sent}; {pushed.repo_id} is {visible}, at {pushed.commit[:12]}", file=sys.stderr)
    print_next(next_command)


def _dry_run(options: argparse.Namespace, stage: Callable[[Path], object]) -> None:
    """Writes and lists the files of a push, after the same checks."""
    from msgrpo_hub.hub.uploading import check_files, files_in
    from msgrpo_hub.storage.files import disk_errors

    folder, staged = options.dry_run, options.dry_run / ".new"  # a kill may have left the latter
    new = not folder.exists()
    if not new and (not folder.is_dir() or {*folder.iterdir()} - {staged}):
        raise UserError(f"{str(folder)!r} exists and is not empty: expected a new or an empty folder")
    with disk_errors(folder, lambda: "nothing was left there"):
        try:
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir(parents=True)
            stage(staged)
            check_files(files := files_in(staged))
            sizes = {name: path.stat().st_size for name, path in files.items()}
            for path in staged.iterdir():
                path.rename(folder / path.name)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
            if new:
                with suppress(OSError):  # it is not empty after a success
                    folder.rmdir()
    lines = [f"{size:>10}  {name}" for name, size in sizes.items()]
    show(lambda: {"folder": str(folder), "files": list(sizes)}, lambda: "\n".join(lines), as_json=hasattr(options, "json"))
    print_next(f"look at {folder}/README.md, then push without --dry-run")
