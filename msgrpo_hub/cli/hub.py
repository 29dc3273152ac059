"""`msgrpo push`: what was trained goes to the Hub, or with `--dry-run` into a folder."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgrpo_hub.cli.play import quiet_loading
from msgrpo_hub.errors import UserError


def push_command(commands: Any) -> None:
    """Adds `push` with its kinds. Their flags are those of `push` itself, so that they may stand before or after the kind."""
    flags = _push_flags()
    parser = commands.add_parser(
        "push", help="to the Hub: adapter, rollouts or results, or the built-in base", parents=[flags]
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND", parser_class=type(parser))
    adapter = kinds.add_parser("adapter", help="the adapter of a finished run, with card and results", parents=[flags])
    adapter.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    rollouts = kinds.add_parser("rollouts", help="the episodes of a run as a data set, private by default", parents=[flags])
    rollouts.add_argument("folder", type=Path, metavar="DIR", help="of `train --save-rollouts`, or of `eval`")
    base = kinds.add_parser("base", help="the built-in base, so that adapters of it load for anybody", parents=[flags])
    results = kinds.add_parser("results", help="runs of `msgrpo eval`, into a dataset with everybody's", parents=[flags])
    results.add_argument("folder", type=Path, metavar="DIR", help="what `msgrpo eval --output-dir` has filled")
    for kind, run in ((adapter, _push_adapter), (rollouts, _push_rollouts), (base, _push_base), (results, _push_results)):
        kind.add_argument("repo", metavar="REPO", help="USER/NAME on the Hub")
        kind.set_defaults(run=run)


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
    flags.add_argument("--dry-run", type=Path, metavar="FOLDER", help="write what would be pushed into a new folder instead")
    flags.add_argument("--json", action="store_true", help="as JSON")
    return flags


def _push_adapter(options: argparse.Namespace) -> None:
    quiet_loading(options.repo)
    from msgrpo_hub.hub.adapters import push_adapter, stage_adapter

    given = vars(options)
    told = {name: given[name] for name in ("base", "rollouts") if name in given}
    if "dry_run" in given:
        stage_adapter(options.folder, options.repo, _new_folder(options.dry_run), **told)
        _show_folder(options)
        return
    _say_where(options)
    pushed = push_adapter(options.folder, options.repo, commit_message=given.get("message"), **_target(given), **told)
    show_pushed(pushed, as_json="json" in given, next_command=f"msgrpo eval {options.repo} --suite quick")


def _push_rollouts(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub.rollouts import push_rollouts, stage_rollouts

    given = vars(options)
    if extra := [name for name in ("base", "rollouts") if name in given]:
        raise UserError(f"--{extra[0]} is for adapters: expected none with `msgrpo push rollouts`")
    if "dry_run" in given:
        stage_rollouts(options.folder, options.repo, _new_folder(options.dry_run))
        _show_folder(options)
        return
    _say_where(options, new="a new one is private, unless --public is given")
    pushed = push_rollouts(options.folder, options.repo, commit_message=given.get("message"), **_target(given))
    show_pushed(
        pushed, as_json="json" in given, next_command=f"msgrpo push adapter {options.folder} USER/NAME --rollouts {options.repo}"
    )


def _push_base(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub.bases import push_base, stage_base

    given = vars(options)
    if extra := [name for name in ("base", "rollouts", "message") if name in given]:
        raise UserError(f"--{extra[0]} is for adapters: expected none with `msgrpo push base`")
    if "dry_run" in given:
        stage_base(options.repo, _new_folder(options.dry_run))
        _show_folder(options)
        return
    _say_where(options)
    pushed = push_base(options.repo, **_target(given))
    show_pushed(pushed, as_json="json" in given, next_command=f"msgrpo push adapter RUN USER/NAME --base {options.repo}")


def _push_results(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub.results import push_results, stage_results

    given = vars(options)
    if extra := [name for name in ("base", "rollouts") if name in given]:
        raise UserError(f"--{extra[0]} is for adapters: expected none with `msgrpo push results`")
    if "dry_run" in given:
        where = {name: given[name] for name in ("revision", "create_pr") if name in given}
        stage_results(options.folder, options.repo, _new_folder(options.dry_run), **where)
        _show_folder(options)
        return
    _say_where(options)
    pushed = push_results(options.folder, options.repo, commit_message=given.get("message"), **_target(given))
    show_pushed(pushed, as_json="json" in given, next_command=f"msgrpo leaderboard {options.repo}")


def _target(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("private", "revision", "create_pr") if name in given}


def _say_where(options: argparse.Namespace, new: str = "a new one gets the visibility of your settings") -> None:
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
    from msgrpo_hub.hub.contents import check_folder

    files = check_folder(options.dry_run)
    if hasattr(options, "json"):
        print(json.dumps({"folder": str(options.dry_run), "files": list(files)}, indent=2))
    else:
        print("".join(f"{path.stat().st_size:>10}  {name}\n" for name, path in files.items()), end="")
    print(f"\nNext: look at {options.dry_run}/README.md, then push without --dry-run", file=sys.stderr)
