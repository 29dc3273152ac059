"""`msgrpo push`: adapters, rollouts, results, the built-in base and the demo go to the Hub, or with `--dry-run` into a folder."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from msgrpo_hub.cli.output import add_json, print_json, print_next
from msgrpo_hub.cli.players import quiet_loading
from msgrpo_hub.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of repository: `push_KIND` and `stage_KIND` of a module in `msgrpo_hub.hub`."""

    module: str
    help: str
    next_command: str
    """The command to name after a push, with {folder} and {repo}."""
    folder: str = ""
    """Help for the folder it is made from; empty if it is not made from one."""
    takes: tuple[str, ...] = ()
    """Those of the flags in `_SOME` that apply to it."""
    staged_by: tuple[str, ...] = ()
    """The flags that a dry run needs too."""
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
"""Flags that apply to some kinds only."""


def add_push(parser: argparse.ArgumentParser) -> None:
    """One parser a kind, with the same flags as `push` itself, so that they may stand before or after the kind."""
    _add_push_flags(parser)
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND", parser_class=type(parser))
    for name, kind in KINDS.items():
        own = kinds.add_parser(name, help=kind.help, description=kind.help)
        _add_push_flags(own)
        if kind.folder:
            own.add_argument("folder", type=Path, metavar="DIR", help=kind.folder)
        own.add_argument("repo", metavar="REPO", help="USER/NAME on the Hub")
        own.set_defaults(run=_push)


def add_visibility(parser: argparse.ArgumentParser) -> None:
    """`--private` and `--public`; without either, the user's settings on the Hub decide for a new repository."""
    either = parser.add_mutually_exclusive_group()
    for flag, private in (("--private", True), ("--public", False)):
        text = f"make a new repository {flag[2:]}; one that exists must be so"
        either.add_argument(flag, dest="private", action="store_const", const=private, default=argparse.SUPPRESS, help=text)


def _add_push_flags(flags: argparse.ArgumentParser) -> None:
    flags.argument_default = argparse.SUPPRESS  # a flag before the kind is not undone by the kind's own default
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
    add_json(flags)


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
        chosen = {name: given[name] for name in kind.staged_by if name in given}
        getattr(module, f"stage_{options.kind}")(*source, _new_folder(options.dry_run), **chosen)
        _show_folder(options)
        return
    _say_where(options, kind.visibility)
    chosen = {name: given[name] for name in ("private", "revision", "create_pr", *kind.takes) if name in given}
    if "message" in chosen:
        chosen["commit_message"] = chosen.pop("message")
    pushed = getattr(module, f"push_{options.kind}")(*source, **chosen)
    next_command = kind.next_command.format(folder=given.get("folder"), repo=options.repo)
    show_pushed(pushed, as_json="json" in given, next_command=next_command)


def _say_where(options: argparse.Namespace, new: str) -> None:
    """Says who will see the repository, before anything is sent."""
    private = getattr(options, "private", None)
    visible = "private" if private else "public" if private is False else new
    print(f"pushing to {options.repo} ({visible})", file=sys.stderr)


def show_pushed(pushed: Any, *, next_command: str, as_json: bool = False, quiet: bool = False) -> None:
    """Prints the URL on standard output, and what was done on standard error.

    Args:
        pushed: what the push returned.
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


def _new_folder(path: Path) -> Path:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{str(path)!r} exists and is not empty: expected a new or an empty folder for --dry-run")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _show_folder(options: argparse.Namespace) -> None:
    """Lists what a push would send, after the checks that a push makes."""
    from msgrpo_hub.hub.repo_files import check_folder

    files = check_folder(options.dry_run)
    if hasattr(options, "json"):
        print_json({"folder": str(options.dry_run), "files": list(files)})
    else:
        print("".join(f"{path.stat().st_size:>10}  {name}\n" for name, path in files.items()), end="")
    print_next(f"look at {options.dry_run}/README.md, then push without --dry-run")
