"""Commands that need no model start in a fraction of a second and load no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msgrpo_hub.cli import COMMANDS, main
from tests.test_imports import HEAVY

LIMIT = 0.7
"""Seconds of processor time for `msgrpo games`."""

NUMPY = 0.25
"""Seconds of processor time that `import numpy` may take before a machine counts as slower than the limit was set for."""

LIGHT = {
    "help": "--help",
    "version": "--version",
    "games": "games",
    "games as JSON": "games --json",
    "play": "play FrozenLake-Slippery-v1:compass --player optimal",
    "play Snake": "play Snake-Standard-v1 --player greedy --json",
    "eval": "eval random --suite @/lake.toml --output-dir @/again",
    "compare": "compare @/runs/random @/runs/greedy",
    "verify": "verify @/runs",
    "report": "report @/runs",
    **{f"help of {command}": f"{command} --help" for command in COMMANDS if command not in ("train", "jobs")},
}
"""Commands that need no model. @ is the folder of `results`."""


def processor_seconds(*program: str) -> float:
    """The minimum of three runs, because other programs only add time."""

    def once() -> float:
        nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
        pid = os.posix_spawn(sys.executable, [sys.executable, *program], os.environ, file_actions=nowhere)
        _, status, used = os.wait4(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, program
        return used.ru_utime + used.ru_stime

    return min(once() for _ in range(3))


def test_msgrpo_games_takes_less_than_0_7_seconds_of_processor_time() -> None:
    slower = max(1.0, processor_seconds("-c", "import numpy") / NUMPY)
    assert processor_seconds("-m", "msgrpo_hub", "games") < LIMIT * slower


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from msgrpo_hub.evaluation.suites import hash_of

    folder, game = tmp_path_factory.mktemp("results"), "FrozenLake-NotSlippery-v1"
    (folder / "lake.toml").write_text(f'episodes = 4\n[tasks]\n"{game}" = "{hash_of(game)}"\n')
    main(["eval", "random", "greedy", "--suite", str(folder / "lake.toml"), "--output-dir", str(folder / "runs")])
    return folder


@pytest.mark.parametrize("arguments", LIGHT.values(), ids=LIGHT)
def test_a_command_that_needs_no_model_loads_no_torch(arguments: str, results: Path) -> None:
    program = f"""
import sys
from msgrpo_hub.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
loaded = {HEAVY!r} & set(sys.modules)
assert not loaded, loaded
"""
    command = [sys.executable, "-c", program, *arguments.replace("@", str(results)).split()]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("arguments", ["games", "play Snake-Solo-v1 --player greedy"])
def test_playing_loads_no_library_that_it_does_not_use(arguments: str) -> None:
    unused = {"gymnasium", "pyarrow", "jinja2", "huggingface_hub", "matplotlib", "tqdm", "tomli_w"}
    program = f"import sys; from msgrpo_hub.cli import main; main(sys.argv[1:]); assert not {unused!r} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program, *arguments.split()], check=True, capture_output=True)
