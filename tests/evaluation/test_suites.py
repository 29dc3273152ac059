"""Suites are frozen: a game that is another game has another hash, and a suite with another hash does not load."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent import prompt_formats
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import suites
from msgrpo_hub.evaluation.suites import hash_of, load_suite, suite_names, task_hash
from msgrpo_hub.games import GAMES, Game, Transition, episode_seed, make_game, stream
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.snake import Item, Snake, SnakeState

FOLDER = Path(__file__).parents[2] / "benchmark" / "suites"
LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Standard-v1"


# ---- the frozen suites

GOLDEN = {
    "Snake-Standard-v1": "5b23cfab0c13a8bc",
    "Snake-PoisonApple-v1": "ca60f8387478a8ae",
    "FrozenLake-NotSlippery-v1": "d06add8f5dbf29a2",
    "FrozenLake-Slippery-v1": "3b633970d34e0041",
}
"""The tasks of the paper, once more: a hash that changes in code and TOML alike must be changed here by hand as well."""

FIRST_BUILD = {
    "Snake-Standard-v1": "3e54e91afa754e67",
    "Snake-PoisonApple-v1": "228b165d870c64b9",
    "FrozenLake-NotSlippery-v1": "b8bf4cdae7658d0d",
    "FrozenLake-Slippery-v1": "00d5714eeda99492",
}
"""Their hashes in harness 1."""

PAPER = {name: tuple(GOLDEN) for name in ("paper", "quick", "standard", "precise")}
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


def test_the_golden_hashes_are_written_down_twice_so_that_a_script_cannot_change_them_alone() -> None:
    assert {task: hash for task, hash in frozen().items() if task in GOLDEN} == GOLDEN


def test_no_two_tasks_have_one_hash() -> None:
    assert len(set(frozen().values())) == len(frozen()) == 21


def test_every_suite_loads_with_the_tasks_episodes_and_split_that_are_promised() -> None:
    assert suite_names() == sorted(EPISODES)
    for name, episodes in EPISODES.items():
        suite = load_suite(name)
        assert (suite.name, suite.episodes) == (name, episodes)
        assert suite.split == ("validation" if name == "quick" else "test")
        if name in PAPER:
            assert suite.tasks == PAPER[name]


def test_the_semantic_suite_shows_every_changed_instruction_and_board_in_its_prompts() -> None:
    """Each task beside the paper's two games: what a model reads differs from what it reads there, on the same seed."""
    tasks = load_suite("semantic").tasks
    assert {"Snake-PoisonApple-v1", "Snake-DoubleApple-v1", "Snake-Fire-v1", "FrozenLake-Exactly8-v1"} < set(tasks)
    for task in tasks:
        plain = LAKE if task.startswith("Frozen") else SNAKE
        games = [make_game(task), make_game(plain)]
        seeds = [episode_seed(plain, "test", index) for index in range(5)]
        texts = [[build_prompt(game, game.initial_state(stream(s, "initial_state"))).messages for s in seeds] for game in games]
        assert (texts[0] == texts[1]) == (task == plain), task


@pytest.mark.parametrize("task", [SNAKE, LAKE, f"{SNAKE}:reflected"])
def test_seeds_of_a_suite_are_never_those_of_training_or_of_another_split(task: str) -> None:
    test, quick = set(load_suite("precise").seeds(task)), set(load_suite("quick").seeds(task))
    assert len(test) == 1000
    training = {episode_seed(task, "train", index, run) for index in range(2000) for run in range(3)}
    assert len(training) == 6000
    assert not test & quick
    assert not (test | quick) & training


def test_two_games_share_no_seed_and_a_variant_shares_those_of_its_game() -> None:
    suite = load_suite("standard")
    all_seeds = [seed for task in suite.tasks for seed in suite.seeds(task)]
    assert len(set(all_seeds)) == len(all_seeds)
    assert suite.seeds(f"{SNAKE}:compass") == suite.seeds(SNAKE)


def test_the_first_fifty_of_the_standard_suite_are_the_fifty_of_the_paper() -> None:
    assert load_suite("standard").seeds(SNAKE)[:50] == load_suite("paper").seeds(SNAKE)


# ---- one name, eight games: whatever is changed, the hash changes


def built(kind: type, game: Any) -> Game:
    """A game of another class with the parameters of a game."""
    return kind(**{field.name: getattr(game, field.name) for field in fields(game)})  # type: ignore[no-any-return]


class GoalGivesTwo(FrozenLake):
    """Random play hardly ever sees it: on firm ice it wins 7 times in 1,000."""

    def step(self, state: LakeState, action: str | None, rng: np.random.Generator) -> Transition[LakeState]:
        after = super().step(state, action, rng)
        return replace(after, reward=2 * after.reward)


class HolesCost(FrozenLake):
    def step(self, state: LakeState, action: str | None, rng: np.random.Generator) -> Transition[LakeState]:
        after = super().step(state, action, rng)
        return replace(after, reward=-1.0) if after.state.player in after.state.holes else after


