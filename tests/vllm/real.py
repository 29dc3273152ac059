"""A real vLLM server as a process, started as the guide says; and requests to one that a test watches or spoils."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Self

from benchmark.throughput.with_vllm import PYTHON
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.models.vllm_server import Reply, VllmServer

GUIDE = {
    "--enable-lora": "",
    "--max-lora-rank": "16",
    "--logprobs-mode": "processed_logprobs",
    "--max-model-len": "1024",
}
"""The flags that the guide names."""
MACHINE = {"--dtype": "float32", "--enforce-eager": ""}
"""What a processor without a compiler needs besides."""
UPDATING = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # its imports take a minute otherwise
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class RealServer:
    """Serves the built-in base inside its `with` block. `stop` and `start` make it a new process at the same address."""

    log: Path
    flags: Mapping[str, str] = field(default_factory=lambda: GUIDE)
    updating: Mapping[str, str] = field(default_factory=lambda: UPDATING)
    patience: float = 900.0
    """Seconds in which it must answer; about a minute on an idle machine of two cores."""

    def __enter__(self) -> Self:
        self.port = free_port()
        try:
            self.start()
        except AssertionError:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        flags = [part for flag in {**self.flags, **MACHINE}.items() for part in flag if part]
        program = [os.environ[PYTHON], "-m", "vllm.entrypoints.openai.api_server", "--model", str(pocket_path())]
        with self.log.open("ab") as output:
            self.process: subprocess.Popen[Any] = subprocess.Popen(
                [*program, "--host", "127.0.0.1", "--port", str(self.port), *flags],
                env={**os.environ, **ENVIRONMENT, **self.updating},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + self.patience
        while not self.answers("/health"):
            assert self.process.poll() is None, self.log.read_text()[-5000:]
            assert time.monotonic() < deadline, self.log.read_text()[-5000:]
            time.sleep(0.5)

    def stop(self) -> None:
        """Kills the process and those that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def freeze(self) -> None:
        """It holds its connections and answers nothing, until `thaw`."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def answers(self, path: str) -> str | None:
        """The body of an answer with status 200, else None; a body that is empty is a space."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.read().decode() or " " if response.status == 200 else None
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    def finished(self) -> int:
        """How many requests the server itself says it has finished."""
        lines = [line for line in (self.answers("/metrics") or "").splitlines() if line.startswith("vllm:request_success_total")]
        return round(sum(float(line.rpartition(" ")[2]) for line in lines))

    def adapters(self) -> list[str]:
        """The names of the adapters that the server itself lists."""
        models = VllmServer(url=self.url)._ask("GET", "/v1/models")["data"]
        return [model["id"] for model in models if model["parent"]]


def nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Watched(VllmServer):
    """A server before whose replies something may happen, and whose adapters may be others than it is told to load."""

    before: Callable[[], None] = field(default=nothing, compare=False)
    """Called before each request for a reply."""
    path_of: Callable[[str], str] = field(default=str, compare=False)
    """The folder that the server loads in place of the one that it is told: a disk that is not up to date."""

    def sample(self, *args: Any, **kwargs: Any) -> Reply:
        self.before()
        return super().sample(*args, **kwargs)

    def load(self, name: str, path: str) -> None:
        super().load(name, self.path_of(path))


@dataclass
class Fault:
    """Happens once, in a thread of its own, at one of the requests for a reply that come after `arm`."""

    happen: Callable[[], object]
    left: int = 0
    thread: Thread = field(default_factory=Thread)
    lock: Lock = field(default_factory=Lock)

    def arm(self, requests: int = 10) -> None:
        self.left = requests

    def before(self) -> None:
        with self.lock:
            self.left -= 1
            if self.left == 0:
                self.thread = Thread(target=self.happen, daemon=True)
                self.thread.start()

    @property
    def happened(self) -> bool:
        return self.left <= 0 and self.thread.ident is not None
