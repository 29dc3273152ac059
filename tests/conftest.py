"""Fixtures of several rooms: a browser, a tiny model, the `msgrpo` command, and a run of it that takes a second."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.browser import chromium, open_page
from tests.command import Command
from tests.files import once

__all__ = ["chromium", "open_page"]

OPTIONAL = {
    *("axe_playwright_python", "datasets", "evaluate", "fastapi", "gguf", "gradio", "jsonschema", "mcp", "openai", "playwright"),
    *("scipy", "stable_baselines3", "starlette", "tensorboard", "trl", "uvicorn"),
}
"""Packages of tests that `make dev` does not install. Tests that need them skip."""

MISSING = sorted(name for name in OPTIONAL if not find_spec(name))
SERVED = ("hub", "hub_server", "real", "space") if {"uvicorn", "fastapi", "gradio"} & {*MISSING} else ()
"""Folders whose fixtures need a server or gradio."""


def pytest_report_header() -> list[str]:
    left_out = f", and {', '.join(SERVED)} are left out" if SERVED else ""
    return [f"tests that need {', '.join(MISSING)} skip{left_out} (`make test` installs them)"] * bool(MISSING)


def pytest_configure(config: pytest.Config) -> None:
    config.option.doctest_ignore_import_errors |= bool(MISSING)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.name in SERVED and collection_path.parent.name == "tests" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of a Hub or a Space is slow: most of them use other processes, or load models."""
    for item in items:
        if item.path.parent in (Path(__file__).parent / "hub", Path(__file__).parent / "space"):
            item.add_marker(pytest.mark.slow)


class CoreModule(pytest.Module):
    """A file of tests; skipped if it imports an optional package that is not installed."""

    def _getobj(self) -> object:
        try:
            return super()._getobj()
        except self.CollectError as error:
            _skip_without_package(error.__cause__, allow_module_level=True)
            raise


def _skip_without_package(error: BaseException | None, *, allow_module_level: bool = False) -> None:
    package = str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in OPTIONAL:
        pytest.skip(f"needs the package {package}: `make test` installs it", allow_module_level=allow_module_level)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return CoreModule.from_parent(parent, path=module_path)  # type: ignore[no-any-return]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    try:
        return (yield)
    except ModuleNotFoundError as error:
        _skip_without_package(error)
        raise


# no time limits on a machine under load, and the same examples in every run of CI
settings.register_profile("msgrpo", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("msgrpo")


@pytest.fixture(autouse=True)
def _loggers_as_in_a_fresh_process() -> None:
    """A library that an earlier test loaded may have silenced them."""
    logging.disable(logging.NOTSET)
    logging.getLogger().setLevel(logging.WARNING)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("msgrpo_hub") and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def msgrpo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    command = Command(tmp_path_factory.mktemp("commands"))
    yield command
    command.server.kill()
    command.server.communicate()  # closes its pipes


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model that learns. Copy it before a change."""
    from tests.tiny import save_trainable_model  # imports torch

    return once(tmp_path_factory, "tiny-model", save_trainable_model)


@pytest.fixture(scope="session")
def flags(tiny_model: Path) -> list[str]:
    """Flags of a run that takes a second: six updates, three evaluations."""
    small = (
        "--updates 6 --groups 2 --group-size 6 --selected-per-group 3 --max-new-tokens 4 --lora-rank 4 --learning-rate 1e-2 "
        "--token-budget 512 --eval-every 2 --eval-episodes 4 --test-episodes 4"
    )
    return ["--model", str(tiny_model), *small.split()]


@pytest.fixture(scope="session")
def finished_run(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with these flags. Copy it before a change."""

    def train(folder: Path) -> None:
        assert msgrpo("train", *flags, "--output-dir", folder).code == 0

    return once(tmp_path_factory, "finished-run", train)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"this user may not mount a file system: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)
