"""A run that another machine can go on with: its folder, kept in a private repository while it trains or evaluates.

The repository holds the state of one run and, for a job, the wheel that it runs. A push is one commit of files that belong
together. The history is squashed after it, so that old checkpoints do not fill the storage.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from msgrpo_hub.downloads.hub_errors import hub_errors
from msgrpo_hub.downloads.listing import ADAPTER_SETTINGS
from msgrpo_hub.downloads.names import PUBLIC_POCKET, pocket_path
from msgrpo_hub.downloads.snapshots import snapshot
from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.uploading import Pushed, Target, check_token, listing, upload
from msgrpo_hub.storage.files import write_json
from msgrpo_hub.storage.run_files import LOG, RESULTS
from msgrpo_hub.training.callbacks import Callback, Run, Update
from msgrpo_hub.training.config import TrainConfig, fixed_fields, stored_config
from msgrpo_hub.training.metrics import read_metrics
from msgrpo_hub.training.run_folder import RunFolder

MARKER, FORMAT = "msgrpo-run.json", "msgrpo-run-v1"
"""The file that marks such a repository, and what it names."""

WHEELS = "wheels"
"""Its folder of wheels; see `jobs`."""

CONFIG = "config.toml"
"""The file that makes a folder a run. It is the last to arrive."""

METRICS = "metrics.jsonl"
"""The file with a line per update."""

TRAINED = (
    CONFIG,
    "provenance.json",
    METRICS,
    "checkpoint.safetensors",
    "summary.json",
    "curves.png",
    "replay.svg",
    "test_episodes.parquet",
    "adapter/",
    "best/",
    "rollouts/",
)
"""The files of a training, and its folders, which end in `/`."""

EVALUATED = "results/"
"""The folder of the repository with the runs of an evaluation."""

log = logging.getLogger(__name__)


def push_state(
    folder: Path, repo_id: str, names: tuple[str, ...], message: str, *, below: str = "", token: str | None = None
) -> Pushed:
    """Makes a private repository hold the state of a run.

    Args:
        folder: of the run.
        repo_id: `USER/NAME`; created if missing. One that exists must be private.
        names: files of the folder, and folders that end in `/`; those that are missing in the folder go from the repository.
        message: title of the commit.
        below: the folder of the repository that gets them.
        token: None uses the token of `hf auth login` or HF_TOKEN.

    Raises:
        UserError: the repository is public or holds something else, a file must not leave this machine, or the Hub refuses.
    """
    target = Target(repo_id=repo_id, private=True, token=token)
    with TemporaryDirectory() as staged:
        write_marker(Path(staged))
        for name in names:
            _copy(folder, name, Path(staged) / below)
        owned = [f"{below}{name}" for name in names]
        pushed = upload(Path(staged), target, message=message, marker=MARKER, replaces=owned)
    if pushed.changed:
        with hub_errors(repo_id):
            target.api.super_squash_history(repo_id, commit_message=message)
    return pushed


def write_marker(folder: Path) -> None:
    """Writes the file that marks the repository of a run."""
    (folder / MARKER).write_text(json.dumps({"format": FORMAT}) + "\n", encoding="utf-8")


def _copy(folder: Path, name: str, into: Path) -> None:
    """Copies a file, or what a folder holds, except for hidden files: a push sends what belongs together."""
    for source in sorted((folder / name).rglob("*")) if name.endswith("/") else [folder / name]:
        inside = source.relative_to(folder)
        if source.is_file() and not any(part.startswith(".") for part in inside.parts):
            (into / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, into / inside)
            if source.name == ADAPTER_SETTINGS:
                _name_base(into / inside)


def _name_base(settings_file: Path) -> None:
    """Names the built-in base as any installation finds it, and not by its folder on this machine."""
    settings = json.loads(settings_file.read_text(encoding="utf-8"))
    if settings["base_model_name_or_path"] == str(pocket_path()):
        write_json(settings_file, settings | {"base_model_name_or_path": PUBLIC_POCKET})


def fetch_state(
    repo_id: str, folder: Path, names: tuple[str, ...], *, below: str = "", end: str = "", token: str | None = None
) -> bool:
    """Puts the run of a repository into a folder. Arguments as for `push_state`.

    With the name of a file as `end`, what comes are the folders that have such a file there and not here.

    A kill leaves nothing that counts as a run, because `config.toml` is moved into place last.

    Returns:
        Whether anything came: false also if the repository is missing.
    """
    commit, there = _files_there(Target(repo_id=repo_id, token=token))
    if not commit:  # before the first push
        return False
    paths = [f"{below}{name}" for name in names]
    wanted = {
        path: file.size
        for path, file in there.items()
        if _among(path, paths) and (not end or _lacks(folder / path.removeprefix(below), end, ended=path, there=there))
    }
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".fetched-") as beside:
        if wanted:
            snapshot(repo_id, commit, wanted, token=token, into=beside)
        for path in sorted(wanted, key=lambda path: (path == CONFIG, path)):
            place = folder / path.removeprefix(below)
            place.parent.mkdir(parents=True, exist_ok=True)
            (Path(beside) / path).replace(place)
    return bool(wanted)


def _files_there(target: Target) -> tuple[str, dict[str, RepoFile]]:
    """The head of a repository and its files; empty if it is missing."""
    with hub_errors(target.repo_id):
        try:
            commit = str(target.api.model_info(target.repo_id).sha)
        except RepositoryNotFoundError:
            return "", {}
        return commit, listing(target, commit)


def _lacks(place: Path, end: str, *, ended: str, there: Mapping[str, object]) -> bool:
    """Whether a file belongs to a folder that has ended in the repository and not in `place`, or lacks episodes only here."""
    if PurePosixPath(ended).with_name(end).as_posix() not in there:
        return False
    whole_there = PurePosixPath(ended).with_name(LOG).as_posix() not in there
    return not place.with_name(end).is_file() or (whole_there and not _is_whole(place.parent))


def _is_whole(folder: Path) -> bool:
    """Whether a task that has ended lacks no episode. After a server has failed it does, and its log waits for the rest."""
    return not (folder / LOG).exists()


def _among(path: str, names: list[str]) -> bool:
    """Whether a path is one of these files, or in one of these folders, which end in `/`."""
    return any(path == name or (name.endswith("/") and path.startswith(name)) for name in names)


def fetch_config(repo_id: str, folder: Path, token: str | None = None) -> Path:
    """Fetches the configuration of the run in a repository into a folder; the file is missing if the repository holds no run."""
    fetch_state(repo_id, folder, (CONFIG,), token=token)
    return folder / CONFIG


def check_same_run(config: TrainConfig, repo_id: str, token: str | None = None) -> None:
    """Checks that a repository can keep a run: it is missing, holds no run, or holds this one. Raises `UserError` otherwise."""
    with TemporaryDirectory() as folder:
        if fetch_config(repo_id, Path(folder), token).exists():
            try:
                RunFolder(Path(folder)).check(fixed_fields(config), resume=True)
            except UserError as error:
                held = str(error).partition(": ")[0].replace(repr(folder), repr(repo_id))
                raise UserError(f"{held}: expected the same configuration, or the name of another repository") from error


class HubCheckpoints(Callback):
    """Keeps a training in a private repository: at its start, from time to time, and at its end.

    A push that fails between start and end is logged, and the next one tries again.

    Args:
        repo_id: `USER/NAME` of the repository.
        minutes: between two pushes; 0 pushes after every update.
        fetch: whether a folder without a run gets that of the repository.
    """

    def __init__(self, repo_id: str, minutes: float, *, fetch: bool) -> None:
        check_token(Target(repo_id=repo_id, private=True))
        self.repo_id, self.seconds, self.fetch = repo_id, 60 * minutes, fetch
        self.pushed_at = 0.0

    def before_start(self, folder: Path) -> None:
        """Fetches the run, unless the folder already holds one; of a finished one, pushes what an earlier push may not have."""
        self.folder, own = folder, RunFolder(folder)
        if self.fetch and not own.config.exists():
            if fetch_state(self.repo_id, folder, TRAINED):
                log.warning("resuming the run of %s: %d updates are done", self.repo_id, own.updates())
        elif self.fetch and own.summary.exists():
            check_same_run(stored_config(own.config), self.repo_id)
            self._push(own.updates())

    def on_start(self, run: Run) -> None:
        """Pushes once, so that a repository that cannot be written to ends the run now."""
        check_same_run(run.config, self.repo_id)
        self._push(run.updates)

    def _check_not_ahead(self, updates: int) -> None:
        """Raises `UserError` if a push would replace what the repository has of this run by fewer updates."""
        with TemporaryDirectory() as folder:
            fetch_state(self.repo_id, Path(folder), (METRICS,))
            there = len(read_metrics(RunFolder(Path(folder)).metrics))
        if there > updates + 1:  # the line of an update may be there before its checkpoint
            raise UserError(
                f"{self.repo_id!r} holds {there} updates of this run and {str(self.folder)!r} {updates}: expected --resume in a "
                "new folder, which goes on from there, or the name of another repository"
            )

    def on_update(self, update: Update) -> None:
        """Pushes the update before this one, whose files are complete, if it is time."""
        if update.index > 1 and time.monotonic() - self.pushed_at >= self.seconds:
            try:
                self._push(update.index - 1)
            except (UserError, OSError) as error:
                log.warning("update %d is not on the Hub yet: %s", update.index - 1, error)
                self.pushed_at = time.monotonic()

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Pushes the finished run."""
        self._push(int(summary["config"]["updates"]))

    def _push(self, updates: int) -> None:
        self._check_not_ahead(updates)
        push_state(self.folder, self.repo_id, TRAINED, f"{updates} updates")
        self.pushed_at = time.monotonic()


