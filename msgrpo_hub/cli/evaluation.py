"""`msgrpo eval`, `compare`, `verify` and `report`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgrpo_hub.cli.flags import read_as, read_path
from msgrpo_hub.cli.output import add_json, print_json, print_next, print_text
from msgrpo_hub.errors import UserError

if TYPE_CHECKING:
    from msgrpo_hub.evaluation.paired import TaskComparison


def add_eval(parser: argparse.ArgumentParser) -> None:
    from msgrpo_hub.cli.flags import add_fields
    from msgrpo_hub.cli.hub import add_visibility
    from msgrpo_hub.cli.play import PLAYERS
    from msgrpo_hub.evaluation.suites import suite_names
    from msgrpo_hub.fields import Count, Price
    from msgrpo_hub.players.settings import PlayerSettings

    parser.description = (
        "Evaluate players on the fixed episodes of a suite. Finished episodes are kept: running the same command again plays "
        "only those that are missing."
    )
    parser.add_argument("players", nargs="+", metavar="PLAYER", help=PLAYERS)
    parser.add_argument("--suite", default="quick", help=f"{', '.join(suite_names())}, or a TOML file. Default: quick")
    parser.add_argument(
        "--output-dir", type=read_path, default=Path("runs/eval"), metavar="DIR", help="gets the results. Default: runs/eval"
    )
    parser.add_argument(
        "--repeats",
        type=read_as(Count),
        metavar="K",
        help="plays of each board, each with its own dynamics and sampling: shows how much a run varies, and pass@k. Default: 1, "
        "or the number of the suite",
    )
    parser.add_argument(
        "--batch-size",
        type=read_as(Count),
        default=50,
        metavar="N",
        help="episodes played at a time. Rounding of a local model depends on the batch size, so another size is another run. "
        "Default: 50",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="print episodes, tokens and time or price: a model plays a few turns of each task, nothing is stored",
    )
    for way, what in (("in", "prompts"), ("out", "replies")):
        text = f"with --estimate: what a server charges for {what}, in dollars per million tokens"
        parser.add_argument(f"--price-{way}", type=read_as(Price), metavar="RATE", help=text)
    add_json(parser)
    parser.add_argument("--push-to-hub", metavar="REPO", help="push the results of this command to the dataset USER/NAME")
    add_visibility(parser)
    parser.add_argument(
        "--checkpoint-repo",
        metavar="REPO",
        help="keep finished tasks in USER/NAME on the Hub too, a private repository; a new folder starts from the tasks stored "
        "there",
    )
    add_fields(parser, PlayerSettings, "players that are models")
    parser.set_defaults(run=_eval)


_REASONS = 3
"""The number of reasons of failures printed for a run; the run's file has all."""


def _eval(options: argparse.Namespace) -> None:
    from msgrpo_hub.cli.flags import given_fields
    from msgrpo_hub.cli.play import quiet_loading
    from msgrpo_hub.evaluation.runner import evaluate
    from msgrpo_hub.evaluation.semantic import semantic_table
    from msgrpo_hub.evaluation.tables import near_draws, repeat_table, results_table
    from msgrpo_hub.players.settings import PlayerSettings

    for name in options.players:
        quiet_loading(name)
    if options.estimate:
        _estimate(options)
        return
    if options.price_in is not None or options.price_out is not None:
        raise UserError("--price-in and --price-out are rates for an estimate: expected --estimate as well")
    settings = PlayerSettings(**given_fields(options, PlayerSettings))
    how = {"settings": settings, "batch_size": options.batch_size, "repeats": options.repeats, **_checkpoints(options)}
    results = evaluate(options.players, options.suite, options.output_dir, **how)
    if options.json:
        rows = [{**run.config, "folder": str(run.folder), **run.summary, "failures": run.failures} for run in results]
        print_json(rows, sort_keys=True)
    else:
        tables = ["\n".join(filter(None, [results_table(results), repeat_table(results)])), semantic_table(results)]
        print_text("\n".join(["\n\n".join(filter(None, tables)), *near_draws(results)]))
    incomplete = [result for result in results if not result.complete]
    for result in incomplete:
        print(f"incomplete: {result.player} on {result.task}, {result.summary['failed']} episodes failed", file=sys.stderr)
        print_text("\n".join(f"    {reason}" for reason in result.reasons[:_REASONS]), error=True)
    if incomplete:
        raise UserError("a server did not answer, so some episodes are missing: run the same command again to play them")
    if options.push_to_hub:
        _push(options, [result.folder for result in results])
    folder = shlex.quote(str(options.output_dir))
    print_next(f"msgrpo report {folder}", f"msgrpo verify {folder}")


