"""Keeps a run in a private repository while it trains or evaluates, so that another machine can resume it.

The repository holds the state of one run and, for a job, the wheel that it runs. Its history is squashed after each push, so
that old checkpoints do not fill the storage.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub.hf_api import RepoFile

from msgrpo_hub.downloads.client import hub_errors, snapshot
from msgrpo_hub.downloads.fetching import ADAPTER_SETTINGS
from msgrpo_hub.downloads.names import PUBLIC_POCKET, pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.uploading import Files, Pushed, Target, check_repo_id, check_token, owned, upload
from msgrpo_hub.storage.files import files_below, write_atomically
from msgrpo_hub.storage.run_files import LOG, RESULTS
from msgrpo_hub.training.callbacks import Callback, Run, Update
from msgrpo_hub.training.config import TrainConfig, fixed_fields, stored_config
from msgrpo_hub.training.run_folder import RunFolder
from msgrpo_hub.training.summary import read_metrics

MARKER = {"msgrpo-run.json": b'{"format": "msgrpo-run-v1"}\n'}
"""The file that identifies such a repository, and its content."""

CONFIG, METRICS = "config.toml", "metrics.jsonl"
TRAINED = (
    *(CONFIG, "provenance.json", METRICS, "checkpoint.safetensors", "summary.json", "curves.png", "replay.svg"),
    *("replay.mp4", "replay.gif", "test_episodes.parquet", "adapter/", "best/", "rollouts/"),
)
"""The files of a training run; folders end in `/`. `config.toml` makes a folder a run."""

EVALUATED = "results/"
"""The folder of the repository with the tasks of an evaluation."""

log = logging.getLogger(__name__)


def push_state(folder: Path, repo_id: str, names: Collection[str], message: str, *, below: str = "") -> Pushed:
    """Makes a private repository, created if missing, hold these files and folders of a run.

    Args:
        names: files, and folders that end in `/`. If the run's folder lacks one, the push removes it from the repository.
        below: the folder of the repository that gets them; empty for the top.

    Raises:
        UserError: the repository is public or holds something else, another machine continued the run, or as for `upload`.
    """

    def current(head: str, there: Mapping[str, RepoFile]) -> Files:
        if METRICS in names and METRICS in there:
            root = snapshot(repo_id, head, {METRICS: there[METRICS].size})
            held = read_metrics(root / METRICS)[:-1]  # a kill may have undone the last one
            if held != read_metrics(folder / METRICS)[: len(held)]:
                raise UserError(
                    f"{repo_id!r} holds {len(held) + 1} updates of this run, and {str(folder)!r} holds others: resume the run of "
                    "the repository with --resume in a new folder, or name another repository"
                )
        return {**MARKER, **files}

    files: dict[str, Path | bytes] = {}
    for path in (path for name in names for path in ([folder / name] if name[-1] != "/" else sorted((folder / name).rglob("*")))):
        inside = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in inside.parts):
            files[f"{below}{inside.as_posix()}"] = _with_public_base(path) if path.name == ADAPTER_SETTINGS else path
    target = Target(repo_id=repo_id, private=True)
    mine = [f"{below}{name}" for name in names]
    pushed = upload(current, target, message=message, marker=next(iter(MARKER)), replaces=mine)
    if pushed.changed:
        with hub_errors(repo_id):
            target.api.super_squash_history(repo_id, commit_message=message)
    return pushed


def _with_public_base(settings_file: Path) -> bytes:
    """The settings of an adapter, with a name for the built-in base that any installation finds."""
    content = settings_file.read_bytes()
    settings = json.loads(content)
    if settings.get("base_model_name_or_path") != str(pocket_path()):
        return content
    return json.dumps(settings | {"base_model_name_or_path": PUBLIC_POCKET}, indent=1, sort_keys=True).encode() + b"\n"


def fetch_state(repo_id: str, folder: Path, names: Collection[str], *, below: str = "") -> bool:
    """Fetches `names` as `push_state` pushed them, without tasks that have results here, and returns whether it fetched any.

    Each copy is atomic. `config.toml` and results arrive last, so that a kill leaves nothing that counts as a run or a task.
    """
    with hub_errors(repo_id):
        commit, there = Target(repo_id=repo_id).read(may_be_missing=True)
    places = {path: folder / path.removeprefix(below) for path in owned(there, [f"{below}{name}" for name in names])}
    wanted = [path for path, place in places.items() if not place.with_name(RESULTS).exists()]
    wanted.sort(key=lambda path: (path == CONFIG or path.endswith(RESULTS), path))
    root = snapshot(repo_id, commit, {path: there[path].size for path in wanted}) if wanted else folder
    for path in wanted:
        places[path].parent.mkdir(parents=True, exist_ok=True)
        write_atomically(places[path], partial(shutil.copyfile, root / path))
    return bool(wanted)


def check_same_run(config: TrainConfig, repo_id: str) -> None:
    """Checks that a repository holds no run, or the run of this configuration. Raises `UserError` otherwise."""
    with TemporaryDirectory() as folder:
        if not fetch_state(repo_id, Path(folder), (CONFIG,)):
            return
        held = fixed_fields(stored_config(Path(folder) / CONFIG))
    for name, value in fixed_fields(config).items():
        if held[name] != value:
            raise UserError(
                f"{repo_id!r} holds a run with {name} = {held[name]!r}, not {value!r}: expected the same configuration, or the "
                "name of another repository"
            )


class HubCheckpoints(Callback):
    """Keeps a training run in a private repository: at its start, at intervals, and at its end.

    A push that fails between start and end is logged, and the next one tries again.

    Args:
        minutes: between two pushes; 0 pushes after every update.
        fetch: resume the run in the repository if the folder has none.
    """

    def __init__(self, repo_id: str, minutes: float, *, fetch: bool) -> None:
        check_repo_id(repo_id)
        check_token()
        self.repo_id, self.seconds, self.fetch = repo_id, 60 * minutes, fetch
        self.pushed_at = 0.0

    def before_start(self, folder: Path) -> None:
        """Fetches the run unless the folder holds one. Pushes a finished run again, because its last push may have failed."""
        self.folder, own = folder, RunFolder(folder)
        if not self.fetch:
            with TemporaryDirectory() as empty:
                if fetch_state(self.repo_id, Path(empty), (CONFIG,)):
                    raise UserError(f"{self.repo_id!r} already holds a run: resume it with --resume, or name another repository")
        elif not own.config.exists():
            if fetch_state(self.repo_id, folder, TRAINED):
                log.warning("resuming the run of %s: %d updates are done", self.repo_id, own.updates())
        elif own.summary.exists():
            check_same_run(stored_config(own.config), self.repo_id)
            push_state(folder, self.repo_id, TRAINED, f"{own.updates()} updates")

    def on_start(self, run: Run) -> None:
        """Pushes once, so that a repository that cannot be written to ends the run early."""
        check_same_run(run.config, self.repo_id)
        push_state(self.folder, self.repo_id, TRAINED, f"{run.updates} updates")
        self.pushed_at = time.monotonic()

    def on_update(self, update: Update) -> None:
        """Pushes the update before this one, whose files are complete, if it is time."""
        if update.index > 1 and time.monotonic() - self.pushed_at >= self.seconds:
            try:
                push_state(self.folder, self.repo_id, TRAINED, f"{update.index - 1} updates")
            except (UserError, OSError) as error:
                log.warning("update %d is not on the Hub yet: %s", update.index - 1, error)
            self.pushed_at = time.monotonic()

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Pushes the finished run."""
        push_state(self.folder, self.repo_id, TRAINED, f"{summary['config']['updates']} updates")


def push_evaluation(folder: Path, repo_id: str) -> None:
    """Keeps the finished tasks of `msgrpo eval` in a private repository; one with a log beside its results is unfinished."""
    finished = [path.parent for path in files_below(folder, RESULTS) if not path.with_name(LOG).exists()]
    names = [f"{task.relative_to(folder).as_posix()}/" for task in finished]
    push_state(folder, repo_id, names, f"{len(names)} tasks", below=EVALUATED)


def fetch_evaluation(repo_id: str, folder: Path) -> None:
    """Fetches the finished tasks that have no results in a folder."""
    if fetch_state(repo_id, folder, [""], below=EVALUATED):
        log.warning("resuming the evaluation of %s: %d tasks are done", repo_id, len(files_below(folder, RESULTS)))
