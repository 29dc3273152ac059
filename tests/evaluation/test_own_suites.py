"""A suite of one's own is a TOML file; one that cannot be used is refused in one line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import suites
from msgrpo_hub.evaluation.suites import load_suite, task_hash
from msgrpo_hub.games import make_game
from tests.evaluation.frozen_suites import GOLDEN, LAKE, SNAKE


def test_a_suite_is_frozen_by_a_command(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'# kept\nepisodes = 7\nprompt_format = "json"\n\n[tasks]\n"{LAKE}" = ""\n"{SNAKE}" = "old"  # why\n')
    suites.freeze(path)
    assert load_suite(str(path)).tasks == (LAKE, SNAKE)
    assert path.read_text().startswith('# kept\nepisodes = 7\nprompt_format = "json"\n')
    assert path.read_text().endswith("# why\n")


# ---- a suite of one's own


def write(folder: Path, text: str) -> str:
    (folder / "mine.toml").write_text(text)
    return str(folder / "mine.toml")


def test_a_suite_of_ones_own_is_a_toml_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, f'episodes = 7\nsplit = "validation"\n[tasks]\n"Snake-Solo-v1" = "{task_hash(make_game("Snake-Solo-v1"))}"\n'
    )
    suite = load_suite(path)
    assert (suite.name, suite.tasks, suite.episodes, suite.split) == ("mine", ("Snake-Solo-v1",), 7, "validation")
    assert len(suite.seeds("Snake-Solo-v1")) == 7


@dataclass(frozen=True)
class Bad:
    text: str
    words: str


TASK = f'[tasks]\n"{LAKE}" = "{GOLDEN[LAKE]}"\n'
BAD = {
    "a wrong hash": Bad(
        f'episodes = 7\n[tasks]\n"{LAKE}" = "0000"\n',
        rf"{LAKE} has hash {GOLDEN[LAKE]}, but the suite .* expects 0000: give a changed game a new version",
    ),
    "no hash": Bad(f'episodes = 7\n[tasks]\n"{LAKE}" = 1\n', f"{LAKE} has hash"),
    "an unknown game": Bad('episodes = 7\n[tasks]\n"Snake-Standart-v1" = "0"\n', f"did you mean '{SNAKE}'"),
    "an unknown variant": Bad(f'episodes = 7\n[tasks]\n"{SNAKE}:rotted" = "0"\n', "did you mean 'rotated'"),
    "no TOML": Bad("episodes = \n", "is not a suite"),
    "no UTF-8": Bad("", "is not a suite"),
    "no tasks": Bad("episodes = 7\n", "is not a suite .'tasks'.: expected episodes, split, and a table"),
    "an empty table": Bad("episodes = 7\n[tasks]\n", "a suite of no tasks: expected at least one"),
    "a list of tasks": Bad(f'episodes = 7\ntasks = ["{LAKE}"]\n', "is not a suite"),
    "no episodes": Bad(TASK, "is not a suite"),
    "zero episodes": Bad(f"episodes = 0\n{TASK}", "episodes = 0: expected at least 1"),
    "half an episode": Bad(f"episodes = 2.5\n{TASK}", "episodes = 2.5: expected int"),
    "episodes as text": Bad(f'episodes = "7"\n{TASK}', "episodes = '7': expected int"),
    "episodes as a truth": Bad(f"episodes = true\n{TASK}", "episodes = True: expected int"),
    "zero plays of a board": Bad(f"episodes = 7\nrepeats = 0\n{TASK}", "repeats = 0: expected at least 1"),
    "the training split": Bad(f'episodes = 7\nsplit = "train"\n{TASK}', "expected validation or test"),
    "an unknown format": Bad(f'episodes = 7\nprompt_format = "jsn"\n{TASK}', "did you mean 'json'"),
    "a format that is code": Bad(f'episodes = 7\nprompt_format = "os:getcwd"\n{TASK}', "would import code"),
    "a format that is a number": Bad(f"episodes = 7\nprompt_format = 3\n{TASK}", "prompt_format = 3: expected str"),
    "an unknown field": Bad(f"episodes = 7\nseed = 3\n{TASK}", "is not a suite .*seed"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_suite_that_cannot_be_used_is_refused_in_one_line(bad: Bad, tmp_path: Path) -> None:
    path = write(tmp_path, bad.text)
    if not bad.text:
        Path(path).write_bytes(b"episodes = 7 # \xff\n")
    with pytest.raises(UserError, match=bad.words) as caught:
        load_suite(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("standart", "did you mean 'standard'"),
        ("none.toml", "unknown suite 'none.toml'"),
        ("zzz", "expected one of paper, precise, quick"),
    ],
)
def test_an_unknown_suite_is_answered_with_the_nearest_one(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_suite(name)


def test_a_folder_named_like_a_suite_is_no_suite(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").mkdir()
    with pytest.raises(UserError, match="is not a suite"):
        load_suite(str(tmp_path / "mine.toml"))
