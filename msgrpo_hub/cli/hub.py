"""`msgrpo push`: what was trained goes to the Hub, or with `--dry-run` into a folder."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from msgrpo_hub.cli.play import quiet_loading
from msgrpo_hub.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What can be pushed: `push_NAME` and `stage_NAME` of a module of the Hub's floor."""

    module: str
    help: str
    next_command: str
    """After a push, with {folder} and {repo}."""
    folder: str = ""
    """What the folder is that it is made from, if it is."""
    takes: tuple[str, ...] = ()
    """Which of the flags that not every kind has."""
    staged_by: tuple[str, ...] = ()
    """Which flags also decide what a dry run writes."""
    loads_a_model: bool = False
    visibility: str = "a new one gets the visibility of your settings"


KINDS = {
    "adapter": Kind(
        module="adapters",
        help="the adapter of a finished run, with card and results",
        folder="the folder of the run",
        takes=("message", "base", "rollouts"),
        staged_by=("base", "rollouts"),
        loads_a_model=True,
        next_command="msgrpo eval {repo} --suite quick",
    ),
    "rollouts": Kind(
        module="rollouts",
        help="the episodes of a run as a dataset, private by default",
        folder="of `train --save-rollouts`, or of `eval`",
        takes=("message",),
        next_command="msgrpo push adapter {folder} USER/NAME --rollouts {repo}",
        visibility="a new one is private, unless --public is given",
    ),
    "results": Kind(
        module="results",
        help="runs of `msgrpo eval`, into a dataset with everybody's",
        folder="what `msgrpo eval --output-dir` has filled",
        takes=("message",),
        staged_by=("revision", "create_pr"),
        next_command="msgrpo leaderboard {repo}",
    ),
    "base": Kind(
        module="bases",
        help="the built-in base, so that adapters of it load for anybody",
        next_command="msgrpo push adapter RUN USER/NAME --base {repo}",
    ),
    "space": Kind(
        module="spaces",
        help="the demo as a Gradio Space",
        takes=("adapter", "hardware"),
        staged_by=("adapter",),
        next_command="open the Space; it is built in some minutes",
    ),
}


_SOME = ("message", "base", "rollouts", "adapter", "hardware")
"""Flags that not every kind takes."""


def push_command(commands: Any) -> None:
    """Adds `push` with its kinds. Their flags are those of `push` itself, so that they may stand before or after the kind."""
    flags = _push_flags()
    parser = commands.add_parser("push", help=f"to the Hub: {', '.join(KINDS)}", parents=[flags])
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND", parser_class=type(parser))
    for name, kind in KINDS.items():
        own = kinds.add_parser(name, help=kind.help, parents=[flags])
        if kind.folder:
            own.add_argument("folder", type=Path, metavar="DIR", help=kind.folder)
        own.add_argument("repo", metavar="REPO", help="USER/NAME on the Hub")
        own.set_defaults(run=_push)


def add_visibility(parser: argparse.ArgumentParser) -> None:
    """`--private` and `--public`; without either, a new repository is what the Hub's settings say."""
    either = parser.add_mutually_exclusive_group()
    for flag, private in (("--private", True), ("--public", False)):
        text = f"make a new repository {flag[2:]}; one that exists must be so"
        either.add_argument(flag, dest="private", action="store_const", const=private, default=argparse.SUPPRESS, help=text)


def _push_flags() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    add_visibility(flags)
    flags.add_argument("--revision", metavar="BRANCH", help="a branch instead of main; made where it is missing")
    flags.add_argument("--create-pr", action="store_true", help="open a pull request instead of committing")
    flags.add_argument("--message", help="title of the commit")
    flags.add_argument(
        "--base", metavar="REPO", help="who holds the base of an adapter, where that is the built-in one or a folder"
    )
    flags.add_argument("--rollouts", metavar="REPO", help="dataset with the training episodes of an adapter, for its card")
    flags.add_argument("--adapter", metavar="REPO", help="that a Space shows, USER/NAME[@revision]; without it, the bundled one")
    flags.add_argument("--hardware", help="of a Space, such as zero-a10g")
    flags.add_argument("--dry-run", type=Path, metavar="FOLDER", help="write what would be pushed into a new folder instead")
    flags.add_argument("--json", action="store_true", help="as JSON")
    return flags


def _push(options: argparse.Namespace) -> None:
    kind, given = KINDS[options.kind], vars(options)
    for name in _SOME:
        if name in given and name not in kind.takes:
            owners = " and ".join(f"`msgrpo push {owner}`" for owner, other in KINDS.items() if name in other.takes)
            raise UserError(f"--{name} is for {owners}: expected none with `msgrpo push {options.kind}`")
    if kind.loads_a_model:
        quiet_loading(options.repo)
    module = import_module(f"msgrpo_hub.hub.{kind.module}")
    source = [options.folder, options.repo] if kind.folder else [options.repo]
    if "dry_run" in given:
        told = {name: given[name] for name in kind.staged_by if name in given}
        getattr(module, f"stage_{options.kind}")(*source, _new_folder(options.dry_run), **told)
        _show_folder(options)
        return
    _say_where(options, kind.visibility)
    told = {name: given[name] for name in ("private", "revision", "create_pr", *kind.takes) if name in given}
    if "message" in told:
        told["commit_message"] = told.pop("message")
    pushed = getattr(module, f"push_{options.kind}")(*source, **told)
    next_command = kind.next_command.format(folder=given.get("folder"), repo=options.repo)
    show_pushed(pushed, as_json="json" in given, next_command=next_command)


def _say_where(options: argparse.Namespace, new: str) -> None:
    """Who will see it, before anything is sent."""
    private = getattr(options, "private", None)
    visible = "private" if private else "public" if private is False else new
    print(f"pushing to {options.repo} ({visible})", file=sys.stderr)


def show_pushed(pushed: Any, *, next_command: str, as_json: bool = False, quiet: bool = False) -> None:
    """The URL on standard output, unless something else is the data there; what was done on standard error."""
    if as_json:
        print(json.dumps(asdict(pushed), indent=2))
    elif not quiet:
        print(pushed.pull_request or pushed.url)
    sent = f"{len(pushed.changed)} files in one commit" if pushed.changed else "nothing, the repository holds all of it already"
    visible = "private" if pushed.private else "public"
    print(f"pushed {sent}; {pushed.repo_id} is {visible}, at {pushed.commit[:12]}\n\nNext: {next_command}", file=sys.stderr)


def _new_folder(path: Path) -> Path:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{str(path)!r} is there already: expected a new or an empty folder for --dry-run")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _show_folder(options: argparse.Namespace) -> None:
    """What a push would send, looked at just as a push does."""
    from msgrpo_hub.hub.repo_files import check_folder

    files = check_folder(options.dry_run)
    if hasattr(options, "json"):
        print(json.dumps({"folder": str(options.dry_run), "files": list(files)}, indent=2))
    else:
        print("".join(f"{path.stat().st_size:>10}  {name}\n" for name, path in files.items()), end="")
    print(f"\nNext: look at {options.dry_run}/README.md, then push without --dry-run", file=sys.stderr)
