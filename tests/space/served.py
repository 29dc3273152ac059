"""The Space in a separate process, started by `python app.py` on this machine without a network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

APP = Path(__file__).parents[2] / "space_app" / "app.py"


@dataclass(frozen=True)
class Served:
    url: str
    log: Path
    pid: int


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[Served]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, log = f"http://127.0.0.1:{port}/", folder / "space.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, str(APP)],
            env=environment(folder) | {"GRADIO_SERVER_PORT": str(port)} | settings,
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            for _ in range(1_800):  # three minutes
                assert process.poll() is None, log.read_text()
                try:
                    urllib.request.urlopen(url, timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield Served(url=url, log=log, pid=process.pid)
        finally:
            process.terminate()
            process.wait(20)


def environment(folder: Path) -> Mapping[str, str]:
    """The environment of a machine without a token and without the Hub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "GRADIO_", "HUGGING"))}
    home = {"HF_HOME": str(folder / "hf"), "GRADIO_TEMP_DIR": str(folder / "gradio")}
    return kept | home | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
