"""`python -m benchmark.built_in NAME RUN`: makes the adapter of a finished run a built-in one, known by its name.

Adds its game, command and test reward to `msgrpo_hub/pocket/adapters/README.md`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from benchmark import ended
from msgrpo_hub.downloads.inspection import PLAY_SETTINGS
from msgrpo_hub.downloads.names import PUBLIC_POCKET, adapters_path, content_hash
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.storage.files import write_json
from msgrpo_hub.training.run_folder import RunFolder
from msgrpo_hub.training.summary import read_summary

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

PAGE = """# Built-in adapters

LoRA adapters of the built-in base, trained by the commands below, each in a folder of its name. Every command knows them by their
names: `msgrpo play {game} --player {name}`, `msgrpo eval {name}`. Means are over the test episodes, sampled at temperature 1.

{table}

Made by `python -m benchmark.built_in NAME RUN` from the folder of a finished run. Everything is under the licence of the project,
Apache-2.0.
"""


def install(name: str, run: Path, adapters: Path, command: str) -> None:
    """Copies the adapter of a finished run, without any path of this machine. Raises `UserError` if the run has not finished."""
    folder, target = RunFolder(run), adapters / name
    if not folder.summary.exists():
        raise UserError(f"{str(run)!r} holds no finished run: expected the --output-dir of `msgrpo train`")
    summary = read_summary(folder.summary)
    target.mkdir(parents=True, exist_ok=True)
    for file in (WEIGHTS, PLAY_SETTINGS):
        shutil.copyfile(folder.adapter / file, target / file)
    settings = json.loads((folder.adapter / SETTINGS).read_text(encoding="utf-8"))
    write_json(target / SETTINGS, settings | {"base_model_name_or_path": PUBLIC_POCKET, "revision": None})
    adapter, base = summary["adapter"], summary["base"]
    reached = {"base": base["reward"], "adapter": adapter["reward"], "interval": adapter["reward_interval"]}
    training = {"seconds_training": round(summary["seconds_acting"] + summary["seconds_training"])}
    write_json(adapters / f"{name}.json", {"command": command, "game": summary["game"], **reached, **training})
    (adapters / "README.md").write_text(page(adapters), encoding="utf-8")


def page(adapters: Path) -> str:
    """The README of the built-in adapters."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(adapters.glob("*.json"))}
    rows = []
    for name, about in found.items():
        low, high = about["interval"]
        rewards = [f"{about['base']:.3f}", f"{about['adapter']:.3f} [{low:.3f}, {high:.3f}]"]
        rows.append([f"`{name}`", about["game"], *rewards, f"`{about['command']}`", f"`{content_hash(adapters / name)[:16]}…`"])
    table = markdown(["name", "game", "base", "adapter [95 %]", "command", "hash"], rows)
    name, about = next(iter(found.items()))
    return PAGE.format(game=about["game"], name=name, table=table)


def main(arguments: list[str]) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.built_in", description=__doc__)
    parser.add_argument("name", help="its name as a player")
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("--command", required=True, help="the command that trained it, as a user would type it")
    given = parser.parse_args(arguments)
    install(given.name, given.run, adapters_path(), given.command)


if __name__ == "__main__":
    ended(main)
