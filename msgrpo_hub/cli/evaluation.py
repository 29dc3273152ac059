"""`msgrpo eval`, `compare`, `verify` and `report`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgrpo_hub.cli.flags import add_fields, add_json, as_flags, given_fields, print_next, read_as, show
from msgrpo_hub.cli.hub import add_visibility, show_pushed
from msgrpo_hub.cli.play import PLAYERS, quiet_loading
from msgrpo_hub.downloads.names import without_secrets
from msgrpo_hub.errors import UserError, plain
from msgrpo_hub.fields import Count, Price
from msgrpo_hub.players.registry import import_player
from msgrpo_hub.players.settings import PlayerSettings


def add_eval(parser: argparse.ArgumentParser) -> None:
    """Evaluate players on the fixed episodes of a suite. The same command again plays only the missing episodes."""
    from msgrpo_hub.evaluation.suites import suite_names

    flag = parser.add_argument
    flag("players", nargs="+", metavar="PLAYER", help=PLAYERS)
    flag("--suite", default="quick", help=f"{', '.join(suite_names())}, or a TOML file. Default: quick")
    text = "gets the results. Default: runs/eval"
    flag("--output-dir", type=Path, default=Path("runs/eval"), metavar="DIR", help=text)
    text = "plays of each board, each with its own dynamics and sampling: shows how much a run varies, and pass@k. Default: 1, "
    flag("--repeats", type=read_as(Count), metavar="K", help=f"{text}or the number of the suite")
    text = "episodes played at a time. Rounding of a local model depends on the batch size, so another size is another run. "
    flag("--batch-size", type=read_as(Count), default=50, metavar="N", help=f"{text}Default: 50")
    text = "print episodes, tokens and time or price: a model plays a few turns of each task, nothing is stored"
    flag("--estimate", action="store_true", help=text)
    for way, what in (("in", "prompts"), ("out", "replies")):
        text = f"with --estimate: what a server charges for {what}, in dollars per million tokens"
        flag(f"--price-{way}", type=read_as(Price), metavar="RATE", help=text)
    add_json(parser)
    flag("--push-to-hub", metavar="REPO", help="push the results of this command to the dataset USER/NAME")
    add_visibility(parser)
    text = (
        "keep finished tasks in USER/NAME on the Hub too, a private repository; a new folder starts from the tasks stored there"
    )
    flag("--checkpoint-repo", metavar="REPO", help=text)
    add_fields(parser, PlayerSettings, "players that are models")


def run_eval(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.runner import evaluate
    from msgrpo_hub.evaluation.semantic import semantic_table
    from msgrpo_hub.evaluation.tables import near_draws, repeat_table, results_table

    # 1) checks
    for name in options.players:
        import_player(name)
        quiet_loading(name)
    if options.estimate:
        _estimate(options)
        return
    if options.price_in is not None or options.price_out is not None:
        raise UserError("--price-in and --price-out are rates for an estimate: expected --estimate as well")
    if not options.push_to_hub and options.private is not None:
        raise UserError("--private and --public are for a push: expected --push-to-hub USER/NAME as well")
    for repo in filter(None, (options.push_to_hub, options.checkpoint_repo)):
        from msgrpo_hub.hub.uploading import check_repo_id, check_token

        check_repo_id(repo)
        check_token()
    how: dict[str, Any] = {"batch_size": options.batch_size, "repeats": options.repeats}
    how["settings"] = PlayerSettings(**given_fields(options, PlayerSettings))
    if options.checkpoint_repo:
        from msgrpo_hub.hub.checkpoints import fetch_evaluation, push_evaluation

        fetch_evaluation(options.checkpoint_repo, options.output_dir)
        how["on_task"] = partial(push_evaluation, options.output_dir, options.checkpoint_repo)

    # 2) play
    results = evaluate(options.players, options.suite, options.output_dir, **how)

    # 3) tables, failures and a push
    tables = "\n".join(filter(None, [results_table(results), repeat_table(results)]))
    tables = "\n".join(["\n\n".join(filter(None, [tables, semantic_table(results)])), *near_draws(results)])
    show(
        [{**run.config, "folder": str(run.folder), **run.summary, "failures": run.failures} for run in results],
        tables,
        as_json=options.json,
        sort_keys=True,
    )
    incomplete = [result for result in results if not result.complete]
    for result in incomplete:
        print(f"incomplete: {result.player} on {result.task}, {result.summary['failed']} episodes failed", file=sys.stderr)
        reasons = Counter(row["error"] for row in result.failures).most_common(3)  # the run's file has all
        print(*(f"    {count} × {plain(reason)}" for reason, count in reasons), sep="\n", file=sys.stderr)
    if incomplete:
        raise UserError("a server did not answer, so some episodes are missing: run the same command again to play them")
    if options.push_to_hub:
        from msgrpo_hub.hub.results import push_results

        runs = [result.folder for result in results]
        pushed = push_results(options.output_dir, options.push_to_hub, private=options.private, runs=runs)
        show_pushed(pushed, quiet=options.json, next_command=f"msgrpo leaderboard {options.push_to_hub}")
    folder = shlex.quote(str(options.output_dir))
    print_next(f"msgrpo report {folder}", f"msgrpo verify {folder}")


def _estimate(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.estimate import estimate, estimate_table
    from msgrpo_hub.evaluation.runner import BATCH
    from msgrpo_hub.evaluation.suites import load_suite

    rates = (options.price_in, options.price_out)
    price = (rates[0] or 0.0, rates[1] or 0.0) if rates != (None, None) else None
    suite, given = load_suite(options.suite), given_fields(options, PlayerSettings)
    suite, settings = replace(suite, repeats=options.repeats or suite.repeats), PlayerSettings(**given)
    estimates = [estimate(name, suite, options.output_dir, settings, options.batch_size, price) for name in options.players]
    show(estimates, "\n\n".join(map(estimate_table, estimates)), as_json=options.json)
    more = {} if options.batch_size == BATCH else {"batch_size": options.batch_size}
    more |= {"repeats": options.repeats} if options.repeats else {}
    flags = as_flags({"suite": options.suite, "output_dir": options.output_dir} | more | given)
    print_next(f"msgrpo eval {shlex.join([*map(without_secrets, options.players), *flags])}")


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Compare two evaluated players on the tasks that both have played: paired differences with intervals and p-values."""
    for name, text in (("first", "the baseline"), ("second", "the player compared with it")):
        parser.add_argument(name, type=Path, metavar=name.upper(), help=f"folder with the results of {text}")
    text = "compare two training methods: each folder has the results of one checkpoint per training seed"
    parser.add_argument("--methods", action="store_true", help=text)
    add_json(parser)


