"""The frozen suites: their tasks, hashes, episodes and seeds, and suites of one's own."""

from __future__ import annotations

import pytest

from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.evaluation.suites import hash_of, load_suite, suite_names
from msgrpo_hub.games import episode_seed, make_game, stream
from tests.evaluation.frozen_suites import GOLDEN, LAKE, SNAKE, frozen

PAPER = {name: tuple(GOLDEN) for name in ("paper", "quick", "precise")}
PAPER["standard"] = (*GOLDEN, "Snake-PoisonAppleBanana-v1", "Snake-DoubleApple-v1")  # silence loses on these two
EPISODES = {"paper": 50, "quick": 50, "standard": 200, "precise": 1000, "semantic": 100}


@pytest.mark.parametrize("task", frozen())
def test_a_changed_game_fails_here_until_its_id_has_a_new_version(task: str) -> None:
    assert hash_of(task) == frozen()[task]


def test_the_golden_hashes_are_written_down_twice_so_that_a_script_cannot_change_them_alone() -> None:
    assert {task: hash for task, hash in frozen().items() if task in GOLDEN} == GOLDEN


def test_no_two_tasks_have_one_hash() -> None:
    assert len(set(frozen().values())) == len(frozen()) == 25


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
