"""`python -m benchmark run|report|check`, from the root of the clone.

run      plays every player of players.toml on its suite, into results/; what is there already is not played again
report   writes the table in README.md from results/
check    fails where that table is stale, or where a stored run does not agree with the rules
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import PlayerSettings, evaluate
from msgrpo_hub.evaluation.runner import Result, find_results
from msgrpo_hub.evaluation.tables import with_interval
from msgrpo_hub.evaluation.verify import verify

HERE = Path(__file__).parent
RESULTS = HERE / "results"
README = HERE / "README.md"
BEGIN, END = "<!-- table: python -m benchmark report -->", "<!-- end of table -->"


def main(arguments: list[str]) -> None:
    """Runs one of the three commands."""
    commands = {"run": run, "report": report, "check": check}
    if len(arguments) != 1 or arguments[0] not in commands:
        raise UserError(f"python -m benchmark {' '.join(arguments)}: expected one of {', '.join(commands)}")
    commands[arguments[0]]()


def listed() -> tuple[str, list[dict[str, Any]]]:
    """The suite, and the players in their order."""
    values = tomllib.loads((HERE / "players.toml").read_text())
    return values["suite"], values["player"]


def run() -> None:
    suite, players = listed()
    for player in players:
        settings = {name: value for name, value in player.items() if name not in ("name", "label")}
        evaluate(player["name"], suite, RESULTS, settings=PlayerSettings(**settings))
    report()


def report() -> None:
    README.write_text(with_table(README.read_text(), find_results(RESULTS)))


def check() -> None:
    text = README.read_text()
    if with_table(text, find_results(RESULTS)) != text:
        raise UserError("the table in benchmark/README.md is stale: run `python -m benchmark report`")
    if broken := [row for row in verify(RESULTS) if row["problems"]]:
        raise UserError(f"{broken[0]['folder']}: {broken[0]['problems'][0]}; expected runs that replay")


def with_table(text: str, results: list[Result]) -> str:
    """The README with its table made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    tasks = sorted({result.task for result in results})
    blocks = [task_table(task, [result for result in results if result.task == task]) for task in tasks]
    return "\n\n".join([before + BEGIN, *blocks, END + after])


def task_table(task: str, results: list[Result]) -> str:
    """One task in Markdown: the best reward first, published figures among ours."""
    rows = [(result.summary["reward"]["mean"], _row(result)) for result in results]
    rows += [(figure["reward"], _published(figure)) for figure in _figures(task)]
    references = ", ".join(f"{name} {value:.2f}" for name, value in results[0].summary["references"].items())
    head = "| player | reward | success | normalised | luck-adjusted | unread / cut / illegal |\n|---|---|---|---|---|---|"
    ordered = [line for _, line in sorted(rows, key=lambda row: -row[0])]
    episodes = f"{results[0].config['episodes']} {results[0].config['split']} episodes"
    return "\n".join([f"**{task}**, {episodes}; {references}\n", head, *ordered])


def _row(result: Result) -> str:
    summary = result.summary
    faults = " / ".join(f"{summary[name]:.1%}" for name in ("unreadable_rate", "truncated_rate", "illegal_rate"))
    norm = "–" if summary["normalised"] is None else f"{summary['normalised']:.2f}"
    figures = [with_interval(summary["reward"]), with_interval(summary["success"]), norm, with_interval(summary["luck_adjusted"])]
    return _line([f"[{_label(result)}](results/{result.folder.relative_to(RESULTS)})", *figures, faults])


def _label(result: Result) -> str:
    for player in listed()[1]:
        if result.config["player"] in (player["name"], f"folder:{Path(player['name']).name}"):
            return str(player.get("label", player["name"]))
    return result.player


def _figures(task: str) -> list[dict[str, Any]]:
    published = tomllib.loads((HERE / "published.toml").read_text())["figure"]
    return [figure for figure in published if figure["task"] == task]


def _published(figure: dict[str, Any]) -> str:
    return _line(
        [f"*{figure['player']}*", f"*{figure['reward']:g}*", "*published, not measured*", "", "", f"*{figure['source']}*"]
    )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
