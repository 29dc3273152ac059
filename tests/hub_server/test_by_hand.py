"""The server in a process of its own, used as its first lines say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server.client import clean_environment

ROOT = Path(__file__).parents[2]
ASK = "from huggingface_hub import HfApi; print(HfApi().create_repo('lake').repo_id)"


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """What the export lines of a new server say."""
    with subprocess.Popen([sys.executable, "-m", "tests.hub_server"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        lines = [server.stdout.readline() for _ in range(5)]
        exports = " ".join(line for line in lines if line.startswith("export "))
        yield clean_environment() | dict(re.findall(r"(\w+)=(\S+)", exports))
        server.terminate()


def test_the_lines_it_prints_lead_a_client_to_it(environment: dict[str, str]) -> None:
    asked = subprocess.run([sys.executable, "-c", ASK], env=environment, check=True, capture_output=True, text=True)
    assert asked.stdout == "ada/lake\n"
