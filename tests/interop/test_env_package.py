"""`msgrpo push env`: the files of an environment package. `test_openenv_served.py` runs its server."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from msgrpo_hub.hub.uploading import check_files, files_in
from msgrpo_hub.interop.openenv_package import FILES, REQUIREMENTS, ROOMS, stage_env
from tests.cli.suites import Run
from tests.test_imports import PACKAGE, SOURCES, edges

GAME = "Snake-Standard-v1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    stage_env("you/snake", folder, game=GAME)
    return folder


def test_the_package_has_what_its_server_imports_and_no_other_file_of_ours(folder: Path) -> None:
    needed, found = {"msgrpo_hub.interop.openenv_server"}, set()
    while needed - found:
        module = (needed - found).pop()
        found.add(module)
        parents = {module.rpartition(".")[0]} - {""}
        needed |= edges(module) | {parent for parent in parents if parent in SOURCES}
    copied = {path.relative_to(folder / "msgrpo_hub").as_posix() for path in (folder / "msgrpo_hub").rglob("*") if path.is_file()}
    assert {SOURCES[module].relative_to(PACKAGE).as_posix() for module in found} <= copied
    assert {name for name in copied if name.split("/")[0] not in ROOMS} == set(FILES)


def test_the_rules_run_without_the_rest_of_this_package(folder: Path) -> None:
    program = (
        "import sys, msgrpo_hub; from msgrpo_hub.agent import THINK_ACTION; from msgrpo_hub.games import make_game; "
        "from msgrpo_hub.interop.episodes import start_play; start_play(make_game(sys.argv[1]), THINK_ACTION); "
        "print(msgrpo_hub.__file__, 'torch' in sys.modules)"
    )
    seen = subprocess.run([sys.executable, "-c", program, GAME], cwd=folder, capture_output=True, text=True, check=False)
    assert seen.stdout.split() == [str(folder / "msgrpo_hub" / "__init__.py"), "False"], seen.stderr


def test_the_manifest_and_the_card_say_which_game_it_is_and_pass_the_checks_of_a_push(folder: Path) -> None:
    manifest = yaml.safe_load((folder / "openenv.yaml").read_text())
    assert (manifest["name"], manifest["type"], manifest["app"]) == ("snake_standard_v1", "space", "server.app:app")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    own = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == list(REQUIREMENTS)
    assert set(REQUIREMENTS) <= {*own["dependencies"], *own["optional-dependencies"]["openenv"]}
    card = (folder / "README.md").read_text()
    front = yaml.safe_load(card.split("---\n")[1])
    assert (front["sdk"], front["app_port"], manifest["port"]) == ("docker", 8000, 8000)
    assert "https://you-snake.hf.space" in card
    assert "-2.0 to" in card
    assert {"Dockerfile", "README.md", "openenv.yaml", "pyproject.toml", "server/app.py"} <= files_in(folder).keys()
    check_files(files_in(folder))


def test_a_dry_run_lists_the_files_and_a_push_without_a_game_says_so(run: Run, tmp_path: Path) -> None:
    done = run("push", "env", "you/snake", "--game", GAME, "--dry-run", str(tmp_path / "out"))
    assert done.code == 0, done.err
    assert "server/app.py" in done.out
    assert (tmp_path / "out" / "openenv.yaml").is_file()
    for arguments, words in (
        (("env", "you/snake"), "required: --game"),
        (("env", "you/snake", "--game", "Snake-Standart-v1", "--dry-run", str(tmp_path / "new")), "did you mean"),
        (("env", "snake", "--game", GAME, "--dry-run", str(tmp_path / "new")), "expected USER/NAME"),
        (("base", "you/snake", "--game", GAME), "unknown flag '--game'"),
    ):
        ended = run("push", *arguments)
        assert (ended.code, len(ended.err.splitlines())) == (2, 1)
        assert words in ended.err
