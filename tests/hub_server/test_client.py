"""How a test runs something against the Hub: a function, a piece of source, a command."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hub_server.client import ClientError

if TYPE_CHECKING:
    from tests.hub_server.lanes import Loopback

pytestmark = pytest.mark.lowest


def settings() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in ("HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE")}


def fail() -> None:
    raise ValueError("a reason")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def command(*arguments: str) -> None:
    sys.argv = ["hf", *arguments]
    runpy.run_module("huggingface_hub.cli.hf", run_name="__main__")


def cached() -> list[str]:
    return sorted(path.name for path in Path(os.environ["HF_HOME"]).iterdir())


def test_a_function_runs_where_the_hub_is_this_one(loopback: Loopback) -> None:
    expected = {"HF_ENDPOINT": loopback.endpoint, "HF_TOKEN": "hf_test_owner", "HF_HUB_OFFLINE": None}
    assert loopback.owner.call(settings) == expected
    assert loopback.nobody.call(settings) == expected | {"HF_TOKEN": None}
    assert loopback.client(HF_HUB_OFFLINE="1").call(settings) == expected | {"HF_HUB_OFFLINE": "1"}


def test_errors_are_reported(loopback: Loopback) -> None:
    with pytest.raises(ClientError, match="ValueError: a reason"):
        loopback.owner.call(fail)
    assert loopback.owner.attempt(die).code == -signal.SIGKILL
    assert loopback.owner.attempt(sys.exit, 3).code == 3


def test_source_as_in_a_readme_runs(loopback: Loopback) -> None:
    finished = loopback.owner.attempt(exec, "from huggingface_hub import whoami\nprint(whoami()['name'])", {})
    assert (finished.code, finished.out) == (0, "ada\n")


def test_a_command_runs(loopback: Loopback) -> None:
    finished = loopback.owner.attempt(command, "repos", "create", "lake")
    assert finished.code == 0, finished.err
    assert loopback.commits("ada/lake") == ["initial commit"]


def test_a_machine_can_be_new(loopback: Loopback) -> None:
    assert loopback.owner.call(cached) == []
    (loopback.machine.link / "hub").mkdir()
    assert loopback.owner.call(cached) == ["hub"]
    loopback.machine.new_home()
    assert loopback.owner.call(cached) == []