def run_compare(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.comparison import compare, compare_methods
    from msgrpo_hub.evaluation.tables import comparison_table, methods_table

    if options.methods:
        methods = compare_methods(options.first, options.second)
        show([asdict(row) for row in methods], methods_table(methods), as_json=options.json)
        return
    compared = compare(options.first, options.second)
    show([asdict(row) for row in compared], comparison_table(compared), as_json=options.json)
    if options.first.parent == options.second.parent:
        print_next(f"msgrpo report {shlex.quote(str(options.first.parent))}")


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Replay the stored actions of every episode and recompute scores and summaries. Fails if a record differs from the rules."""
    text = "filled by `msgrpo eval`, or by `msgrpo train` with --save-rollouts"
    parser.add_argument("folder", type=Path, metavar="DIR", help=text)
    add_json(parser)


def run_verify(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.verify import NOT_CHECKED, verify_folder

    checked = verify_folder(options.folder)
    wrong = [row for row in checked if row["problems"]]
    lines = []
    for row in checked:
        lines.append(f"{'WRONG' if row['problems'] else 'ok':<6}{row['episodes']:>6} episodes  {row['player']} · {row['task']}")
        lines += [f"      {problem}" for problem in (*row["problems"][:3], *row["unchecked"])]
    show(checked, "\n".join(lines), as_json=options.json)
    if wrong:
        raise UserError(f"{len(wrong)} of {len(checked)} runs do not agree with the rules: do not trust these results")
    print(f"\nnot checked: {NOT_CHECKED}", file=sys.stderr)
    folder = shlex.quote(str(options.folder))
    dataset, saved = (any(options.folder.glob(f"{root}default/*.parquet")) for root in ("", "rollouts/"))
    own = f"msgrpo push rollouts {folder} USER/NAME" if saved else f"msgrpo report {folder}"
    print_next(f"msgrpo_hub.hub.load_rollouts({str(options.folder)!r}) in Python" if dataset else own)


def add_report(parser: argparse.ArgumentParser) -> None:
    """Write one self-contained HTML page with the tables, plots and replays of evaluated players."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="filled by `msgrpo eval`")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the page. Default: report.html in DIR")
    text = "the player that comes first and that the others are compared with. Default: the first model without an adapter"
    parser.add_argument("--baseline", default="", metavar="PLAYER", help=text)
    add_json(parser, "print the path of the page as JSON")


def run_report(options: argparse.Namespace) -> None:
    from msgrpo_hub.rendering.report import write_report

    path = write_report(options.folder, options.output or options.folder / "report.html", options.baseline)
    show({"report": str(path)}, str(path), as_json=options.json)
    print_next(f"open {shlex.quote(str(path))} in a browser")