def push_evaluation(folder: Path, repo_id: str) -> None:
    """Keeps the tasks that have ended so far in the folder of `msgrpo eval` in a private repository.

    One that lacks episodes, because a server failed, does not replace one that is whole there.
    """
    tasks = _tasks(folder)
    if lacking := {name for name in tasks if not _is_whole(folder / name)}:
        there = _files_there(Target(repo_id=repo_id))[1]
        whole_there = {
            name for name in lacking if f"{EVALUATED}{name}{RESULTS}" in there and f"{EVALUATED}{name}{LOG}" not in there
        }
        tasks = tuple(name for name in tasks if name not in whole_there)
    push_state(folder, repo_id, tasks, f"{len(tasks)} tasks", below=EVALUATED)


def _tasks(folder: Path) -> tuple[str, ...]:
    """The folders of tasks that have ended: one per player, version, task and settings. A push leaves alone those of others."""
    found = {path.parent.relative_to(folder) for path in folder.rglob(RESULTS)} - {Path()}
    return tuple(f"{path.as_posix()}/" for path in sorted(found) if not any(part.startswith(".") for part in path.parts))


def fetch_evaluation(repo_id: str, folder: Path) -> None:
    """Puts the runs of a repository into the folder of an evaluation, but for the finished ones that it already holds."""
    if fetch_state(repo_id, folder, ("",), below=EVALUATED, end=RESULTS):
        log.warning("going on with the evaluation of %s: %d tasks are done", repo_id, sum(1 for _ in folder.rglob(RESULTS)))
