"""Another package adds a game and a player: the README's example, installed as a distribution and used as a user does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.players import make_player
from msgrpo_hub.games import all_games, make_game

README = (Path(__file__).parents[2] / "README.md").read_text()
SECTION = README.partition("\n## Add a game or a player\n")[2].partition("\n## ")[0]


def fenced(language: str) -> dict[str, str]:
    """The code blocks of the section in a language, by the file name in their first line."""
    return dict(re.findall(rf"```{language}\n# (\S+)\n(.*?)```", SECTION, re.DOTALL))


def distribution(folder: Path, entry_points: str, **modules: str) -> Path:
    """A folder with an installed distribution, as pip leaves it."""
    info = folder / "lamp-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lamp\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def as_ini(pyproject: str) -> str:
    """The entry points of a pyproject.toml in the form that pip writes."""
    groups = tomllib.loads(pyproject)["project"]["entry-points"]
    return "\n".join(f"[{group}]\n" + "\n".join(f"{n} = {o}" for n, o in points.items()) for group, points in groups.items())


Msgrpo = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Place:
    """A folder to work in, and the command there."""

    folder: Path
    installed: Path

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(self.installed), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-m", "msgrpo_hub", *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("lamp")
    code, files = fenced("py"), fenced("toml")
    modules = {name.removesuffix(".py"): text for name, text in code.items()}
    distribution(folder / "site", as_ini(files["pyproject.toml"]), **modules)
    (folder / "work").mkdir()
    (folder / "work" / "lamps.toml").write_text(files["lamps.toml"])
    return Place(folder / "work", folder / "site")


def test_the_example_is_a_game_and_a_player_in_25_lines_each() -> None:
    code = fenced("py")
    assert list(code) == ["lamp.py", "moth.py"]
    for text in code.values():
        assert len([line for line in text.splitlines() if line.strip()]) <= 25


def test_the_commands_of_the_example_do_what_they_say(place: Place) -> None:
    [block] = re.findall(r"```bash\n(.*?)```", SECTION, re.DOTALL)
    commands = block.splitlines()
    assert [command.split()[1] for command in commands] == ["play", "eval", "verify"]
    play, evaluation, verification = (place(*command.split()[1:]) for command in commands)
    assert (play.returncode, play.stderr.count("Traceback")) == (0, 0), play.stderr
    assert "Lamp-v1: success after" in play.stdout
    assert evaluation.returncode == 0, evaluation.stderr
    assert re.search(r"^moth +1\.000 \[1\.000, 1\.000\] +1\.000 \[0\.929, 1\.000\]", evaluation.stdout, re.MULTILINE)
    assert re.search(r"^random +0\.\d+", evaluation.stdout, re.MULTILINE)
    assert (verification.returncode, verification.stdout.count("ok ")) == (0, 2), verification.stderr


def test_results_of_another_package_s_player_name_its_package_and_version(place: Place) -> None:
    ended = place("eval", "moth", "--suite", "lamps.toml", "--json")
    [row] = json.loads(ended.stdout)
    assert row["identity"] == {"kind": "entry point", "player": "moth", "package": "lamp", "version": "1.2"}
    assert "/moth/v1.2/Lamp-v1/" in f"/{row['folder']}/"
    assert (row["normalised"], row["luck_adjusted"], list(row["references"])) == (None, None, ["random"])


def test_a_player_that_knows_only_our_games_says_so_in_one_line(place: Place) -> None:
    for arguments in (("eval", "random", "optimal", "--suite", "lamps.toml"), ("play", "Lamp-v1", "--player", "greedy")):
        ended = place(*arguments)
        assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
        [line] = ended.stderr.splitlines()
        assert re.match("error: .*('optimal' can play no task of the suite 'lamps'|'greedy' does not know Lamp-v1)", line)


@pytest.mark.slow
def test_a_language_model_plays_another_package_s_game(place: Place) -> None:
    ended = place("play", "Lamp-v1", "--player", "pocket", "--max-new-tokens", "8", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["game"] == "Lamp-v1"


def test_a_player_of_another_package_plays_our_games_too(place: Place) -> None:
    """Here it knows only its own, and fails in its own words: a traceback of its code is the package's, not ours."""
    ended = place("play", "FrozenLake-NotSlippery-v1", "--player", "moth")
    assert ended.returncode == 1
    assert "moth.py" in ended.stderr


def test_the_game_is_listed_suggested_and_drawn(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [line.split()[0] for line in place("games").stdout.splitlines() if line]
    assert listed[-1] == "Lamp-v1"
    monkeypatch.syspath_prepend(place.installed)
    assert list(all_games()) == listed
    for ask, words in (
        (lambda: make_game("Lamp-v2"), r"unknown game 'Lamp-v2': did you mean 'Lamp-v1'\?"),
        (lambda: make_game("Lamp-v1:compass"), "Lamp-v1 has no variants: expected 'Lamp-v1' alone"),
        (lambda: make_player("mothh"), r"unknown player 'mothh': did you mean 'moth'\?"),
    ):
        with pytest.raises(UserError, match=words):
            ask()
    drawn = place("play", "Lamp-v1", "--player", "random", "--seed", "1").stdout
    assert drawn.startswith("┌─────────┐\n│ ")
    assert "L" in drawn


def test_a_changed_rule_needs_a_new_id(place: Place, tmp_path: Path) -> None:
    code, files = fenced("py"), fenced("toml")
    for old, new in (("float(found)", "2.0 * found"), ("It is dark.", "It is very dark."), ("turn == 7", "turn == 6")):
        assert code["lamp.py"].count(old) == 1
        changed = {"lamp": code["lamp.py"].replace(old, new), "moth": code["moth.py"]}
        other = Place(place.folder, distribution(tmp_path / new, as_ini(files["pyproject.toml"]), **changed))
        ended = other("eval", "random", "--suite", "lamps.toml", "--output-dir", tmp_path / "out")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert re.match(r"error: Lamp-v1 has hash \w+, suite 'lamps.toml' froze \w+: a changed game needs a new", ended.stderr)


def test_a_package_cannot_take_the_id_of_a_game_of_ours_or_give_its_game_two_names(place: Place, tmp_path: Path) -> None:
    lamp = fenced("py")["lamp.py"] + "game = Lamp()\n"
    points = "[msgrpo_hub.games]\nLamp-v9 = lamp:game\nFrozenLake-NotSlippery-v1 = lamp:game\n"
    points += "[msgrpo_hub.players]\ngreedy = lamp:game\n"
    other = Place(tmp_path, distribution(tmp_path / "site", points, lamp=lamp))
    ended = other("play", "Lamp-v9")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: the game of the entry point 'Lamp-v9' has the id 'Lamp-v1': expected the same\n"
    ours, plain = (where("play", "FrozenLake-NotSlippery-v1", "--player", "greedy").stdout for where in (other, place))
    assert ours == plain != ""
