"""Commands in processes: data on standard output, progress on standard error, equal output from equal commands."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name

import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.cli.hub import KINDS
from msgrpo_hub.games import GAMES, episode_seed
from msgrpo_hub.hub.uploading import Pushed
from tests.command import Command
from tests.files import hashes

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


def test_games_as_json_are_all_games(msgrpo: Command) -> None:
    games = json.loads(msgrpo("games", "--json").out)
    assert {game["id"]: game["horizon"] for game in games} == {game.id: game.horizon for game in GAMES.values()}
    assert all(game["rules"] and game["actions"] and game["instructions"] for game in games)
    listed = msgrpo("games")
    assert [line.split()[0] for line in listed.out.splitlines() if line] == list(GAMES)
    assert "Next: msgrpo play" in listed.err


@pytest.mark.parametrize("player", ["random-safe", "@/run/adapter"])
def test_an_episode_is_the_same_each_time_and_its_json_adds_up(player: str, msgrpo: Command, place: Path) -> None:
    arguments = ["play", SNAKE, "--seed", 3, "--player", player.replace("@", str(place)), "--max-new-tokens", 4]
    first, second = msgrpo(*arguments, "--json"), msgrpo(*arguments, "--json")
    assert first.code == 0, first.err
    assert first.out == second.out
    episode = json.loads(first.out)
    assert episode["seed"] == episode_seed(SNAKE, "test", 3)
    assert episode["reward"] == sum(step["reward"] for step in episode["steps"])
    assert 1 <= len(episode["steps"]) <= GAMES[SNAKE].horizon
    drawn = msgrpo(*arguments)
    assert drawn.out.count("turn ") == len(episode["steps"])
    assert drawn.out.endswith(f"reward {episode['reward']:g}\n")
    assert "Next:" in drawn.err
    assert "Next:" not in drawn.out


def test_a_person_plays_by_first_letters_and_is_asked_again_after_nonsense(msgrpo: Command) -> None:
    by_letter = msgrpo("play", LAKE, "--player", "human", "--json", stdin="jump\n\nl\n" + "U\nleft\n" * 8)
    actions = [step["action"] for step in json.loads(by_letter.out)["steps"]]
    assert actions == ["Left", *["Up", "Left"] * 4][: len(actions)]
    assert len(actions) == GAMES[LAKE].horizon
    assert by_letter.err.count("Left / Down / Right / Up?") == len(actions) + 2
    assert by_letter.err.count("[Rules]") == 1


def test_training_puts_data_on_stdout_and_progress_on_stderr(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    ended = msgrpo("train", *flags, "--json", "--output-dir", tmp_path / "run")
    assert json.loads(ended.out) == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "training: 100%" in ended.err
    assert "training" not in ended.out.replace("seconds_training", "")


def test_a_finished_run_is_shown_again_without_training(msgrpo: Command, finished_run: Path) -> None:
    before = hashes(finished_run)
    again = msgrpo("train", "--resume", "--output-dir", finished_run)
    assert again.code == 0
    assert "training:" not in again.err
    for player in ("random", "base", "adapter", "optimal"):
        assert f"\n{player} " in again.out
    assert f"msgrpo play {LAKE} --player {finished_run}/adapter" in again.err
    assert hashes(finished_run) == before


def test_every_command_is_the_same_as_a_module_and_as_a_script_which_names_its_file_if_no_path_leads_there() -> None:
    commands = [[Path(sys.executable).with_name("msgrpo")], [sys.executable, "-m", "msgrpo_hub"]]
    plays = ["play", LAKE, "--seed", "5"]
    one, two = (subprocess.run(way + plays, env={"PATH": "/nowhere"}, capture_output=True, text=True) for way in commands)
    assert one.returncode == two.returncode == 0
    assert one.stdout == two.stdout != ""
    assert Path(one.stderr.split()[1]).samefile(commands[0][0])  # "Next: .venv/bin/msgrpo play …"


@pytest.mark.parametrize("kind", KINDS)
def test_the_flags_of_every_kind_reach_its_push(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, given = f"msgrpo_hub.{KINDS[kind].module}.push_{kind}", {}

    @wraps(resolve_name(function.replace(".push_", ":push_")))
    def push(*_: object, **named: object) -> Pushed:
        given.update(named)
        return Pushed(repo_id="ada/x", url="", commit="", private=True, changed=())

    monkeypatch.setattr(function, push)
    own = {name: SNAKE if name == "game" else "ada/y" for name in (*KINDS[kind].takes, "collection")}
    flags = [f"--{name}={value}" for name, value in own.items()]
    main(["push", kind, *(["run"] if KINDS[kind].folder else []), "ada/x", "--private", "--create-pr", "--revision=main", *flags])
    own = {"commit_message" if name == "message" else name: value for name, value in own.items()}
    assert given == own | {"private": True, "create_pr": True, "revision": "main"}