class SilenceSlips(FrozenLake):
    """An unreadable reply is played as Left, but not on the first turn."""

    def step(self, state: LakeState, action: str | None, rng: np.random.Generator) -> Transition[LakeState]:
        return super().step(state, action or ("Left" if state.turn else None), rng)


class WallsAreLegal(FrozenLake):
    def legal_actions(self, state: LakeState) -> tuple[str, ...]:  # noqa: ARG002
        return self.actions


class HolesAreSafe(FrozenLake):
    def safe_actions(self, state: LakeState) -> tuple[str, ...]:
        return self.legal_actions(state)


class SurvivalIsSuccess(FrozenLake):
    def succeeded(self, state: LakeState) -> bool:
        return state.player not in state.holes


class OtherMaps(FrozenLake):
    def initial_state(self, rng: np.random.Generator) -> LakeState:
        rng.random()
        return super().initial_state(rng)


class OneWord(FrozenLake):
    instructions = "You walk on a frozen lake. Reach the goal and do not fall in a hole."


class OtherGlyph(FrozenLake):
    def grid(self, state: LakeState) -> list[str]:
        return [row.replace("O", "0") for row in super().grid(state)]


class OtherOrder(FrozenLake):
    actions = ("Down", "Left", "Right", "Up")


class Rounder(FrozenLake):
    reward_range = (-1.0, 1.0)


@pytest.mark.parametrize(
    "kind",
    [
        GoalGivesTwo,
        HolesCost,
        SilenceSlips,
        WallsAreLegal,
        HolesAreSafe,
        SurvivalIsSuccess,
        OtherMaps,
        OneWord,
        OtherGlyph,
        OtherOrder,
        Rounder,
    ],
)
@pytest.mark.parametrize("game_id", [LAKE, "FrozenLake-Exactly8-v1"])
def test_a_lake_that_plays_otherwise_under_the_same_name_has_another_hash(game_id: str, kind: type) -> None:
    assert task_hash(built(kind, make_game(game_id))) != hash_of(game_id)


@pytest.mark.parametrize(("game_id", "kind"), [(LAKE, FrozenLake), ("Snake-Standard-v1", Snake)])
def test_a_game_that_is_built_anew_has_the_same_hash(game_id: str, kind: type) -> None:
    """The control of the tests around: what differs there is the rule, not the object."""
    assert task_hash(built(kind, make_game(game_id))) == hash_of(game_id)


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "X-v1"},
        {"size": 5},
        {"frozen_probability": 0.79},
        {"slippery": True},
        {"horizon": 9},
        {"exactly": True},
        {"view": "grid"},
    ],
    ids=str,
)
def test_every_parameter_of_a_lake_is_in_its_hash(changed: dict[str, Any]) -> None:
    assert task_hash(replace(make_game(LAKE), **changed)) != hash_of(LAKE)  # type: ignore[type-var]


class ApplesDoNotGrow(Snake):
    def _eat(self, state: SnakeState, cell: tuple[int, int]) -> tuple[SnakeState, Item | None]:
        after, eaten = super()._eat(state, cell)
        return after, eaten and replace(eaten, grows=False)


class MeetingHeadsAreFree(Snake):
    def step(self, state: SnakeState, action: str | None, rng: np.random.Generator) -> Transition[SnakeState]:
        after = super().step(state, action, rng)
        both = not after.state.alive and not after.state.opponent_alive
        return replace(after, reward=0.0) if both else after


class TheOpponentSDeathPays(Snake):
    def step(self, state: SnakeState, action: str | None, rng: np.random.Generator) -> Transition[SnakeState]:
        after = super().step(state, action, rng)
        return replace(after, reward=after.reward + 1.0) if not after.state.opponent_alive and after.state.alive else after


class SilenceKills(Snake):
    def step(self, state: SnakeState, action: str | None, rng: np.random.Generator) -> Transition[SnakeState]:
        after = super().step(state, action, rng)
        return replace(after, terminated=True, truncated=False) if action is None else after


@pytest.mark.parametrize("kind", [ApplesDoNotGrow, MeetingHeadsAreFree, TheOpponentSDeathPays, SilenceKills])
@pytest.mark.parametrize("game_id", [SNAKE, "Snake-PoisonApple-v1"])
def test_a_snake_that_plays_otherwise_under_the_same_name_has_another_hash(game_id: str, kind: type) -> None:
    assert task_hash(built(kind, make_game(game_id))) != hash_of(game_id)


APPLE = Item("apple", "A", 5, 1.0)


@pytest.mark.parametrize(
    "changed",
    [
        {"size": 9},
        {"horizon": 19},
        {"death_reward": -1.0},
        {"has_opponent": False},
        {"down_hill": True},
        {"items": (replace(APPLE, reward=1.5),)},
        {"items": (replace(APPLE, count=4),)},
        {"items": (replace(APPLE, name="pear"),)},
        {"items": (replace(APPLE, symbol="a"),)},
        {"items": (replace(APPLE, grows=False),)},
    ],
    ids=str,
)
def test_every_parameter_of_a_snake_is_in_its_hash(changed: dict[str, Any]) -> None:
    assert task_hash(replace(make_game(SNAKE), **changed)) != hash_of(SNAKE)  # type: ignore[type-var]


