"""The results in benchmark/README.md: current rows, out-of-date rows, and figures that others published."""

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
from msgrpo_hub.players.registry import SCRIPTED, VERSION

HERE = Path(__file__).parent
ROOT = HERE.parent
BEGIN, END = "<!-- table: python -m benchmark report -->", "<!-- end of table -->"


def listed() -> tuple[str, list[dict[str, Any]]]:
    """The suite and the players of players.toml, each with its fields of `PlayerSettings` as `settings`."""
    values = tomllib.loads((HERE / "players.toml").read_text(encoding="utf-8"))
    for player in values["player"]:
        player["settings"] = {name: value for name, value in player.items() if name not in ("name", "label")}
    return values["suite"], values["player"]


def with_table(text: str, results: Sequence[Result]) -> str:
    """The README with tables of these results."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    names, shown = player_names(results), current(results)

    def linked(result: Result) -> str:
        player = result.folder.parents[2].name  # of <player>/<commit>/<task>/<run hash>
        return f"[{name_of(result, names)}](results/{player}.zip)"

    parts = [*(markdown_table(group, linked) for group in same_episodes(shown)), f"{RANKS}."]
    command = eval_command(shown, "runs/mine")
    parts.append(f"A row with the settings that most models above have:\n\n```bash\n{command}\n```")
    if stale := [[linked(r), r.task, with_interval(r.summary["reward"]), why] for r in results if (why := why_stale(r))]:
        summary = f"<summary>{len(stale)} stored rows are out of date</summary>"
        table = markdown(["player", "task", "reward", "why"], stale)
        parts.append(f"<details>{summary}\n\n{table}\n\n</details>")
    return "\n\n".join([before + BEGIN, *parts, _published(), END + after])


def current(results: Sequence[Result]) -> list[Result]:
    """The complete runs of listed players that have not changed since."""
    return [result for result in results if result.complete and not why_stale(result)]


def why_stale(result: Result) -> str:
    """Why a stored run is out of date; empty if it is current."""
    player = _entry(result)
    if player is None:
        return "not listed"
    changed = [name for name, value in in_the_tree(player["name"]).items() if result.config["identity"].get(name) != value]
    return f"not the player in the tree ({', '.join(changed)})" if changed else ""


def in_the_tree(name: str) -> dict[str, Any]:
    """The part of a player's identity that the tree determines: the version of a scripted player, the hashes of weights."""
    if name in SCRIPTED:
        return {"version": VERSION}
    kind, _, rest = name.partition(":")
    if kind == "dqn":
        return {"weights": content_hash(ROOT / rest)}
    sources = resolve(str(ROOT / name) if (ROOT / name).is_dir() else name).identity()
    return {key: commit for key, commit in sources.items() if key.endswith("_commit")}


def _entry(result: Result) -> dict[str, Any] | None:
    """The entry of players.toml for a run's player and settings."""
    identity = result.config["identity"]
    for player in listed()[1]:
        names = (player["name"], f"folder:{Path(player['name']).name}")
        if result.player in names and all(identity.get(name, value) == value for name, value in player["settings"].items()):
            return player
    return None


def name_of(result: Result, names: Mapping[str, str]) -> str:
    """The unique name of a row, with the player's label if it has one."""
    label = (_entry(result) or {}).get("label", result.player)
    return names[player_key(result)].replace(result.player, label, 1)


def _published() -> str:
    """The figures of others, with the differences between their games and ours."""
    values = tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))
    rows = []
    for figure in values["figure"]:
        game = values["game"][figure["task"]]
        horizon = make_game(figure["task"]).horizon
        same = "as here" if game["horizon"] == horizon else f"here {horizon}"
        differs = [game["map"], game["slip"], f"{game['horizon']}, {same}", game["reward"], figure.get("prompt", game["prompt"])]
        rows.append([figure["task"], figure["player"], f"{figure['reward']:g}", figure["source"], *differs])
    head = ["task", "player", "reward", "source", "map", "slip", "horizon", "reward rule", "prompt"]
    return f"### Published by others\n\n{markdown(head, rows)}"
