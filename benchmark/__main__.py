"""`python -m benchmark run|report|check|freeze`, from the root of the clone.

run      plays the players of players.toml on its suite and stores the runs in results/; skips stored runs
report   writes the results into README.md and the Space's bundle
check    fails if these are stale or a stored run does not replay
freeze   writes the hashes of the games into suites/; only before a release or for a new version of a game
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmark import ended
from benchmark.freeze import freeze, freeze_habit
from benchmark.page import HERE, ROOT, current, listed, name_of, with_table
from benchmark.stored import pack, unpacked
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import Result, find_results, player_names
from msgrpo_hub.evaluation.semantic import SUITE
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.hub.leaderboard import Leaderboard, as_rows, ranked
from msgrpo_hub.players import PlayerSettings

README = HERE / "README.md"
BUNDLE = ROOT / "space_app" / "bundle" / "leaderboard.json"


def main(arguments: list[str]) -> None:
    """Runs the command."""
    commands = {"run": run, "report": report, "check": check, "freeze": freeze_suites}
    if len(arguments) != 1 or arguments[0] not in commands:
        raise UserError(f"python -m benchmark {' '.join(arguments)}: expected one of {', '.join(commands)}")
    commands[arguments[0]]()


def run() -> None:
    suite, players = listed()
    with unpacked() as folder:
        for player in players:
            evaluate(player["name"], suite, folder, settings=PlayerSettings(**player["settings"]))
            pack(folder)
    report()


def report() -> None:
    with unpacked() as folder:
        for path, text in pages(find_results(folder)).items():
            path.write_text(text, encoding="utf-8")


def pages(results: Sequence[Result]) -> dict[Path, str]:
    """The pages made from the results: the README, and the leaderboard in the Space's bundle."""
    board = Leaderboard(source="results", commit="", results=ranked(current(results)), refused={})
    names = player_names(board.results)
    rows = [row | {"player": name_of(run, names)} for row, run in zip(as_rows(board), board.results, strict=True)]
    bundle = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    return {README: with_table(README.read_text(encoding="utf-8"), results), BUNDLE: bundle}


def check() -> None:
    with unpacked() as folder:
        for path, text in pages(find_results(folder)).items():
            if path.read_text(encoding="utf-8") != text:
                raise UserError(f"{path.name} of the results is stale: run `python -m benchmark report`")
        if broken := [row for row in verify(folder) if row["problems"]]:
            raise UserError(f"{broken[0]['folder']}: {broken[0]['problems'][0]}; expected runs that replay")


def freeze_suites() -> None:
    for path in sorted((HERE / "suites").glob("*.toml")):
        freeze(path)
        if path.stem == SUITE:
            freeze_habit(path)


if __name__ == "__main__":
    ended(main)
