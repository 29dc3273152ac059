"""Makes the adapters, replays and first results of `bundle/`, which the Space shows without a network.

bundle/README.md has the command; it runs in a clone. The leaderboard of the bundle is written by `python -m benchmark report`."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import players
import replay
import rules
from compare import OPENING, compare

from msgrpo_hub.games import make_game
from msgrpo_hub.players import can_play

GAMES = {
    "FrozenLake-NotSlippery-v1": ("pocket", "lake-adapter"),
    "FrozenLake-Slippery-v1": ("pocket", "lake-adapter"),
    "Snake-Solo-v1": ("pocket", "snake-adapter"),
    "Snake-Standard-v1": ("pocket", "snake-adapter"),
}
EPISODES = 10
"""Bundled episodes of each player on each game."""

KEPT = ("adapter_config.json", "adapter_model.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path, required=True, help="folder of the run `msgrpo train --preset quickstart`")
    parser.add_argument("--snake", type=Path, required=True, help="folder of the run `msgrpo train --preset quickstart-snake`")
    options = parser.parse_args()
    runs = {"lake-adapter": options.lake, "snake-adapter": options.snake}
    for name, run in runs.items():
        copy_adapter(run / "adapter", players.BUNDLED[name])
    write(players.BUNDLE / "training.json", {name: training(run) for name, run in runs.items()}, indent=1)
    write(players.BUNDLE / "replays.json", replays())
    write_results()


def write_results() -> None:
    """What the Compare and the Rules tab open with."""
    write(players.BUNDLE / "compare.json", list(compare(*OPENING))[-1])
    write(players.BUNDLE / "rules.json", list(rules.change_rules(**rules.asked_first()))[-1])


def training(run: Path) -> dict[str, Any]:
    """How long a run trained, and on what: seconds of acting and training, and threads."""
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return {"seconds": summary["seconds_acting"] + summary["seconds_training"], "threads": summary["threads"]}


def copy_adapter(source: Path, target: Path) -> None:
    """Copies weights and settings. The settings name the base by its place in the package, not by a path on this machine."""
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        shutil.copyfile(source / name, target / name)
    settings = json.loads((target / KEPT[0]).read_text(encoding="utf-8"))
    write(target / KEPT[0], settings | {"base_model_name_or_path": "msgrpo_hub/pocket/model"}, indent=1)


def replays() -> dict[str, Any]:
    """The replies of every episode: game → player → number of the episode → replies."""
    numbers = range(EPISODES)
    found: dict[str, Any] = {}
    for game_id, names in GAMES.items():
        game = make_game(game_id)
        seeds = [replay.seed_of(game, number) for number in numbers]
        for name in (name for name in names if can_play(name, game)):
            episodes = players.play(name, game, seeds)
            found.setdefault(game_id, {})[name] = {
                str(number): [
                    step.completion.text
                    if step.completion.finish == "stop"
                    else {"text": step.completion.text, "finish": step.completion.finish}
                    for step in episode.steps
                ]
                for number, episode in zip(numbers, episodes, strict=True)
            }
    return found


def write(path: Path, value: Any, indent: int | None = None) -> None:
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
