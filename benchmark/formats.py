"""How well small models follow the prompt formats, untrained: the tables of docs/guide/prompt-formats.md.

`python -m benchmark.formats run FOLDER...`: plays validation boards with each model in every format, and stores a row per episode
in formats.json. Cells that are stored are not played again.
`python -m benchmark.formats try FOLDER FORMAT REQUEST...`: replies to other requests on the first turn of validation boards, and
stores their counts as candidates. In a request, `{action}` is as in `TaggedFormat.request`, and `\\n` is a new line.

A model is the folder of a base. Everything is sampled at temperature 1.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.command import ended
from msgrpo_hub.agent import build_prompt
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, PromptFormat
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.statistics import wilson
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.rollout import play_episodes

ROWS = Path(__file__).with_name("formats.json")
EPISODES = {"FrozenLake-NotSlippery-v1": 12, "Snake-Solo-v1": 4}
"""Game → episodes of a cell; one of Snake has more turns."""
BOARDS, REPLIES = 4, 24
"""Boards of a candidate, and its replies over all of them."""


def token_limit(name: str) -> int:
    """Tokens of a reply: what the tags need, or room for thoughts."""
    return 12 if name == "action-only" else 128


def main(arguments: list[str]) -> None:
    """Runs the command."""
    match arguments:
        case ["run", _, *_]:
            for folder in arguments[1:]:
                run(Path(folder))
        case ["try", folder, name, _, *_] if name in PROMPT_FORMATS:
            attempt(Path(folder), name, [request.replace("\\n", "\n") for request in arguments[3:]])
        case _:
            raise UserError(
                "expected `run FOLDER...` or `try FOLDER FORMAT REQUEST...`, FORMAT one of " + ", ".join(PROMPT_FORMATS)
            )


def stored() -> dict[str, Any]:
    """What has been measured: models, episodes, and candidates."""
    found: dict[str, Any] = json.loads(ROWS.read_text(encoding="utf-8"))
    return found


def run(folder: Path) -> None:
    """Plays every cell of a model that is not stored."""
    model = LanguageModel.from_pretrained(str(folder))
    for prompt_format in PROMPT_FORMATS.values():
        limited = replace(model, max_new_tokens=token_limit(prompt_format.name))
        for game_id, count in EPISODES.items():
            cell: dict[str, Any] = {"model": folder.name, "format": prompt_format.name, "game": game_id}
            if not any(cell.items() <= row.items() for row in stored()["episodes"]):
                store("episodes", folder, [{**cell, **row} for row in episodes(limited, prompt_format, game_id, count)])


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


def attempt(folder: Path, name: str, requests: Sequence[str]) -> None:
    """Measures and stores candidates: the readable and the legal replies on the first turn."""
    model = LanguageModel.from_pretrained(str(folder), max_new_tokens=token_limit(name))
    for request, game_id in itertools.product(requests, EPISODES):
        chosen: Any = replace(PROMPT_FORMATS[name], request=request)  # type: ignore[type-var]
        game = make_game(game_id)
        states = [game.initial_state(stream(episode_seed(game_id, "validation", i), "initial_state")) for i in range(BOARDS)]
        states = [state for state in states for _ in range(REPLIES // BOARDS)]
        prompts = [build_prompt(game, state, chosen) for state in states]
        replies = model.complete(prompts, [stream(i, "sampling") for i in range(REPLIES)])
        read = [chosen.parse(reply.text, game.actions) for reply in replies]
        legal = [action in game.legal_actions(state) for action, state in zip(read, states, strict=True)]
        counts = {"replies": REPLIES, "readable": REPLIES - read.count(None), "legal": sum(legal)}
        store("candidates", folder, [{"model": folder.name, "format": name, "game": game_id, "request": request, **counts}])
        print(game_id, counts, flush=True)


def store(part: str, folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds rows to a part of the file, one a line, and where the model is from."""
    found = stored()
    origin = folder / "ORIGIN.json"
    found["models"][folder.name] = json.loads(origin.read_text(encoding="utf-8")) if origin.exists() else {}
    found[part] += rows
    lists = (
        f' "{name}": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in found[name]) + "\n ]"
        for name in ("episodes", "candidates")
    )
    ROWS.write_text("{\n" + f' "models": {json.dumps(found["models"])},\n' + ",\n".join(lists) + "\n}\n", encoding="utf-8")


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


def candidates() -> str:
    """Readable and legal replies by request."""
    rows = stored()["candidates"]
    lines = [
        [f"`{row['format']}`", "<br>".join(f"`{line}`" for line in row["request"].split("\n")), row["model"], row["game"]]
        + [share(row[what], row["replies"]) for what in ("readable", "legal")]
        for row in rows
    ]
    return markdown(["format", "request", "model", "game", "readable", "legal"], lines)


def share(count: int, of: int) -> str:
    """A share with its 95 % interval."""
    return f"{count / of:.2f} [{', '.join(f'{end:.2f}' for end in (wilson(count, of).low, wilson(count, of).high))}]"


if __name__ == "__main__":
    ended(main)
