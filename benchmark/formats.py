"""How well small models follow the prompt formats, untrained: a table of benchmark/README.md.

`python -m benchmark.formats run FOLDER...` plays validation boards with each base in every format at temperature 1, and stores
a row per episode in formats.json. Stored cells are not played again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark import ended
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.statistics import wilson
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.rollout import play_episodes

ROWS = Path(__file__).with_name("formats.json")
EPISODES = {"FrozenLake-NotSlippery-v1": 12, "Snake-Solo-v1": 4}
"""Game → episodes per cell; an episode of Snake has more turns."""


def main(arguments: list[str]) -> None:
    """Runs the command."""
    if arguments[:1] != ["run"] or len(arguments) < 2:
        raise UserError("expected `run FOLDER...`")
    for folder in arguments[1:]:
        run(Path(folder))


def stored() -> dict[str, Any]:
    """The stored models and episodes."""
    found: dict[str, Any] = json.loads(ROWS.read_text(encoding="utf-8"))
    return found


def run(folder: Path) -> None:
    """Plays every cell of a model that is not stored, on the first validation boards, and stores its episodes, one per line."""
    model = LanguageModel.from_pretrained(str(folder))
    for prompt_format in PROMPT_FORMATS.values():
        limit = 12 if prompt_format.name == "action-only" else 128  # room for the tags, or for thoughts
        for game_id, count in EPISODES.items():
            cell: dict[str, Any] = {"model": folder.name, "format": prompt_format.name, "game": game_id}
            found = stored()
            if any(cell.items() <= row.items() for row in found["episodes"]):
                continue
            keys = [(episode_seed(game_id, "validation", index), 0) for index in range(count)]
            limited = replace(model, max_new_tokens=limit)
            for episode in play_episodes(make_game(game_id), limited, keys, prompt_format=prompt_format):
                counts = {
                    "replies": len(episode.steps),
                    "readable": sum(step.action is not None for step in episode.steps),
                    "legal": sum(step.legal for step in episode.steps),
                    "truncated": sum(step.completion.finish == "length" for step in episode.steps),
                }
                found["episodes"].append({**cell, "seed": episode.seed, **counts, "success": episode.success})
            origin = folder / "ORIGIN.json"
            found["models"][folder.name] = json.loads(origin.read_text(encoding="utf-8")) if origin.exists() else {}
            lines = ",\n".join(f"  {json.dumps(row)}" for row in found["episodes"])
            text = f'{{\n "models": {json.dumps(found["models"])},\n "episodes": [\n{lines}\n ]\n}}\n'
            ROWS.write_text(text, encoding="utf-8")


def table() -> str:
    """Shares of readable, legal and truncated replies and of successes by model, game and format, with 95 % intervals."""
    cells: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in stored()["episodes"]:
        cells.setdefault((row["model"], row["game"], row["format"]), []).append(row)
    lines = []
    for (model, game, name), rows in sorted(cells.items()):
        replies, shares = sum(row["replies"] for row in rows), list[str]()
        for what in ("readable", "legal", "truncated", "success"):
            count, of = sum(row[what] for row in rows), len(rows) if what == "success" else replies
            interval = wilson(count, of)
            shares.append(f"{count / of:.2f} [{interval.low:.2f}, {interval.high:.2f}]")
        lines.append([model, game, f"`{name}`", str(replies), *shares])
    return markdown(["model", "game", "format", "replies", "readable", "legal", "truncated", "success"], lines)


if __name__ == "__main__":
    ended(main)