def _checkpoints(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that store an evaluation on the Hub and continue it, if requested; checks the token for a push."""
    if not options.push_to_hub and hasattr(options, "private"):
        raise UserError("--private and --public are for a push: expected --push-to-hub USER/NAME as well")
    repos = [repo for repo in (options.push_to_hub, options.checkpoint_repo) if repo]
    if repos:
        from msgrpo_hub.hub.uploading import check_repo_id, check_token

        for repo in repos:
            check_repo_id(repo)
            check_token()
    if not options.checkpoint_repo:
        return {}
    from msgrpo_hub.hub.checkpoints import fetch_evaluation, push_evaluation

    fetch_evaluation(options.checkpoint_repo, options.output_dir)
    return {"on_task": partial(push_evaluation, options.output_dir, options.checkpoint_repo)}


def _push(options: argparse.Namespace, runs: Sequence[Path]) -> None:
    """Pushes the results of these folders, as `msgrpo push results` does."""
    from msgrpo_hub.cli.hub import show_pushed
    from msgrpo_hub.hub.results import push_results

    pushed = push_results(options.output_dir, options.push_to_hub, private=getattr(options, "private", None), runs=runs)
    show_pushed(pushed, quiet=options.json, next_command=f"msgrpo leaderboard {options.push_to_hub}")


def _estimate(options: argparse.Namespace) -> None:
    from msgrpo_hub.cli.flags import as_flags, given_fields
    from msgrpo_hub.downloads.names import without_secrets
    from msgrpo_hub.evaluation.estimate import Price, estimate, estimate_table
    from msgrpo_hub.evaluation.runner import BATCH
    from msgrpo_hub.evaluation.suites import load_suite
    from msgrpo_hub.players.settings import PlayerSettings

    rates = [rate for rate in (options.price_in, options.price_out) if rate is not None]
    price = Price(tokens_in=options.price_in or 0.0, tokens_out=options.price_out or 0.0) if rates else None
    suite, given = load_suite(options.suite), given_fields(options, PlayerSettings)
    suite = replace(suite, repeats=options.repeats) if options.repeats else suite
    settings = PlayerSettings(**given)
    estimates = [estimate(name, suite, options.output_dir, settings, options.batch_size, price) for name in options.players]
    if options.json:
        print_json([asdict(row) for row in estimates])
    else:
        print("\n\n".join(map(estimate_table, estimates)))
    more = {} if options.batch_size == BATCH else {"batch_size": options.batch_size}
    more |= {"repeats": options.repeats} if options.repeats else {}
    flags = as_flags({"suite": options.suite, "output_dir": options.output_dir} | more | given)
    print_next(f"msgrpo eval {shlex.join([*map(without_secrets, options.players), *flags])}")


def add_compare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare two evaluated players on the tasks that both have played: paired differences with intervals and p-values."
    )
    for name, text in (("first", "the baseline"), ("second", "the player compared with it")):
        parser.add_argument(name, type=read_path, metavar=name.upper(), help=f"folder with the results of {text}")
    parser.add_argument(
        "--methods",
        action="store_true",
        help="compare two training methods: each folder has the results of one checkpoint per training seed",
    )
    add_json(parser)
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.comparison import compare
    from msgrpo_hub.evaluation.tables import comparison_table

    if options.methods:
        _compare_methods(options)
        return
    compared = compare(options.first, options.second)
    if options.json:
        print_json([_comparison_json(row) for row in compared])
    else:
        print_text(comparison_table(compared))
    if options.first.parent == options.second.parent:
        print_next(f"msgrpo report {shlex.quote(str(options.first.parent))}")


def _compare_methods(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.comparison import compare_methods, methods_table

    compared = compare_methods(options.first, options.second)
    if options.json:
        print_json([asdict(row) for row in compared])
    else:
        print_text(methods_table(compared))


def _comparison_json(row: TaskComparison) -> dict[str, Any]:
    """A comparison as plain data, with its verdicts."""
    verdicts = {"rewards": row.rewards.verdict, "success": row.success.verdict}
    return {name: {**part, "verdict": verdicts[name]} if name in verdicts else part for name, part in asdict(row).items()}


def add_verify(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Replay the stored actions of every episode and recompute scores and summaries. Fails if a record differs from the rules."
    )
    parser.add_argument(
        "folder", type=read_path, metavar="DIR", help="filled by `msgrpo eval`, or by `msgrpo train` with --save-rollouts"
    )
    add_json(parser)
    parser.set_defaults(run=_verify)


def _verify(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.verify import NOT_CHECKED, verify_folder

    checked = verify_folder(options.folder)
    wrong = [row for row in checked if row["problems"]]
    if options.json:
        print_json(checked)
    else:
        for row in checked:
            head = f"{'WRONG' if row['problems'] else 'ok':<6}{row['episodes']:>6} episodes  {row['player']} · {row['task']}"
            print_text("\n      ".join([head, *row["problems"][:3], *row["unchecked"]]))
    if wrong:
        raise UserError(f"{len(wrong)} of {len(checked)} runs do not agree with the rules: do not trust these results")
    print(f"\nnot checked: {NOT_CHECKED}", file=sys.stderr)
    saved = any(options.folder.glob("rollouts/default/*.parquet"))
    folder = shlex.quote(str(options.folder))
    print_next(f"msgrpo push rollouts {folder} USER/NAME" if saved else f"msgrpo report {folder}")


def add_report(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write one self-contained HTML page with the tables, plots and replays of evaluated players."
    parser.add_argument("folder", type=read_path, metavar="DIR", help="filled by `msgrpo eval`")
    parser.add_argument("--output", type=read_path, metavar="FILE", help="the page. Default: report.html in DIR")
    parser.add_argument(
        "--baseline",
        default="",
        metavar="PLAYER",
        help="the player that comes first and that the others are compared with. Default: the first model without an adapter",
    )
    add_json(parser, "print the path of the page as JSON")
    parser.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> None:
    from msgrpo_hub.rendering.report import write_report

    output = options.output or options.folder / "report.html"
    if output.is_dir():
        raise UserError(f"--output {str(output)!r} is a folder: expected the name of a file")
    path = write_report(options.folder, output, options.baseline)
    if options.json:
        print_json({"report": str(path)})
    else:
        print(path)
    print_next(f"open {shlex.quote(str(path))} in a browser")
