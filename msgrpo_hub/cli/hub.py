"""`msgrpo push`: adapters, rollouts, results, the base, the demo and games go to the Hub, or with `--dry-run` into a folder."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from msgrpo_hub.cli.flags import read_path
from msgrpo_hub.cli.output import add_json, print_json, print_next
from msgrpo_hub.cli.play import quiet_loading
from msgrpo_hub.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of repository: `push_KIND` and `stage_KIND` of a module."""

    module: str
    help: str
    next_command: str
    """The command to name after a push, with {folder} and {repo}."""
    folder: str = ""
    """Help for the folder it is made from; empty if it is not made from one."""
    takes: tuple[str, ...] = ()
    """The flags in `_SOME` that apply to it."""
    needs: tuple[str, ...] = ()
    """The required flags in `takes`."""
    staged_by: tuple[str, ...] = ()
    """The flags that a dry run needs too."""
    visibility: str = "a new one gets the visibility of your settings"


KINDS = {
    "adapter": Kind(
        module="hub.adapters",
        help="the adapter of a finished run, with card and results",
        folder="the folder of the run",
        takes=("message", "base", "rollouts"),
        staged_by=("base", "rollouts"),
        next_command="msgrpo eval {repo} --suite quick",
    ),
    "rollouts": Kind(
        module="hub.rollouts",
        help="the episodes of a run as a dataset, private by default",
        folder="of `train --save-rollouts`, or of `eval`",
        takes=("message",),
        next_command="msgrpo push adapter {folder} USER/NAME --rollouts {repo}",
        visibility="a new one is private, unless --public is given",
    ),
    "results": Kind(
        module="hub.results",
        help="runs of `msgrpo eval`, added to a shared dataset of results",
        folder="what `msgrpo eval --output-dir` has filled",
        takes=("message",),
        staged_by=("revision", "create_pr"),
        next_command="msgrpo leaderboard {repo}",
    ),
    "base": Kind(
        module="hub.bases",
        help="the built-in base, so that adapters of it load for anybody",
        next_command="msgrpo push adapter RUN USER/NAME --base {repo}",
    ),
    "space": Kind(
        module="hub.spaces",
        help="the demo as a Gradio Space",
        takes=("adapter", "hardware"),
        staged_by=("adapter",),
        next_command="open the Space; it is built in some minutes",
    ),
    "env": Kind(
        module="interop.openenv_package",
        help="a game as an OpenEnv environment, for other trainers",
        takes=("game",),
        needs=("game",),
        staged_by=("game",),
        next_command="openenv validate --url the address in the Space's README, when it is built",
    ),
}


_SOME = ("message", "base", "rollouts", "adapter", "hardware", "game")
"""Flags that apply to some kinds only."""


def add_push(parser: argparse.ArgumentParser) -> None:
    """One parser a kind, with the same flags as `push` itself, so that they may stand before or after the kind."""
    _add_push_flags(parser)
    parser.epilog = "`msgrpo push KIND --help` shows the flags of a kind."
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND", parser_class=type(parser))
    for name, kind in KINDS.items():
        own = kinds.add_parser(name, help=kind.help, description=kind.help)
        _add_push_flags(own, hidden=set(_SOME) - {*kind.takes})
        if kind.folder:
            own.add_argument("folder", type=read_path, metavar="DIR", help=kind.folder)
        own.add_argument("repo", metavar="REPO", help="USER/NAME on the Hub")
        own.set_defaults(run=_push)


def add_visibility(parser: argparse.ArgumentParser) -> None:
    """`--private` and `--public`; without either, the user's settings on the Hub decide for a new repository."""
    either = parser.add_mutually_exclusive_group()
    for flag, private in (("--private", True), ("--public", False)):
        text = f"make a new repository {flag[2:]}; an existing repository must have this visibility"
        either.add_argument(flag, dest="private", action="store_const", const=private, default=argparse.SUPPRESS, help=text)


