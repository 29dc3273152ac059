"""The cases, and a run of two updates for each. Every test in this folder gets the marker `real`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import Command
from tests.hub_server.lanes import loopback, loopback_server
from tests.real.cases import CASES, NEW_TOKENS, Case, greedy
from tests.real.short import LAKE, by_first_token

__all__ = ["loopback", "loopback_server"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session", params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    chosen: Case = request.param
    chosen.folder  # noqa: B018 - fetches it, or skips
    return chosen


@pytest.fixture(scope="session")
def usable(case: Case) -> Case:
    """The case, unless transformers itself gives NaN."""
    if not all(reply.finite for reply in greedy(case.model, case.dtype)):
        pytest.skip("transformers itself gives NaN")
    return case


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    command = Command(tmp_path_factory.mktemp("commands"), modules=["tests.real.short"], seconds=3600)
    yield command
    command.server.kill()
    command.server.communicate()


@pytest.fixture(scope="session")
def training(usable: Case) -> list[object]:
    """Arguments of a training of two updates. A model in float16 is trained in bfloat16, since training in float16 is refused."""
    flags = (
        f"--game {LAKE.id} --updates 2 --groups 1 --group-size 4 --selected-per-group 2 --max-new-tokens {NEW_TOKENS} "
        f"--credit {by_first_token.__module__}:{by_first_token.__name__} --lora-rank 4 --learning-rate 1e-3 --token-budget 512 "
        "--eval-every 0 --test-episodes 0 --threads 1 --save-rollouts"
    )
    dtype = "bfloat16" if usable.dtype == "float16" else usable.dtype
    model = ["--model", usable.folder, "--dtype", dtype, "--engine", usable.engine, *usable.template]
    return ["train", *model, *flags.split()]


@pytest.fixture(scope="session")
def run(command: Command, training: list[object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two updates. Do not change it."""
    folder = tmp_path_factory.mktemp("run") / "run"
    done = command(*training, "--output-dir", folder)
    assert done.code == 0, done.err
    return folder