def test_each_word_of_the_rules_is_in_the_hash() -> None:
    game = make_game(LAKE)
    for number in range(len(game.rules)):

        class Reworded(FrozenLake):
            rules = (*game.rules[:number], game.rules[number].upper(), *game.rules[number + 1 :])

        assert task_hash(built(Reworded, game)) != hash_of(LAKE), game.rules[number]


def test_prompts_and_parsers_are_no_part_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a run's: see `test_whatever_decides_a_result_is_in_the_run_hash`."""
    before = task_hash(make_game(LAKE))
    monkeypatch.setattr(prompt_formats, "system_text", lambda game: "\n".join(game.rules))
    monkeypatch.setattr(prompt_formats, "parse_action", lambda *_: None)
    assert build_prompt(make_game(LAKE), make_game(LAKE).initial_state(stream(0, "initial_state"))).system.startswith("A cell")
    assert task_hash(make_game(LAKE)) == before


def test_another_recipe_of_seeds_changes_every_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = task_hash(make_game(LAKE))
    monkeypatch.setattr(suites, "episode_seed", lambda id, split, index: episode_seed(id, split, index + 1))
    assert task_hash(make_game(LAKE)) != before


def test_the_hash_does_not_depend_on_what_was_hashed_before() -> None:
    games = [make_game(id) for id in (LAKE, "FrozenLake-Slippery-v1", "Snake-Solo-v1")]
    assert [task_hash(game) for game in games] == [task_hash(game) for game in reversed(games)][::-1]
    assert [hash_of(game.id) for game in games] == [task_hash(game) for game in games]


def test_every_registered_game_can_be_hashed() -> None:
    assert len({hash_of(id) for id in GAMES}) == len(GAMES)


# ---- harness 1


def test_the_hashes_of_harness_1_are_those_of_the_first_build_and_lead_to_the_suites_of_now() -> None:
    table = tomllib.loads(Path(str(suites.__file__)).with_name("harness_1.toml").read_text())["tasks"]
    assert {task: table[task] for task in FIRST_BUILD} == {task: [hash, frozen()[task]] for task, hash in FIRST_BUILD.items()}
    assert {task: now for task, (_, now) in table.items() if task in frozen()} == frozen()
    assert set(GAMES) <= set(table)


def test_a_run_of_harness_1_has_the_rules_of_now_and_a_forged_one_has_not() -> None:
    run = {"task": LAKE, "harness": 1, "task_hash": FIRST_BUILD[LAKE]}
    assert suites.same_rules(run) == {"task_hash": GOLDEN[LAKE], "harness": 2}
    for forged in ({"task_hash": "0" * 16}, {"task": SNAKE}, {"harness": 2}):
        assert suites.hash_now(run | forged) == (run | forged)["task_hash"] != GOLDEN[LAKE]
        assert suites.same_rules(run | forged)["harness"] == (run | forged)["harness"]


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
        rf"{LAKE} has hash {GOLDEN[LAKE]}, suite .* froze 0000: a changed game needs a new version",
    ),
    "no hash": Bad(f'episodes = 7\n[tasks]\n"{LAKE}" = 1\n', f"{LAKE} has hash"),
    "an unknown game": Bad('episodes = 7\n[tasks]\n"Snake-Standart-v1" = "0"\n', f"did you mean '{SNAKE}'"),
    "an unknown variant": Bad(f'episodes = 7\n[tasks]\n"{SNAKE}:rotted" = "0"\n', "did you mean 'rotated'"),
    "no TOML": Bad("episodes = \n", "is no suite"),
    "no UTF-8": Bad("", "is no suite"),
    "no tasks": Bad("episodes = 7\n", "is no suite .'tasks'.: expected episodes, split, and a table"),
    "an empty table": Bad("episodes = 7\n[tasks]\n", "expected tasks"),
    "a list of tasks": Bad(f'episodes = 7\ntasks = ["{LAKE}"]\n', "is no suite"),
    "no episodes": Bad(TASK, "is no suite"),
    "zero episodes": Bad(f"episodes = 0\n{TASK}", "episodes of at least 1"),
    "half an episode": Bad(f"episodes = 2.5\n{TASK}", "episodes of at least 1"),
    "episodes as text": Bad(f'episodes = "7"\n{TASK}', "episodes of at least 1"),
    "episodes as a truth": Bad(f"episodes = true\n{TASK}", "episodes of at least 1"),
    "the training split": Bad(f'episodes = 7\nsplit = "train"\n{TASK}', "split validation or test"),
    "an unknown format": Bad(f'episodes = 7\nprompt_format = "jsn"\n{TASK}', "did you mean 'json'"),
    "a format that is code": Bad(f'episodes = 7\nprompt_format = "os:getcwd"\n{TASK}', "would import code"),
    "a format that is a number": Bad(f"episodes = 7\nprompt_format = 3\n{TASK}", "unknown prompt format '3'"),
    "an unknown field": Bad(f"episodes = 7\nseed = 3\n{TASK}", "is no suite .*seed"),
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
    with pytest.raises(UserError, match="is no suite"):
        load_suite(str(tmp_path / "mine.toml"))
