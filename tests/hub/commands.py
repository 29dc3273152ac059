"""Functions for the client's process (commands, pushes and loads), and what tests read from their outcome."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from msgrpo_hub.episode import Episode
from msgrpo_hub.hub.uploading import Pushed
from tests.hub_server.client import LOADS_DATASETS, LOADS_MODELS, Client, Finished, put
from tests.hub_server.lanes import Loopback

warm = (*LOADS_MODELS, *LOADS_DATASETS, "msgrpo_hub.hub.rollouts")

LAKE = "FrozenLake-NotSlippery-v1"
TASKS = (LAKE, "FrozenLake-NotSlippery20-v1")
SUITE = 'episodes = {1}\n[tasks]\n"{0}" = "{2}"'
"""A suite of one task, its number of episodes and its hash."""
FLAGS = (
    f"--preset quickstart --game {LAKE} --updates 1 --groups 1 --group-size 8 --selected-per-group 4 "
    "--eval-episodes 1 --test-episodes 2 --threads 1 --temperature 2"
)
"""A run of some seconds, at a temperature at which the replies of a group differ enough to learn from."""
RUN = (
    "--preset quickstart --updates 3 --groups 2 --group-size 8 --selected-per-group 4 --eval-every 0 --test-episodes 0 "
    "--threads 1 --temperature 2 --save-rollouts"
)
EPISODES = 3 * 2 * 8
"""Of RUN."""

Files = dict[str, bytes]
Change = Callable[[Files], object]


def msgrpo(*arguments: object) -> None:
    from msgrpo_hub.cli import main

    main([str(argument) for argument in arguments])


def run_command(line: str, folder: Path) -> None:
    name, *sys.argv[1:] = shlex.split(line)
    os.chdir(folder)
    [script] = entry_points(group="console_scripts", name=name)
    script.load()()


def push_adapter(folder: Path, repo: str, **options: Any) -> Pushed:
    from msgrpo_hub.hub import push_adapter

    return push_adapter(folder, repo, **options)


def push_results(folder: Path, repo: str, **options: Any) -> Pushed:
    from msgrpo_hub.hub.results import push_results

    return push_results(folder, repo, **options)


def push_rollouts(folder: Path, repo: str, **options: Any) -> Pushed:
    from msgrpo_hub.hub import push_rollouts

    return push_rollouts(folder, repo, **options)


def load_rollouts(repo: str, **options: Any) -> list[Episode]:
    from msgrpo_hub.hub import load_rollouts

    return load_rollouts(repo, **options)


def sft_chats(source: str) -> list[Any]:
    from msgrpo_hub.training.sft import read_chats

    return [*read_chats(source)]


def load_table(
    repo: str, *config: str, split: str = "runs", streaming: bool = False
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    from datasets import load_dataset

    table = load_dataset(repo, *config, split=split, streaming=streaming)
    return list(table), {name: str(feature) for name, feature in table.features.items()}


def read_board(repo: str, revision: str | None = None) -> dict[str, Any]:
    from msgrpo_hub.hub.leaderboard import as_json, read_leaderboard

    return as_json(read_leaderboard(repo, revision=revision))


def refused(finished: Finished) -> str:
    """The error line of a refused command, which exits with 2."""
    lines = [line for line in finished.err.splitlines() if line and not line.startswith("pushing to")]
    assert (finished.code, len(lines), lines[-1][:7]) == (2, 1, "error: "), finished.err
    return lines[0]


def play(client: Client, model: str) -> Finished:
    return client.attempt(msgrpo, "play", LAKE, "--player", model, "--seed", "0")


def files_of(folder: Path) -> Files:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_files(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def rows(files: Files, config: str, split: str = "") -> list[dict[str, Any]]:
    names = sorted(name for name in files if name.startswith(f"{config}/{split}"))
    return [row for name in names for row in pq.read_table(io.BytesIO(files[name])).to_pylist()]


def edit(name: str, **changes: Any) -> Change:
    return lambda files: files.update({name: json.dumps(json.loads(files[name]) | changes).encode()})


def put_here(loopback: Loopback, files: Files, *changes: Change) -> str:
    repo, files = loopback.repository(), dict(files)
    for change in changes:
        change(files)
    loopback.owner.call(put, repo, files)
    loopback.world.requests.clear()
    return repo


def downloaded(loopback: Loopback) -> set[str]:
    return {line.split("/resolve/")[1].partition("/")[2] for line in loopback.requests("^GET .*/resolve/")}


def head(loopback: Loopback, repo: str, kind: str = "model") -> str:
    return loopback.stored(repo, kind).head.oid
