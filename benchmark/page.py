"""The results in benchmark/README.md: current rows, rows that are to be made anew, and figures that others published."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgrpo_hub.downloads.fetching import resolve
from msgrpo_hub.downloads.names import content_hash
from msgrpo_hub.evaluation.results import Result, player_key, player_names
from msgrpo_hub.evaluation.tables import RANKS, eval_command, markdown, markdown_table, same_episodes, with_interval
from msgrpo_hub.games import make_game
from msgrpo_hub.hub.leaderboard import Leaderboard, as_rows, ranked
from msgrpo_hub.players.registry import SCRIPTED, VERSION

HERE = Path(__file__).parent
ROOT = HERE.parent
BEGIN, END = "<!-- table: python -m benchmark report -->", "<!-- end of table -->"


def listed() -> tuple[str, list[dict[str, Any]]]:
    """The suite and the players, in order."""
    values = tomllib.loads((HERE / "players.toml").read_text(encoding="utf-8"))
    return values["suite"], values["player"]


def with_table(text: str, results: Sequence[Result]) -> str:
    """The README with its results as they are now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    names, shown = player_names(results), current(results)
    stale = [[_linked(r, names), r.task, with_interval(r.summary["reward"]), why] for r in results if (why := why_stale(r))]
    tables = [markdown_table(group, lambda result: _linked(result, names)) for group in same_episodes(shown)]
    parts = [*tables, f"{RANKS}.", _invitation(shown), *([_stale_table(stale)] if stale else []), _published()]
    return "\n\n".join([before + BEGIN, *parts, END + after])


def bundle_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The current rows as the Space shows them without a network."""
    board = Leaderboard(source="results", commit="", results=ranked(current(results)), refused={})
    names = player_names(board.results)
    return [row | {"player": name_of(run, names)} for row, run in zip(as_rows(board), board.results, strict=True)]


def current(results: Sequence[Result]) -> list[Result]:
    """The complete runs whose player is listed and in the tree, and that were played by the rules of now."""
    return [result for result in results if result.complete and not why_stale(result)]


def why_stale(result: Result) -> str:
    """Why a stored run is not shown as current; empty if it is."""
    player = _entry(result)
    if player is None:
        return "not listed"
    changed = [name for name, value in in_the_tree(player["name"]).items() if result.config["identity"].get(name) != value]
    reasons = [player["stale"]] if "stale" in player else []
    reasons += [f"not the player in the tree ({', '.join(changed)})"] if changed else []
    return "; ".join(reasons)


def in_the_tree(name: str) -> dict[str, Any]:
    """The part of a player's identity that follows from the tree: the version of a scripted player, the hashes of weights."""
    if name in SCRIPTED:
        return {"version": VERSION}
    kind, _, rest = name.partition(":")
    if kind == "dqn":
        return {"weights": content_hash(ROOT / rest)}
    sources = resolve(str(ROOT / name) if (ROOT / name).is_dir() else name).identity()
    return {key: commit for key, commit in sources.items() if key.endswith("_commit")}


def _entry(result: Result) -> dict[str, Any] | None:
    """The player of players.toml that a run was played by, with these settings."""
    identity = result.config["identity"]
    for player in listed()[1]:
        names = (player["name"], f"folder:{Path(player['name']).name}")
        if result.player in names and all(identity.get(name, value) == value for name, value in settings_of(player).items()):
            return player
    return None


def settings_of(player: Mapping[str, Any]) -> dict[str, Any]:
    """How a listed player acts, as `PlayerSettings` takes it."""
    return {name: value for name, value in player.items() if name not in ("name", "label", "stale")}


def name_of(result: Result, names: Mapping[str, str]) -> str:
    """The unique name of a row, which begins with the player's label if it has one."""
    label = (_entry(result) or {}).get("label", result.player)
    return names[player_key(result)].replace(result.player, label, 1)


def _linked(result: Result, names: Mapping[str, str]) -> str:
    player = result.folder.parents[2].name  # of <player>/<commit>/<task>/<run hash>
    return f"[{name_of(result, names)}](results/{player}.zip)"


def _stale_table(rows: Sequence[Sequence[str]]) -> str:
    """The runs that are not shown as current, and why."""
    table = markdown(["player", "task", "reward", "why"], rows)
    summary = f"<summary>{len(rows)} stored rows that are not current: they are to be made anew</summary>"
    return f"<details>{summary}\n\n{table}\n\n</details>"


def _invitation(results: Sequence[Result]) -> str:
    return f"A row with the settings that most models above have:\n\n```bash\n{eval_command(results, 'runs/mine')}\n```"


def _published() -> str:
    """The figures of others, beside how their games differ from ours."""
    values = tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))
    rows = []
    for figure in values["figure"]:
        game = values["game"][figure["task"]]
        horizon = make_game(figure["task"]).horizon
        same = "as here" if game["horizon"] == horizon else f"here {horizon}"
        differs = [game["map"], game["slip"], f"{game['horizon']}, {same}", game["reward"], figure.get("prompt", game["prompt"])]
        rows.append([figure["task"], figure["player"], f"{figure['reward']:g}", figure["source"], *differs])
    return "### Published by others\n\n" + markdown(
        ["task", "player", "reward", "source", "map", "slip", "horizon", "reward rule", "prompt"], rows
    )
