"""`msgrpo eval`, `compare`, `verify` and `report`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgrpo_hub.cli.flags import add_fields
from msgrpo_hub.cli.play import PLAYERS, quiet_loading
from msgrpo_hub.errors import UserError

if TYPE_CHECKING:
    from msgrpo_hub.evaluation.paired import TaskComparison


def evaluation_commands(commands: Any) -> None:
    """Adds the four commands."""
    _eval_command(commands)
    for name, run, what, text in (
        ("compare", _compare, "results", "compare two runs, or two folders of runs, on the same episodes"),
        ("verify", _verify, "folder", "play the stored actions again; fails where a record differs from the rules"),
        ("report", _report, "folder", "one self-contained HTML page: tables, plots, replays"),
    ):
        parser = commands.add_parser(name, help=text)
        parser.add_argument("paths", type=Path, nargs=2 if name == "compare" else 1, metavar=what.upper())
        if name == "report":
            parser.add_argument("--output", type=Path, help="the page; default: report.html in the folder")
        parser.add_argument("--json", action="store_true", help="as JSON")
        parser.set_defaults(run=run)


def _eval_command(commands: Any) -> None:
    from msgrpo_hub.players.identity import PlayerSettings

    parser = commands.add_parser("eval", help="play a suite's fixed episodes; goes on where it was interrupted")
    parser.add_argument("players", nargs="+", metavar="PLAYER", help=PLAYERS)
    parser.add_argument("--suite", default="quick", help="of benchmark/suites, or a TOML file; default: quick")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/eval"), help="default: runs/eval")
    parser.add_argument("--batch-size", type=int, default=50, help="episodes played together; results do not depend on it")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_fields(parser, PlayerSettings)
    parser.set_defaults(run=_eval)


def _eval(options: argparse.Namespace) -> None:
    from dataclasses import fields

    from msgrpo_hub.evaluation.runner import evaluate
    from msgrpo_hub.evaluation.tables import results_table
    from msgrpo_hub.players.identity import PlayerSettings

    if options.batch_size < 1:
        raise UserError(f"--batch-size {options.batch_size}: expected at least 1")
    given = {field.name: getattr(options, field.name) for field in fields(PlayerSettings) if hasattr(options, field.name)}
    for name in options.players:
        quiet_loading(name)
    results = evaluate(
        options.players, options.suite, options.output_dir, settings=PlayerSettings(**given), batch_size=options.batch_size
    )
    if options.json:
        rows = [{**result.config, "folder": str(result.folder), **result.summary} for result in results]
        print(json.dumps(rows, indent=2, sort_keys=True))
    else:
        print(results_table(results))
    open_runs = [result for result in results if not result.complete]
    for result in open_runs:
        print(f"not complete: {result.player} on {result.task}, {result.summary['failed']} episodes failed", file=sys.stderr)
    if open_runs:
        raise UserError("a server failed to answer; expected every episode to end: the same command plays what is missing")
    print(f"\nNext: msgrpo report {options.output_dir}\n      msgrpo verify {options.output_dir}", file=sys.stderr)


def _compare(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.comparison import compare
    from msgrpo_hub.evaluation.tables import comparison_table

    first, second = options.paths
    compared = compare(first, second)
    if options.json:
        print(json.dumps([_comparison_json(row) for row in compared], indent=2))
        return
    print(comparison_table(compared))
    print(f"\nNext: msgrpo report {first}", file=sys.stderr)


def _comparison_json(row: TaskComparison) -> dict[str, Any]:
    """A comparison as plain data, with its verdicts."""
    verdicts = {"rewards": row.rewards.verdict, "success": row.success.verdict}
    return {name: {**part, "verdict": verdicts[name]} if name in verdicts else part for name, part in asdict(row).items()}


def _verify(options: argparse.Namespace) -> None:
    from msgrpo_hub.evaluation.verify_rollouts import verify_folder

    [folder] = options.paths
    checked = verify_folder(folder)
    broken = [row for row in checked if row["problems"]]
    if options.json:
        print(json.dumps(checked, indent=2))
    else:
        for row in checked:
            print(f"{'WRONG' if row['problems'] else 'ok':<6}{row['episodes']:>6} episodes  {row['player']} · {row['task']}")
            print("".join(f"      {problem}\n" for problem in row["problems"][:3]), end="")
    if broken:
        raise UserError(f"{len(broken)} of {len(checked)} runs do not agree with the rules: do not trust these results")
    saved = any(folder.glob("rollouts/default/*.parquet"))
    print(f"\nNext: msgrpo {f'push rollouts {folder} USER/NAME' if saved else f'report {folder}'}", file=sys.stderr)


def _report(options: argparse.Namespace) -> None:
    from msgrpo_hub.rendering.report import write_report

    [folder] = options.paths
    path = write_report(folder, options.output or folder / "report.html")
    print(json.dumps({"report": str(path)}) if options.json else path)
    print(f"\nNext: open {path} in a browser", file=sys.stderr)
