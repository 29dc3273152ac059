"""How well small models follow the prompt formats, untrained: the table of docs/guide/prompt-formats.md.

`python -m benchmark.formats run FOLDER...`: plays validation boards with each model in every format, and stores a row per episode
in formats.json. Cells that are stored are not played again.
A model is the folder of a base. Everything is sampled at temperature 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.command import ended
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, PromptFormat
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.statistics import wilson
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.rollout import play_episodes

ROWS = Path(__file__).with_name("formats.json")
EPISODES = {"FrozenLake-NotSlippery-v1": 12, "Snake-Solo-v1": 4}
"""Game → episodes of a cell; one of Snake has more turns."""


def token_limit(name: str) -> int:
    """Tokens of a reply: what the tags need, or room for thoughts."""
    return 12 if name == "action-only" else 128


def main(arguments: list[str]) -> None:
    """Runs the command."""
    match arguments:
        case ["run", _, *_]:
            for folder in arguments[1:]:
                run(Path(folder))
        case _:
            raise UserError("expected `run FOLDER...`")


def stored() -> dict[str, Any]:
    """The stored models and episodes."""
    found: dict[str, Any] = json.loads(ROWS.read_text(encoding="utf-8"))
    return found


def run(folder: Path) -> None:
    """Plays every cell of a model that is not stored."""
    model, done = LanguageModel.from_pretrained(str(folder)), stored()["episodes"]
    for prompt_format in PROMPT_FORMATS.values():
        limited = replace(model, max_new_tokens=token_limit(prompt_format.name))
        for game_id, count in EPISODES.items():
            cell: dict[str, Any] = {"model": folder.name, "format": prompt_format.name, "game": game_id}
            if not any(cell.items() <= row.items() for row in done):
                store(folder, [{**cell, **row} for row in episodes(limited, prompt_format, game_id, count)])


def episodes(model: LanguageModel, prompt_format: PromptFormat, game_id: str, count: int) -> Iterable[dict[str, Any]]:
    """The counts of each episode on the first validation boards."""
    seeds = [episode_seed(game_id, "validation", index) for index in range(count)]
    for episode in play_episodes(make_game(game_id), model, [(seed, 0) for seed in seeds], prompt_format=prompt_format):
        counts = {
            "replies": len(episode.steps),
            "readable": sum(step.action is not None for step in episode.steps),
            "legal": sum(step.legal for step in episode.steps),
            "truncated": sum(step.completion.finish == "length" for step in episode.steps),
        }
        yield {"seed": episode.seed, **counts, "success": episode.success}


def store(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds rows to the file, one a line, and the origin of the model."""
    found = stored()
    origin = folder / "ORIGIN.json"
    found["models"][folder.name] = json.loads(origin.read_text(encoding="utf-8")) if origin.exists() else {}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in [*found["episodes"], *rows])
    text = f'{{\n "models": {json.dumps(found["models"])},\n "episodes": [\n{lines}\n ]\n}}\n'
    ROWS.write_text(text, encoding="utf-8")


def table() -> str:
    """Readable and legal replies and successes by model, game and format."""
    cells: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in stored()["episodes"]:
        cells.setdefault((row["model"], row["game"], row["format"]), []).append(row)
    lines = []
    for (model, game, name), rows in sorted(cells.items()):
        replies = sum(row["replies"] for row in rows)
        shares = [share(sum(row[what] for row in rows), replies) for what in ("readable", "legal", "truncated")]
        lines.append([model, game, f"`{name}`", str(replies), *shares, share(sum(row["success"] for row in rows), len(rows))])
    return markdown(["model", "game", "format", "replies", "readable", "legal", "truncated", "success"], lines)


def share(count: int, of: int) -> str:
    """A share with its 95 % interval."""
    interval = wilson(count, of)
    return f"{count / of:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


if __name__ == "__main__":
    ended(main)
