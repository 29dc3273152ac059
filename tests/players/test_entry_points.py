"""Another package adds a game and a player: the example of the guide, installed as a distribution and used as a user does."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.suites import hash_of
from msgrpo_hub.games import GAMES, make_game, registry
from msgrpo_hub.players import registry as players
from msgrpo_hub.players.registry import make_player
from tests.cli.suites import Run
from tests.cli.suites import run as run

SECTION = (Path(__file__).parents[2] / "docs" / "guide" / "own-game.md").read_text()
FIRM = "FrozenLake-NotSlippery-v1"


def fenced(language: str) -> dict[str, str]:
    """The code blocks of the guide in a language, by the file name in their first line."""
    return dict(re.findall(rf"```{language}\n# (\S+)\n(.*?)```", SECTION, re.DOTALL))


CODE, FILES = fenced("py"), fenced("toml")


def as_ini(pyproject: str) -> str:
    """The entry points of a pyproject.toml in the form that pip writes."""
    groups = tomllib.loads(pyproject)["project"]["entry-points"]
    return "\n".join(f"[{group}]\n" + "\n".join(f"{n} = {o}" for n, o in points.items()) for group, points in groups.items())


def distribution(folder: Path, entry_points: str = "", **changes: str) -> Path:
    """A folder with the example installed in it as pip does it, after some changes of its modules."""
    info = folder / "lamp-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lamp\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points or as_ini(FILES["pyproject.toml"]))
    for name, text in CODE.items():
        (folder / name).write_text(changes.get(name.removesuffix(".py"), text))
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return distribution(tmp_path_factory.mktemp("lamp") / "site")


Install = Callable[[Path], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution on the path of this process, until the test ends."""

    def put(site: Path) -> None:
        monkeypatch.syspath_prepend(site)
        forget()

    def forget() -> None:
        for names in (registry.OWN, registry.TYPED, players.OWN):
            names.clear()
        hash_of.cache_clear()
        for name in ("lamp", "moth"):
            sys.modules.pop(name, None)

    yield put
    forget()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with the example's suite."""
    (tmp_path / "lamps.toml").write_text(FILES["lamps.toml"])
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_the_example_installs_in_a_fresh_environment_and_its_commands_do_what_they_say(tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh")
    python, [packages] = tmp_path / "fresh" / "bin" / "python", (tmp_path / "fresh").glob("lib/*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "ours.pth").write_text(f"import site; list(map(site.addsitedir, {ours}))\n")
    (tmp_path / "package").mkdir()
    for name, text in (CODE | FILES).items():
        (tmp_path / "package" / name).write_text(text)
    pip = [python, "-m", "pip", "install", "--no-index", "--no-build-isolation", tmp_path / "package"]
    subprocess.run(pip, check=True, capture_output=True)
    ended = {}
    _, block, *_ = re.findall(r"```bash\n(.*?)```", SECTION, re.DOTALL)
    for command in block.splitlines():
        program, name, *rest = command.split()
        assert program == "msgrpo"
        line = [python, "-m", "msgrpo_hub", name, *rest]
        ended[name] = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended[name].returncode == 0, ended[name].stderr
    assert "Lamp-v1: success after" in ended["play"].stdout
    assert re.search(r"^moth +1 +1\.000 \[0\.929, 1\.000\].*\nrandom +2 +0\.\d+", ended["eval"].stdout, re.MULTILINE)
    assert ended["verify"].stdout.count("ok ") == 2


def test_games_and_players_are_modules_and_objects_on_the_command_line_and_nowhere_else(
    install: Install, run: Run, tmp_path: Path
) -> None:
    for name, text in CODE.items():
        (tmp_path / name).write_text(text)
    install(tmp_path / "elsewhere")
    for player in ("moth:fly", "moth:moth"):
        done = run("play", "lamp:Lamp", "--player", player)
        assert "Lamp-v1: success after" in done.out
        assert "Next: msgrpo play lamp:Lamp --player human" in done.err
    registry.OWN.clear()
    with pytest.raises(UserError, match=r"unknown game 'Lamp-v1': .*add your own with --import module:object"):
        make_game("Lamp-v1")
    for stored in (make_game, make_player):
        with pytest.raises(UserError):
            stored("moth:other")
    done = run("eval", "moth:moth", "random", "--suite", "lamps.toml", "--import", "lamp:Lamp", "--json")
    assert done.err.endswith("\n      msgrpo verify runs/eval --import lamp:Lamp\n")
    code = hashlib.sha256(CODE["moth.py"].encode()).hexdigest()[:16]
    expected = {"kind": "entry point", "player": "moth:moth", "package": "moth", "version": code, "batch_size": 50}
    assert json.loads(done.out)[0]["identity"] == expected
    assert run("verify", "runs/eval").code == 0


def test_results_name_the_package_of_the_player_and_its_version(installed: Path, install: Install, run: Run) -> None:
    install(installed)
    done = run("eval", "moth", "--suite", "lamps.toml", "--json")
    assert done.code == 0, done.err
    [row] = json.loads(done.out)
    named = {"kind": "entry point", "player": "moth", "package": "lamp", "version": "1.2"}
    assert row["identity"] == named | {"batch_size": 50}  # it may compute its replies together
    assert "/moth/v1.2/Lamp-v1/" in f"/{row['folder']}/"
    assert (row["normalised"], row["luck_adjusted"], list(row["references"])) == (None, None, ["random", "silent"])
    assert run("report", row["folder"]).code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("eval random optimal --suite lamps.toml", "'optimal' can play no task of the suite 'lamps'"),
        ("play Lamp-v1 --player greedy", "the player 'greedy' does not know Lamp-v1: use 'random-safe' instead"),
        ("play Lamp-v1 --player planner", "the planner plays only Snake, not Lamp-v1: use the player 'random-safe'"),
        ("play Lamp-v1 --player optimal", "Lamp-v1 has no exact optimum"),
        ("play Lamp-v2", "unknown game 'Lamp-v2': did you mean 'Lamp-v1'?"),
        ("play Lamp-v1:compass", "Lamp-v1 has no variants: expected 'Lamp-v1' alone"),
        ("eval mothh --suite lamps.toml", "unknown player 'mothh': did you mean 'moth'?"),
        ("play nosuch:Lamp", "cannot import the game 'nosuch:Lamp' (No module named 'nosuch'): expected module:object"),
        ("play moth:moth", "'moth:moth' is of type function: expected a msgrpo_hub.games.Game"),
        ("play Lamp-v1 --player lamp:MOVES", "the player 'lamp:MOVES' is no policy: expected `complete(prompts, rngs)`"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(
    arguments: str, words: str, installed: Path, install: Install, run: Run
) -> None:
    install(installed)
    done = run(*arguments.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {words}")
    assert done.err.count("\n") == 1


def test_the_game_is_listed_after_ours_and_its_suite_is_printed_and_played_as_it_stands(
    installed: Path, install: Install, run: Run, tmp_path: Path
) -> None:
    install(installed)
    assert [line.split()[0] for line in run("games").out.splitlines() if line] == [*GAMES, "Lamp-v1"]
    done = run("games", "Lamp-v1", "--suite")
    assert done.code == 0, done.err
    assert tomllib.loads(done.out) == tomllib.loads(FILES["lamps.toml"])
    (tmp_path / "mine.toml").write_text(done.out)
    assert run("eval", "moth", "--suite", "mine.toml").code == 0
    shown = run("games", "Lamp-v1").out
    assert tomllib.loads(done.out)["tasks"]["Lamp-v1"] in shown
    assert "The lamp gives 1." in shown
    assert run("games", "--suite").code == 2


def test_gymnasium_makes_a_game_of_another_package_by_its_id(installed: Path) -> None:
    code = "import msgrpo_hub.games.environment, sys, gymnasium; assert 'lamp' not in sys.modules; "
    code += "env = gymnasium.make('msgrpo_hub/Lamp-v1', observation='tensor'); print(env.reset(seed=1)[0].shape)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout == "(3, 4, 4)\n", ended.stderr


@pytest.mark.parametrize(
    ("old", "new"), [("float(found)", "2.0 * found"), ("It is dark.", "It is night."), ("turn == 7", "turn == 6")]
)
def test_a_changed_rule_needs_a_new_id(old: str, new: str, install: Install, run: Run, tmp_path: Path) -> None:
    assert CODE["lamp.py"].count(old) == 1
    install(distribution(tmp_path / "site", lamp=CODE["lamp.py"].replace(old, new)))
    done = run("eval", "random", "--suite", "lamps.toml")
    assert (done.code, done.out) == (2, "")
    assert re.match(
        r"error: Lamp-v1 has hash \w+, but the suite 'lamps.toml' expects \w+: give a changed game a new version", done.err
    )


def test_a_package_that_cannot_be_imported_is_named_in_one_line(install: Install, run: Run, tmp_path: Path) -> None:
    install(distribution(tmp_path / "site", lamp="import absent_dependency\n"))
    done = run("games")
    assert done.code == 2
    assert done.err == (
        "error: cannot import the game 'Lamp-v1' (lamp:Lamp: No module named 'absent_dependency'): "
        "repair or uninstall its package\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("class Lamp(Game)", "class Lamp", "is of type Lamp: expected a msgrpo_hub.games.Game"),
        ("safe_actions = legal_actions", "", "has no safe_actions: see msgrpo_hub.games.Game"),
    ],
)
def test_a_game_that_lacks_something_is_told_what(old: str, new: str, said: str, install: Install, tmp_path: Path) -> None:
    install(distribution(tmp_path / "site", lamp=CODE["lamp.py"].replace(old, new)))
    with pytest.raises(UserError, match=said):
        make_game("Lamp-v1")


def test_a_package_cannot_take_a_name_of_ours_or_give_its_game_two(install: Install, tmp_path: Path) -> None:
    points = f"[msgrpo_hub.games]\nLamp-v9 = lamp:Lamp\n{FIRM} = lamp:Lamp\n[msgrpo_hub.players]\ngreedy = moth:moth\n"
    ours, greedy = make_game(FIRM), make_player("greedy")
    install(distribution(tmp_path / "site", points))
    with pytest.raises(UserError, match=r"the game of the entry point 'Lamp-v9' has the id 'Lamp-v1': expected equal names"):
        make_game("Lamp-v9")
    assert make_game(FIRM) is ours
    assert make_player("greedy") == greedy
