"""`msgrpo eval`, `compare`, `verify`, `report` and `curves`; `leaderboard` and `export` of published results."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import Counter
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgrpo_hub.cli.flags import add_fields, add_format, add_json, as_flags, given_fields, print_next, read_as, show
from msgrpo_hub.cli.hub import add_visibility, show_pushed
from msgrpo_hub.cli.play import PLAYERS, quiet_loading
from msgrpo_hub.downloads.names import without_secrets
from msgrpo_hub.errors import UserError, plain
from msgrpo_hub.fields import Count, Price
from msgrpo_hub.players.registry import import_player
from msgrpo_hub.players.settings import PlayerSettings

if TYPE_CHECKING:
    from msgrpo_hub.hub.leaderboard import Leaderboard


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
    add_format(parser)
    flag("--push-to-hub", metavar="REPO", help="push the results of this command to the dataset USER/NAME")
    add_visibility(parser)
    text = "keep finished tasks in USER/NAME on the Hub too, a private repository; a new folder starts from those"
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
    layout = options.format
    tables = "\n".join(filter(None, [results_table(results, layout=layout), repeat_table(results, layout)]))
    tables = "\n".join(["\n\n".join(filter(None, [tables, semantic_table(results, layout=layout)])), *near_draws(results)])
    show(
        [{**run.config, "folder": str(run.folder), **run.summary, "failures": run.failures} for run in results],
        tables,
        as_json=options.json,
        sort_keys=True,
        layout=layout,
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
    add_format(parser)


def run_compare(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.comparison import compare, compare_methods
    from msgrpo_hub.evaluation.tables import comparison_table, methods_table

    layout = options.format
    if options.methods:
        methods = compare_methods(options.first, options.second)
        show([asdict(row) for row in methods], methods_table(methods, layout), as_json=options.json, layout=layout)
        return
    compared = compare(options.first, options.second)
    show([asdict(row) for row in compared], comparison_table(compared, layout), as_json=options.json, layout=layout)
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


def add_leaderboard(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    add_format(parser)


def _add_source(parser: argparse.ArgumentParser) -> None:
    text = "a results dataset on the Hub, USER/NAME, or a folder filled by `msgrpo eval`"
    parser.add_argument("source", metavar="REPO", help=text)
    parser.add_argument("--revision", help="a branch, a commit, or refs/pr/N for a pull request. Default: main")


def run_leaderboard(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.semantic import semantic_table
    from msgrpo_hub.evaluation.tables import eval_command, results_table, short
    from msgrpo_hub.evaluation.verify import REPLAYED
    from msgrpo_hub.hub.leaderboard import as_json, read_leaderboard

    board = read_leaderboard(options.source, revision=options.revision)
    name, layout = (lambda result: short(board.name(result))), options.format
    tables = [make(board.results, name, layout) for make in (results_table, semantic_table)]
    text = "\n\n".join(filter(None, [*tables, REPLAYED if board.results else ""]))
    show(as_json(board), text, as_json=options.json, sort_keys=True, layout=layout)
    _report_source(board)
    if board.commit:
        submit = f"msgrpo push results runs/mine {board.source} --create-pr"
        print_next(*eval_command(board.results, "runs/mine").splitlines(), submit)
    else:
        print_next(f"msgrpo push results {shlex.quote(board.source)} USER/NAME")


def _report_source(board: Leaderboard) -> None:
    """Prints the source, and the runs that are not listed with the reasons."""
    at = f" at {board.commit}" if board.commit else ""
    print(f"\n{board.source}{at}: {len(board.results)} runs, each replayed", file=sys.stderr)
    for name, why in board.refused.items():
        print(plain(f"not listed: {name}: {why}"), file=sys.stderr)


def add_export(parser: argparse.ArgumentParser) -> None:
    """Replay published results and write them for model cards on the Hub: model-index, and .eval_results."""
    _add_source(parser)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="gets the files")
    text = "the benchmark dataset as the Hub knows it; needed for .eval_results only"
    parser.add_argument("--benchmark-id", metavar="REPO", help=text)
    add_json(parser, "print the paths as JSON")


def run_export(options: argparse.Namespace) -> None:
    from msgrpo_hub.hub.exports import write_exports
    from msgrpo_hub.hub.leaderboard import read_leaderboard

    board = read_leaderboard(options.source, revision=options.revision)
    written = write_exports(board, options.folder, benchmark_id=options.benchmark_id)
    show([str(path) for path in written], "\n".join(map(str, written)), as_json=options.json)
    _report_source(board)
    models = [path.parent for path in written if path.name == "model-index.yaml"]
    upload = options.benchmark_id and f"hf upload USER/MODEL {shlex.quote(str(models[0]))}"
    print_next(upload or f"copy {written[0]} into the card of the model")


def add_curves(parser: argparse.ArgumentParser) -> None:
    """Draw runs together: each training seed's line, and the mean of each variant with a 95 % interval over its seeds. A
    variant is a folder of `msgrpo train --seeds`, or one run."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a run, or a folder of runs at any depth")
    choices = ("updates", "episodes", "tokens", "processor-seconds")
    parser.add_argument("--x", choices=choices, default="updates", help="the x axis. Default: updates")
    text = (
        "the figure, .png or .svg. Default: seed-curves.png in the common folder, or seed-curves-2.png if that exists, and so on"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help=text)
    add_json(parser, "print the figures over the seeds as JSON")


def run_curves(options: argparse.Namespace) -> None:
    from msgrpo_hub.rendering.seed_curves import plot_seed_curves
    from msgrpo_hub.storage.files import disk_errors, write_atomically
    from msgrpo_hub.training.seeds import X_AXES, data_of, find_variants, seed_lines, seed_table

    variants = find_variants(options.folders)
    above = Path(os.path.commonpath([folder.resolve() for folder in options.folders]))
    free = (path for number in count(1) if not (path := above / f"seed-curves{-number if number > 1 else ''}.png").exists())
    output = options.output or next(free)
    kind = output.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg") or output.is_dir() or not output.parent.is_dir():
        raise UserError(f"--output {str(output)!r}: expected the name of a file in a folder that exists, ending in .png or .svg")
    lines = [seed_lines(variant, options.x) for variant in variants]
    with disk_errors(output.parent, lambda: "the runs are untouched"):
        write_atomically(output, partial(plot_seed_curves, lines, x_label=X_AXES[options.x][0], kind=kind))
    data = {"figure": str(output), "variants": [data_of(variant) for variant in variants]}
    show(data, f"{seed_table(variants)}\n\n{output}".strip(), as_json=options.json)
    print_next(f"open {shlex.quote(str(output))}")
