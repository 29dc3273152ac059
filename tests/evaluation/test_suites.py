"""The frozen suites with their tasks, hashes, episodes and seeds, and suites in a user's own file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.freeze import freeze
from msgrpo_hub.agent import prompt_formats
from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.suites import hash_of, load_suite, suite_names, task_hash
from msgrpo_hub.games import Game, board_of, episode_seed, make_game, stream
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.seeds import Splits
from msgrpo_hub.games.snake import Item, Snake, SnakeState
from tests.evaluation.played import FIRM as LAKE
from tests.evaluation.played import FOLDER

SNAKE = "Snake-Standard-v1"
GOLDEN = {
    "Snake-Standard-v1": "1ad5e81ba0635f64",
    "Snake-PoisonApple-v1": "7ed20df7d7e09bcf",
    "FrozenLake-NotSlippery-v1": "3b5043755892e859",
    "FrozenLake-Slippery-v1": "f2de1b9e87da519c",
}
"""The tasks of the paper, a second time: `freeze` changes only the suites."""
PAPER = {name: tuple(GOLDEN) for name in ("paper", "quick", "precise")}
PAPER["standard"] = (*GOLDEN, "Snake-PoisonAppleBanana-v1", "Snake-DoubleApple-v1")  # silence loses on these two
EPISODES = {"paper": 50, "quick": 50, "standard": 200, "precise": 1000, "semantic": 100}


def frozen() -> dict[str, str]:
    """Task → hash, over all suites; one task has one hash."""
    tasks: dict[str, str] = {}
    for path in FOLDER.glob("*.toml"):
        for task, hash in tomllib.loads(path.read_text())["tasks"].items():
            assert tasks.setdefault(task, hash) == hash, (path, task)
    return tasks


@pytest.mark.parametrize("task", frozen())
def test_a_changed_game_fails_here_until_its_id_has_a_new_version(task: str) -> None:
    assert hash_of(task) == frozen()[task]


def test_the_golden_hashes_are_frozen_and_no_two_tasks_have_one_hash() -> None:
    assert {task: hash for task, hash in frozen().items() if task in GOLDEN} == GOLDEN
    assert len(set(frozen().values())) == len(frozen()) == 25


def test_every_suite_loads_with_the_tasks_episodes_and_split_that_are_promised() -> None:
    assert suite_names() == sorted(EPISODES)
    for name, episodes in EPISODES.items():
        suite = load_suite(name)
        assert (suite.name, suite.episodes) == (name, episodes)
        assert suite.split == ("validation" if name == "quick" else "test")
        assert name == "semantic" or suite.tasks == PAPER[name]


@pytest.mark.parametrize("task", [SNAKE, LAKE, f"{SNAKE}:reflected"])
def test_training_and_the_splits_of_suites_share_no_seed(task: str) -> None:
    test, quick = set(load_suite("precise").seeds(task)), set(load_suite("quick").seeds(task))
    training = {episode_seed(task, "train", index, run) for index in range(2000) for run in range(3)}
    assert (len(test), len(training)) == (1000, 6000)
    assert not test & quick
    assert not (test | quick) & training


# ---- a suite in a file


def write(folder: Path, text: str) -> str:
    (folder / "mine.toml").write_text(text)
    return str(folder / "mine.toml")


def test_a_suite_of_ones_own_is_a_toml_file_that_a_command_freezes(tmp_path: Path) -> None:
    path = write(tmp_path, f'# kept\nepisodes = 7\nsplit = "validation"\n\n[tasks]\n"{LAKE}" = ""\n"{SNAKE}" = "old"  # why\n')
    freeze(Path(path))
    suite = load_suite(path)
    assert (suite.name, suite.tasks, suite.episodes, suite.split) == ("mine", (LAKE, SNAKE), 7, "validation")
    assert len(suite.seeds(SNAKE)) == 7
    assert Path(path).read_text().startswith('# kept\nepisodes = 7\nsplit = "validation"\n')
    assert Path(path).read_text().endswith("# why\n")


TASK = f'[tasks]\n"{LAKE}" = "{GOLDEN[LAKE]}"\n'
BAD = {
    "a wrong hash": (
        f'episodes = 7\n[tasks]\n"{LAKE}" = "0000"\n',
        rf"{LAKE} has hash {GOLDEN[LAKE]}, but the suite .* expects 0000: give a changed game a new version",
    ),
    "an unknown game": ('episodes = 7\n[tasks]\n"Snake-Standart-v1" = "0"\n', f"did you mean '{SNAKE}'"),
    "no TOML": ("episodes = \n", "is not a suite"),
    "no tasks": ("episodes = 7\n", "is not a suite .'tasks'.: expected episodes, split, and a table"),
    "an empty table": ("episodes = 7\n[tasks]\n", "a suite of no tasks: expected at least one"),
    "zero episodes": (f"episodes = 0\n{TASK}", "episodes = 0: expected at least 1"),
    "zero plays of a board": (f"episodes = 7\nrepeats = 0\n{TASK}", "repeats = 0: expected at least 1"),
    "the training split": (f'episodes = 7\nsplit = "train"\n{TASK}', "expected one of validation, test"),
    "a format that is code": (f'episodes = 7\nprompt_format = "os:getcwd"\n{TASK}', "would import code"),
    "an unknown field": (f"episodes = 7\nseed = 3\n{TASK}", "is not a suite .*seed"),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_a_suite_that_cannot_be_used_is_refused_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=words) as caught:
        load_suite(str(path))
    assert "\n" not in str(caught.value)


def test_an_unknown_suite_a_folder_and_a_file_with_the_name_of_a_built_in_suite_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").mkdir()
    (tmp_path / "standard.toml").write_text("episodes = 5")
    refused = {
        "standart": "did you mean 'standard'",
        "none.toml": "unknown suite 'none.toml'",
        "zzz": "expected one of paper, precise, quick",
        str(tmp_path / "mine.toml"): "is not a suite",
        str(tmp_path / "standard.toml"): r"standard.toml' has the name of a built-in suite: rename the file",
    }
    for name, words in refused.items():
        with pytest.raises(UserError, match=words):
            load_suite(name)


# ---- a game that changes under the same name has another hash


def built(kind: type, game: Any, **members: Any) -> Game:
    """A game with the parameters of a game, and with other members."""
    changed = type("Changed", (kind,), {name: member for name, member in members.items() if callable(member)})
    made: Game = changed(**{field.name: getattr(game, field.name) for field in fields(game)})
    vars(made).update({name: member for name, member in members.items() if not callable(member)})
    return made


def after(kind: type, change: Callable[..., Any]) -> dict[str, Any]:
    """A step of a game with a changed transition."""
    return {"step": lambda game, state, action, rng: change(kind.step(game, state, action, rng))}  # type: ignore[attr-defined]


def first_tested() -> LakeState:
    return make_game(LAKE).initial_state(stream(episode_seed(LAKE, "test", 0), "initial_state"))  # type: ignore[no-any-return]


def slipping(game: Any, state: LakeState, action: str | None, rng: np.random.Generator) -> Any:
    return FrozenLake.step(game, state, action or ("Left" if state.turn else None), rng)


def thin(game: Any, head: Any, body: Any, items: Any) -> Any:
    moved, left, reward = Snake._enter(game, head, body, items)
    return moved[: len(body)], left, reward


def both_died(state: SnakeState) -> bool:
    return not state.alive and not state.opponent_alive


LAKES: dict[str, dict[str, Any]] = {
    "the goal gives two": after(FrozenLake, lambda t: replace(t, reward=2 * t.reward)),  # random play rarely reaches it
    "silence slips": {"step": slipping},
    "walls are legal": {"legal_actions": lambda game, _: game.actions},
    "holes are safe": {"safe_actions": lambda game, state: game.legal_actions(state)},
    "survival is success": {"succeeded": lambda _, state: state.player not in state.holes},
    "other maps": {"initial_state": lambda game, rng: FrozenLake.initial_state(game, np.random.default_rng(rng.integers(2**32)))},
    "another glyph": {"grid": lambda game, state: [row.replace("O", "0") for row in FrozenLake.grid(game, state)]},
}
SNAKES: dict[str, dict[str, Any]] = {
    "apples do not grow": {"_enter": thin},
    "heads may meet": after(Snake, lambda t: replace(t, reward=0.0) if both_died(t.state) else t),
    "an opponent's death pays": after(
        Snake, lambda t: replace(t, reward=t.reward + 1.0) if t.state.alive and not t.state.opponent_alive else t
    ),
    "silence kills": {
        "step": lambda game, state, action, rng: replace(
            Snake.step(game, state, action, rng), **({} if action else {"terminated": True, "truncated": False})
        )
    },
}
CHANGED = [(game, FrozenLake, members) for game in (LAKE, "FrozenLake-Exactly8-v1") for members in LAKES.values()]
CHANGED += [(game, Snake, members) for game in (SNAKE, "Snake-PoisonApple-v1") for members in SNAKES.values()]
CHANGED += [(LAKE, FrozenLake, {"common_boards": frozenset({board_of(make_game(LAKE), first_tested())})})]


@pytest.mark.parametrize(("game_id", "kind", "members"), CHANGED)
def test_a_game_that_plays_otherwise_under_the_same_name_has_another_hash(game_id: str, kind: type, members: Any) -> None:
    assert task_hash(built(kind, make_game(game_id))) == hash_of(game_id)
    assert task_hash(built(kind, make_game(game_id), **members)) != hash_of(game_id)


APPLE = Item("apple", "A", 5, 1.0)
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    LAKE: [
        *({"id": "X-v1"}, {"size": 5}, {"frozen_probability": 0.79}, {"slippery": True}, {"horizon": 9}, {"exactly": True}),
        {"view": "grid"},
    ],
    SNAKE: [
        *({"size": 9}, {"horizon": 19}, {"death_reward": -1.0}, {"has_opponent": False}, {"down_hill": True}),
        *({"items": (replace(APPLE, **{name: value}),)} for name, value in (("reward", 1.5), ("count", 4), ("name", "pear"))),
        *({"items": (replace(APPLE, **{name: value}),)} for name, value in (("symbol", "a"), ("grows", False))),
    ],
}


@pytest.mark.parametrize(("game_id", "changed"), [(game, each) for game, changes in PARAMETERS.items() for each in changes])
def test_every_parameter_of_a_game_is_in_its_hash(game_id: str, changed: dict[str, Any]) -> None:
    assert task_hash(replace(make_game(game_id), **changed)) != hash_of(game_id)  # type: ignore[type-var]


def test_prompts_and_parsers_are_no_part_of_a_task_and_the_seeds_are(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seed = task_hash(make_game(LAKE)), Splits.seed
    monkeypatch.setattr(prompt_formats, "system_text", lambda game: "\n".join(game.rules))
    monkeypatch.setattr(prompt_formats, "parse_action", lambda *_: None)
    assert build_prompt(make_game(LAKE), make_game(LAKE).initial_state(stream(0, "initial_state"))).system.startswith("A cell")
    assert task_hash(make_game(LAKE)) == before
    monkeypatch.setattr(Splits, "seed", lambda splits, split, index: seed(splits, split, index + 1))
    assert task_hash(make_game(LAKE)) != before
