"""The Hub on loopback as tests see it: clients, and the insides of the server."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn

from tests.hub_server.app import World, make_app
from tests.hub_server.client import Client, Process, clean_environment
from tests.hub_server.faults import Fault
from tests.hub_server.store import OWNER, READER, STRANGER, Hub, Repository

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
    """Where clients run: a home for token and cache that is new for each test, and a process for each set of settings."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.link = folder, folder / "home"
        self.environment = {**clean_environment(), **QUIET, "HF_HOME": str(self.link), **environment}
        self.processes: dict[tuple[tuple[str, str], ...], Process] = {}
        self.homes = itertools.count()
        self.new_home()

    def new_home(self) -> Path:
        """Nobody has logged in, nothing is cached. Clients read the name once, so the name stays and leads elsewhere."""
        home = self.folder / f"home-{next(self.homes)}"
        home.mkdir()
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(home)
        return home

    def process(self, **settings: str) -> Process:
        key = tuple(sorted(settings.items()))
        if key not in self.processes:
            folder = self.folder / f"process-{len(self.processes)}"
            self.processes[key] = Process({**self.environment, **settings}, folder)
        return self.processes[key]

    def stop(self) -> None:
        for process in self.processes.values():
            process.stop()


class Server:
    """The Hub in a thread of this process, on a free port of loopback."""

    def __init__(self) -> None:
        self.world = World()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(make_app(lambda: self.world), log_level="critical", lifespan="off", timeout_keep_alive=60)
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.uvicorn.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        while not self.uvicorn.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self.uvicorn.should_exit = self.uvicorn.force_exit = True
        self.thread.join()


def guarded(folder: Path, endpoint: str) -> dict[str, str]:
    """Settings under which no request leaves the machine; see `guard.py`."""
    (folder / "site").mkdir()
    shutil.copy(Path(__file__).with_name("guard.py"), folder / "site" / "sitecustomize.py")
    proxies = {f"{scheme}_PROXY": endpoint for scheme in ("HTTP", "HTTPS", "ALL")}
    path = os.pathsep.join(filter(None, (str(folder / "site"), os.environ.get("PYTHONPATH", ""))))
    return {**proxies, "NO_PROXY": "127.0.0.1,localhost", "PYTHONPATH": path, "MSGRPO_HUB_GUARD_LOG": str(folder / "strays")}


class Loopback:
    """A Hub of its own, which a test can look into and make fail. Repositories are named by (id, kind)."""

    user = "ada"

    def __init__(self, folder: Path) -> None:
        self.server = Server()
        self.endpoint = self.server.endpoint
        self.log = folder / "strays"
        self.names = itertools.count(1)
        self.machine = Machine(folder, {"HF_ENDPOINT": self.endpoint, **guarded(folder, self.endpoint)})
        self.owner, self.nobody = self.client(), self.client(None)
        self.reader, self.stranger = self.client(READER), self.client(STRANGER)

    def client(self, token: str | None = OWNER, **settings: str) -> Client:
        """Somebody with a token, at a machine with other settings, such as HF_HUB_OFFLINE="1"."""
        read_at_import = {name: value for name, value in settings.items() if name.startswith("HF_")}
        others = {name: value for name, value in settings.items() if name not in read_at_import}
        return Client(self.machine.process(**read_at_import), token, others)

    def reset(self) -> None:
        """An empty Hub, an empty home."""
        self.server.world = World()
        self.machine.new_home()
        self.names = itertools.count(1)

    @property
    def hub(self) -> Hub:
        return self.server.world.hub

    def repository(self, kind: str = "model") -> str:
        return f"{self.user}/{kind}-{next(self.names)}"

    def stored(self, repo: str, kind: str = "model") -> Repository:
        """The repository itself."""
        return self.hub.repositories[kind, repo]

    def files(self, repo: str, kind: str = "model", revision: str = "main") -> dict[str, bytes]:
        files = self.stored(repo, kind).find(revision).files
        return {path: blob.content for path, blob in files.items() if path != ".gitattributes"}

    def commits(self, repo: str, kind: str = "model", revision: str = "main") -> list[str]:
        return [commit.title for commit in self.stored(repo, kind).find(revision).history()]

    def refs(self, repo: str, kind: str = "model") -> dict[str, str]:
        return {name: commit.oid for name, commit in self.stored(repo, kind).refs.items()}

    def fail(self, fault: str, **changes: Any) -> Fault:
        """Makes requests fail; see `faults.py`."""
        return self.server.world.faults.add(fault, **changes)

    def requests(self, pattern: str = "") -> list[str]:
        """The requests so far, as `METHOD /path?query`, in which a pattern is found."""
        return [seen.line for seen in self.server.world.seen if re.search(pattern, seen.line)]

    def forget_requests(self) -> None:
        self.server.world.seen.clear()

    def strays(self) -> list[str]:
        """What wanted to leave the machine since this was last asked."""
        found = self.server.world.strays + (self.log.read_text().splitlines() if self.log.exists() else [])
        self.server.world.strays.clear()
        self.log.unlink(missing_ok=True)
        return found

    def stop(self) -> None:
        self.machine.stop()
        self.server.stop()


Lane = Loopback
