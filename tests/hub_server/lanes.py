"""The Hub on loopback for tests: its users, its content, and the fixture `loopback`."""

from __future__ import annotations

import itertools
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.hub_server.app import COMMIT, Fault, World, make_app
from tests.hub_server.client import Client, Process, clean_environment
from tests.hub_server.store import OWNER, READER, STRANGER, Blob, Hub, Repository

QUIET = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # `datasets` counts at another host
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class Machine:
    """The machine of the clients: a home for cache and token, new for each test, and a process per set of settings."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.link = folder, folder / "home"
        self.environment = {**clean_environment(), **QUIET, "HF_HOME": str(self.link), **environment}
        self.processes: dict[tuple[tuple[str, str], ...], Process] = {}
        self.homes = itertools.count()
        self.new_home()

    def new_home(self) -> None:
        """Without login and cache. Clients read the path once, so it is a link to the new home."""
        home = self.folder / f"home-{next(self.homes)}"
        home.mkdir()
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(home)

    def process(self, **settings: str) -> Process:
        key = tuple(sorted(settings.items()))
        folder = self.folder / f"process-{len(self.processes)}"
        return self.processes.setdefault(key, Process({**self.environment, **settings}, folder))


class Loopback:
    """A Hub in a thread of this process, on a free port, which a test can inspect and make fail."""

    def __init__(self, folder: Path) -> None:
        self.world, self.names = World(), itertools.count(1)
        listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(make_app(lambda: self.world), log_level="critical", lifespan="off", timeout_keep_alive=60)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        # HTTP clients send requests for other machines here, and the Hub refuses them.
        proxies = {f"{scheme}_PROXY": self.endpoint for scheme in ("HTTP", "HTTPS", "ALL")} | {"NO_PROXY": "127.0.0.1,localhost"}
        self.machine = Machine(folder, {"HF_ENDPOINT": self.endpoint, **proxies})
        self.owner, self.nobody = self.client(), self.client(None)
        self.reader, self.stranger = self.client(READER), self.client(STRANGER)

    def client(self, token: str | None = OWNER, **settings: str) -> Client:
        """A user with other settings, such as HF_HUB_OFFLINE="1"."""
        read_at_import = {name: value for name, value in settings.items() if name.startswith("HF_")}
        others = {name: value for name, value in settings.items() if name not in read_at_import}
        return Client(self.machine.process(**read_at_import), token, others)

    def reset(self) -> None:
        """Empties Hub and home."""
        self.world, self.names = World(), itertools.count(1)
        self.machine.new_home()

    @property
    def hub(self) -> Hub:
        return self.world.hub

    def repository(self, kind: str = "model") -> str:
        """A new name."""
        return f"ada/{kind}-{next(self.names)}"

    def stored(self, repo: str, kind: str = "model") -> Repository:
        return self.hub.repositories[kind, repo]

    def files(self, repo: str, kind: str = "model", revision: str = "main") -> dict[str, bytes]:
        files = self.stored(repo, kind).find(revision).files
        return {path: blob.content for path, blob in files.items() if path != ".gitattributes"}

    def commits(self, repo: str, kind: str = "model") -> list[str]:
        """Titles on main, newest first."""
        return [commit.title for commit in self.stored(repo, kind).head.history()]

    def refs(self, repo: str, kind: str = "model") -> dict[str, str]:
        return {name: commit.oid for name, commit in self.stored(repo, kind).refs.items()}

    def fail(self, where: str, **how: Any) -> None:
        """Makes requests fail; see `Fault`."""
        self.world.faults.append(Fault(where=where, **how))

    def overtake(self, repo: str, files: Mapping[str, bytes], kind: str = "model", times: int = 1) -> None:
        """Lets a commit of another user arrive on main just before the next commits."""
        number = itertools.count()

        def commit() -> None:
            blobs = {name: Blob(content=content) for name, content in {**files, f"note-{next(number)}": b"first"}.items()}
            self.stored(repo, kind).put("refs/heads/main", blobs, "Another's commit", "bob")

        self.fail(COMMIT, status=0, before=commit, times=times)

    def requests(self, pattern: str = "") -> list[str]:
        """The requests so far, as `METHOD /path?query`, that match a pattern."""
        return [line for line in self.world.requests if re.search(pattern, line)]

    def stop(self) -> None:
        for process in self.machine.processes.values():
            process.stop()
        self.server.should_exit = self.server.force_exit = True
        self.thread.join()


@pytest.fixture(scope="session")
def loopback_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    server = Loopback(tmp_path_factory.mktemp("loopback"))
    yield server
    server.stop()


@pytest.fixture
def loopback(loopback_server: Loopback) -> Iterator[Loopback]:
    """An empty Hub. The test fails if a request left the machine, or if the server crashed."""
    loopback_server.reset()
    yield loopback_server
    world = loopback_server.world
    assert not world.strays, world.strays
    assert not world.crashes, "\n".join(world.crashes)
