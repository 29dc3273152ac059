"""`python -m benchmark run|report|check|freeze`, from the root of the clone.

run      plays every player of players.toml on its suite into results/; stored runs are not played again
report   writes the table in README.md from results/
check    fails if that table is stale or a stored run does not replay
freeze   writes the hashes of the games into suites/; use it only before a release or for a new version of a game
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.semantic import SUITE, freeze_habit
from msgrpo_hub.evaluation.suites import freeze
from msgrpo_hub.evaluation.tables import markdown_table, same_episodes
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.players import PlayerSettings

HERE = Path(__file__).parent
RESULTS = HERE / "results"
README = HERE / "README.md"
BEGIN, END = "<!-- table: python -m benchmark report -->", "<!-- end of table -->"


def main(arguments: list[str]) -> None:
    """Runs the command."""
    commands = {"run": run, "report": report, "check": check, "freeze": freeze_suites}
    if len(arguments) != 1 or arguments[0] not in commands:
        raise UserError(f"python -m benchmark {' '.join(arguments)}: expected one of {', '.join(commands)}")
    commands[arguments[0]]()


def listed() -> tuple[str, list[dict[str, Any]]]:
    """The suite and the players, in order."""
    values = tomllib.loads((HERE / "players.toml").read_text(encoding="utf-8"))
    return values["suite"], values["player"]


def run() -> None:
    suite, players = listed()
    for player in players:
        settings = {name: value for name, value in player.items() if name not in ("name", "label")}
        evaluate(player["name"], suite, RESULTS, settings=PlayerSettings(**settings))
    report()


def report() -> None:
    README.write_text(with_table(README.read_text(encoding="utf-8"), find_results(RESULTS)))


def check() -> None:
    text = README.read_text(encoding="utf-8")
    if with_table(text, find_results(RESULTS)) != text:
        raise UserError("the table in benchmark/README.md is stale: run `python -m benchmark report`")
    if broken := [row for row in verify(RESULTS) if row["problems"]]:
        raise UserError(f"{broken[0]['folder']}: {broken[0]['problems'][0]}; expected runs that replay")


def freeze_suites() -> None:
    for path in sorted((HERE / "suites").glob("*.toml")):
        freeze(path)
        if path.stem == SUITE:
            freeze_habit(path)


def with_table(text: str, results: list[Result]) -> str:
    """The README with an updated table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    blocks = [markdown_table(group, _linked, _published(group[0].task)) for group in same_episodes(results)]
    return "\n\n".join([before + BEGIN, *blocks, END + after])


def _linked(result: Result) -> str:
    return f"[{_label(result)}](results/{result.folder.relative_to(RESULTS)})"


def _label(result: Result) -> str:
    for player in listed()[1]:
        if result.config["player"] in (player["name"], f"folder:{Path(player['name']).name}"):
            return str(player.get("label", player["name"]))
    return result.player


def _published(task: str) -> list[tuple[float, list[str]]]:
    """Published figures on a task: their rewards, and their rows in our table."""
    figures = [
        figure
        for figure in tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))["figure"]
        if figure["task"] == task
    ]
    return [(figure["reward"], _published_row(figure)) for figure in figures]


def _published_row(figure: dict[str, Any]) -> list[str]:
    return [f"*{figure['player']}*", f"*{figure['reward']:g}*", "*published, not measured*", "", "", f"*{figure['source']}*"]


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