def _add_push_flags(flags: argparse.ArgumentParser, hidden: Collection[str] = _SOME) -> None:
    """The flags of a push. Flags that the kind refuses have no help."""

    def some(name: str, text: str, **more: Any) -> None:
        flags.add_argument(f"--{name}", help=argparse.SUPPRESS if name in hidden else text, **more)

    flags.argument_default = argparse.SUPPRESS  # a flag before the kind is not undone by the kind's own default
    add_visibility(flags)
    flags.add_argument("--revision", metavar="BRANCH", help="a branch instead of main; made where it is missing")
    flags.add_argument("--create-pr", action="store_true", help="open a pull request instead of committing")
    some("message", "title of the commit")
    some("base", "repository of the adapter's base, if the base is built in or a folder", metavar="REPO")
    some("rollouts", "public dataset with the training episodes of the adapter, for its card", metavar="REPO")
    some("adapter", "that the Space shows, USER/NAME[@revision]; without it, the bundled one", metavar="REPO")
    some("hardware", "of the Space, such as zero-a10g")
    some("game", "id of the game, such as Snake-Standard-v1; required", metavar="GAME")
    flags.add_argument("--dry-run", type=read_path, metavar="FOLDER", help="write what would be pushed into a new folder instead")
    add_json(flags)


def _push(options: argparse.Namespace) -> None:
    kind, given = KINDS[options.kind], vars(options)
    for name in _SOME:
        if name in given and name not in kind.takes:
            owners = " and ".join(f"`msgrpo push {owner}`" for owner, other in KINDS.items() if name in other.takes)
            raise UserError(f"--{name} is for {owners}: expected none with `msgrpo push {options.kind}`")
    if missing := [name for name in kind.needs if name not in given]:
        raise UserError(f"`msgrpo push {options.kind}` without --{missing[0]}: expected one, as its --help says")
    if options.kind == "adapter":
        quiet_loading(options.repo)
    from msgrpo_hub.hub.uploading import check_repo_id

    module = import_module(f"msgrpo_hub.{kind.module}")
    source = [options.folder, options.repo] if kind.folder else [options.repo]
    if "dry_run" in given:
        chosen = {name: given[name] for name in kind.staged_by if name in given}
        _dry_run(options, lambda folder: getattr(module, f"stage_{options.kind}")(*source, folder, **chosen))
        return
    for name in filter(None, (options.repo, given.get("rollouts"))):
        check_repo_id(name)
    _say_where(options, kind.visibility)
    chosen = {name: given[name] for name in ("private", "revision", "create_pr", *kind.takes) if name in given}
    if "message" in chosen:
        chosen["commit_message"] = chosen.pop("message")
    pushed = getattr(module, f"push_{options.kind}")(*source, **chosen)
    next_command = kind.next_command.format(folder=shlex.quote(str(given.get("folder"))), repo=options.repo)
    show_pushed(pushed, as_json="json" in given, next_command=next_command)


def _say_where(options: argparse.Namespace, new: str) -> None:
    """Prints the visibility of the repository before the push."""
    private = getattr(options, "private", None)
    visible = "private" if private else "public" if private is False else new
    print(f"pushing to {options.repo} ({visible})", file=sys.stderr)


def show_pushed(pushed: Any, *, next_command: str, as_json: bool = False, quiet: bool = False) -> None:
    """Prints the URL on standard output, and a summary on standard error.

    Args:
        pushed: the result of the push.
        next_command: the command to try next.
        as_json: prints all of `pushed` as JSON instead of the URL.
        quiet: prints no URL, because the command has printed other data.
    """
    if as_json:
        print_json(asdict(pushed))
    elif not quiet:
        print(pushed.pull_request or pushed.url)
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
    if hasattr(options, "json"):
        print_json({"folder": str(options.dry_run), "files": list(sizes)})
    else:
        print("".join(f"{size:>10}  {name}\n" for name, size in sizes.items()), end="")
    print_next(f"look at {options.dry_run}/README.md, then push without --dry-run")
