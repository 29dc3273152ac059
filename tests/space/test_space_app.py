"""The Space as a whole: its pins, its bundle, its texts, and how it starts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import names
import opening
import players
import pytest
import replay
import yaml

from msgrpo_hub.downloads.names import adapters_path
from msgrpo_hub.games import GAMES, VARIANTS
from tests.command import Command
from tests.space.served import environment

ROOT = Path(__file__).parents[2]
SPACE = ROOT / "space_app"


def test_its_requirements_are_the_versions_that_are_tested() -> None:
    def pins(path: Path) -> dict[str, str]:
        lines = path.read_text().lower().replace("_", "-").splitlines()
        return dict(line.split("==") for line in lines if "==" in line and line[0] != "#")

    pinned, constraints = pins(SPACE / "requirements.txt"), pins(ROOT / "constraints.txt")
    differ = {name: (version, constraints.get(name)) for name, version in pinned.items() if constraints.get(name) != version}
    assert differ.keys() <= {"gradio", "pillow"}  # gradio asks for pillow < 13
    matter = yaml.safe_load((SPACE / "README.md").read_text(encoding="utf-8").split("---")[1])
    assert matter["sdk_version"] == pinned["gradio"]
    assert (SPACE / matter["app_file"]).exists()
    assert (SPACE / matter["thumbnail"]).stat().st_size < 300_000
    assert len(matter["short_description"]) <= 60


def test_the_bundle_is_small_and_names_no_place_of_a_machine() -> None:
    files = [path for path in (SPACE / "bundle").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    for path in files:
        if path.suffix in (".json", ".md"):
            assert not re.search(r"(/home|/root|/work|/tmp|/Users)/", path.read_text(encoding="utf-8")), path


def test_a_bug_is_not_shown_as_the_mistake_of_a_visitor() -> None:
    import tabs

    def step(game: str) -> dict[str, str]:
        return {"game": game + 1}  # type: ignore[operator]

    assert tabs.answering(step)({"player": "random"}) == {"error": "missing a required argument: 'game'"}
    with pytest.raises(TypeError, match="can only concatenate"):
        tabs.answering(step)({"game": "a"})


def test_every_game_variant_and_player_has_a_name_of_its_own() -> None:
    assert names.GAMES.keys() == GAMES.keys()
    assert names.VARIANTS.keys() == VARIANTS.keys()
    assert names.PLAYERS.keys() == set(players.BUILT_IN)
    offered = [*map(names.game, players.GAME_IDS), *map(names.player, names.PLAYERS)]
    assert len({*offered}) == len(offered)


def test_what_the_page_says_first_is_what_the_bundle_says() -> None:
    found = players.bundled("compare")
    rates = [opening.percent(found[side]["success"]["mean"]) for side in ("a", "b")]
    about = json.loads((adapters_path() / f"{replay.ADAPTER}.json").read_text(encoding="utf-8"))
    assert opening.sentence() == (
        f"One language model of 0.8 million parameters, before and after {about['seconds_training']} seconds of training: "
        f"it reached the goal in {rates[0]} of 200 test episodes, then in {rates[1]}."
    )


def test_msgrpo_space_serves_it_and_ends_quietly_at_ctrl_c(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "msgrpo_hub", "space"],
        cwd=tmp_path,
        env={**environment(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    assert process.stdout
    try:
        line = process.stdout.readline()
        assert re.search(r"http://127\.0\.0\.1:\d+", line), line
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert "Next: open the address below" in errors
    assert "Traceback" not in errors


ZERO = """
import pickle
lent = []
def GPU(duration):
    def lend(function):
        def played(*given):
            lent.append((function.__name__, duration))
            return function(*pickle.loads(pickle.dumps(given)))  # it runs in another process there
        return played
    return lend
"""


def test_a_model_borrows_a_gpu_where_there_is_one_to_borrow_and_a_script_never(msgrpo: Command, tmp_path: Path) -> None:
    (tmp_path / "spaces.py").write_text(ZERO)
    program = """
import sys
sys.path[:0], sys.argv[1:] = sys.argv[1:], []
import json, players, rules
from msgrpo_hub.games import make_game
lake = "FrozenLake-NotSlippery-v1"
words = rules.words(lake, "new names")
games = [make_game(f"{lake}:reflected"), rules.reworded_game(lake, words["instructions"], words["rules"], words["names"])]
for name in ("greedy", "pocket"):
    for game in games:
        assert len(players.play(name, game, [1])) == 1
print(json.dumps(sys.modules["spaces"].lent))
"""
    done = msgrpo(tmp_path, SPACE, program=program)
    assert done.code == 0, done.err
    assert json.loads(done.out) == [["_play_model", 60]] * 2


def test_without_gradio_it_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['gradio'] = None; from msgrpo_hub.cli import main; main(['space'])"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: the demo needs gradio, which is not installed: run `pip install 'msgrpo-hub[space]'`\n"


def test_the_adapter_that_it_was_deployed_with_is_shown_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert players.shown_first() == "lake"
    settings = tmp_path / "space.json"
    settings.write_text(json.dumps({"adapter": f"ada/lake@{'0' * 40}"}))
    monkeypatch.setattr(players, "SETTINGS", settings)
    assert players.shown_first() == f"ada/lake@{'0' * 40}"
