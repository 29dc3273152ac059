"""Variants: the same episodes told in another way. A player that only reads must do as well as it does on the plain game."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt, build_prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, VARIANTS, Game, episode_seed, make_game, stream
from msgrpo_hub.games.environment import TextGameEnv
from msgrpo_hub.games.snake import Snake
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_episodes, replayed_states

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Standard-v1"
NO_SUCH = {f"Snake-DownHill-v1:{name}" for name in ("rotated", "compass", "permuted-actions")}
IDS = [f"{game}:{variant}" for game in GAMES for variant in VARIANTS if f"{game}:{variant}" not in NO_SUCH]
WHOLE = [name for name in VARIANTS if name not in ("coordinates", "grid")]
seeds = st.integers(0, 2**63 - 1)

PLAIN_MOVES = "Up and Down change the row by one, Left and Right change the column by one."

Cell = tuple[int, int]


# ---- a player that only reads: it knows the format of the prompts, and none of our code


def read_moves(system: str) -> dict[str, Cell]:
    """Action → (change of row, change of column), from the rules."""
    if PLAIN_MOVES in system:
        return {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
    signs = {"above": -1, "below": 1, "on the left": -1, "on the right": 1}
    moves, axis = {}, ""
    for name, at, step in re.findall(r"(\w+)(?: changes the (row|column))? by (-?1)\b", system):
        axis = at or axis
        moves[name] = (int(step), 0) if axis == "row" else (0, int(step))
    for name, axis, side in re.findall(r"(\w+)(?: moves)? to the (row|column) (above|below|on the left|on the right)", system):
        moves[name] = (signs[side], 0) if axis == "row" else (0, signs[side])
    return moves


def read_legend(system: str) -> dict[str, str]:
    """Symbol → what it stands for, from the last rule."""
    return dict(re.findall(r"(\S) is (?:an? |the )?([a-z ]+)[,.]", system.splitlines()[-1]))


def read_grid(observation: str) -> list[list[str]]:
    return [line.split(" ") for line in observation.partition("Grid:\n")[2].splitlines()]


def read_coordinates(observation: str) -> dict[str, list[Cell]]:
    """Label → cells."""
    lines = [line.split(": ", 1) for line in observation.partition("Grid:")[0].splitlines() if ":" in line]
    return {label: [(int(r), int(c)) for r, c in re.findall(r"\((\d+), (\d+)\)", cells)] for label, cells in lines}


def read_board(system: str, observation: str) -> dict[str, set[Cell]]:
    """What stands where: from the coordinates if they are shown, else from the grid."""
    names = {"You": "you", "Goal": "goal", "Holes": "hole", "Your head": "your head", "Your body": "your body"}
    names |= {"Opponent head": "opponent head", "Opponent body": "opponent body", "Apples": "apple"}
    if listed := read_coordinates(observation):
        return {names[label]: set(cells) for label, cells in listed.items() if label in names}
    grid, legend = read_grid(observation), read_legend(system)
    board: dict[str, set[Cell]] = {name: set() for name in legend.values()}
    for r, row in enumerate(grid):
        for c, symbol in enumerate(row):
            board[legend[symbol]].add((r, c))
    return board


def first_step(start: Cell, wanted: set[Cell], blocked: set[Cell], size: int, moves: dict[str, Cell]) -> str:
    """The first action of a shortest way; among equally short ones by direction, whatever the directions are called."""
    ordered = sorted(moves, key=lambda name: moves[name])
    queue, seen = deque([(start, "")]), {start, *blocked}
    while queue:
        (r, c), first = queue.popleft()
        if (r, c) in wanted:
            return first
        for name in ordered:
            cell = (r + moves[name][0], c + moves[name][1])
            if 0 <= cell[0] < size and 0 <= cell[1] < size and cell not in seen:
                seen.add(cell)
                queue.append((cell, first or name))
    return ordered[0]


@dataclass(frozen=True)
class Reader:
    """Walks to the goal, or to the nearest apple, by what is written and drawn."""

    size: int

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [Completion(text=f"<action>{self.choose(prompt.system, prompt.observation)}</action>") for prompt in prompts]

    def choose(self, system: str, observation: str) -> str:
        board, moves = read_board(system, observation), read_moves(system)
        [me] = board.get("you") or board["your head"]
        blocked = {cell for name, cells in board.items() if name in ("hole", "your body") or "opponent" in name for cell in cells}
        return first_step(me, board.get("goal") or board["apple"], blocked, self.size, moves)


def held_out(game_id: str, count: int) -> list[tuple[int, int]]:
    return [(episode_seed(game_id, "test", index), 0) for index in range(count)]


def rewards(game_id: str, count: int) -> list[float]:
    game = make_game(game_id)
    return [episode.reward for episode in play_episodes(game, Reader(game.rows), held_out(game_id, count))]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_player_that_reads_wins_every_lake_however_it_is_told(variant: str) -> None:
    assert rewards(f"{LAKE}:{variant}", 40) == rewards(LAKE, 40) == [1.0] * 40


@pytest.mark.parametrize("game", [SNAKE, "FrozenLake-Slippery-v1"])
@pytest.mark.parametrize("variant", ["compass", "permuted-actions", "other-symbols", "coordinates", "grid"])
def test_where_only_words_change_a_player_that_reads_plays_the_very_same_episodes(game: str, variant: str) -> None:
    plain = rewards(game, 30)
    assert rewards(f"{game}:{variant}", 30) == plain
    assert np.ptp(plain) > 0  # luck and apples: equal rewards mean something


def test_a_player_with_a_habit_loses_where_the_words_change() -> None:
    """The control of the tests above: answering by the plain rules fails, so the variants do test reading."""

    class Habit(Reader):
        def choose(self, system: str, observation: str) -> str:
            return super().choose(re.sub("Here Down moves.*", PLAIN_MOVES, system), observation)

    game = make_game(f"{LAKE}:permuted-actions")
    assert sum(episode.reward for episode in play_episodes(game, Habit(game.rows), held_out(LAKE, 40))) <= 20


# ---- the same episodes


@pytest.mark.parametrize("game_id", GAMES)
@given(seed=seeds)
@settings(max_examples=2, deadline=None)
def test_a_scripted_player_gets_exactly_the_same_rewards_on_every_variant(game_id: str, seed: int) -> None:
    told = [id for id in IDS if id.startswith(f"{game_id}:")]
    for name in ("random", "random-safe", "greedy", "optimal"):
        if can_play(name, make_game(game_id)):
            [plain] = play_episodes(make_game(game_id), ScriptedPolicy(SCRIPTED[name]), [(seed, 1)])
            for id in told:
                [episode] = play_episodes(make_game(id), ScriptedPolicy(SCRIPTED[name]), [(seed, 1)])
                assert [step.reward for step in episode.steps] == [step.reward for step in plain.steps], (name, id)
                assert [step.legal for step in episode.steps] == [step.legal for step in plain.steps], (name, id)
                assert (episode.success, episode.terminated, episode.game_id) == (plain.success, plain.terminated, id)


@pytest.mark.parametrize("id", IDS)
def test_a_stored_episode_of_a_variant_replays_to_the_states_of_its_game(id: str) -> None:
    game, plain = make_game(id), make_game(id.partition(":")[0])
    [episode] = play_episodes(game, ScriptedPolicy(choose_random), [(5, 2)])
    [other] = play_episodes(plain, ScriptedPolicy(choose_random), [(5, 2)])
    assert replayed_states(game, episode) == replayed_states(plain, other)
    with pytest.raises(ValueError, match="cannot be replayed"):
        replayed_states(plain, episode)


def test_a_variant_shares_the_seeds_of_its_game() -> None:
    assert episode_seed(f"{SNAKE}:rotated", "test", 3) == episode_seed(SNAKE, "test", 3)


# ---- what is shown is true


def visited(game: Game, seed: int) -> Iterator[Any]:
    """The states of one random episode in which the player has a move, unreadable replies among its turns."""
    state, rng, dynamics = (
        game.initial_state(stream(seed, "initial_state")),
        stream(seed, "sampling", 0),
        stream(seed, "dynamics", 0),
    )
    while True:
        yield state
        actions = [*(game.safe_actions(state) or game.actions), None]
        after = game.step(state, actions[int(rng.integers(len(actions)))], dynamics)
        if after.terminated or after.truncated:
            return
        state = after.state


@pytest.mark.parametrize("id", [id for id in IDS if not id.endswith(("coordinates", "grid"))])
@given(seed=seeds)
@settings(max_examples=2, deadline=None)
def test_every_listed_cell_holds_its_symbol_in_the_grid_and_every_symbol_is_listed(id: str, seed: int) -> None:
    game = make_game(id)
    legend = read_legend(build_prompt(game, game.initial_state(stream(seed, "initial_state"))).system)
    assert legend == dict(game.symbols)
    symbols = {name: symbol for symbol, name in legend.items()}
    for state in visited(game, seed):
        text = game.observe(state)
        grid = read_grid(text)
        drawn: dict[Cell, str] = {}
        assert grid == [list(row) for row in game.grid(state)]
        for label, cells in read_coordinates(text).items():
            name = label.lower() if label.lower() in symbols else label.lower().rstrip("s")
            if label != "Turns left":
                drawn |= dict.fromkeys(cells, symbols[name])
        everything = {(r, c): s for r, row in enumerate(grid) for c, s in enumerate(row)}
        free = symbols.get("ice", symbols.get("free"))
        assert {cell: symbol for cell, symbol in everything.items() if symbol != free} == drawn


@pytest.mark.parametrize("variant", WHOLE)
@pytest.mark.parametrize("game_id", [LAKE, "FrozenLake-Exactly8-v1", "Snake-Solo-v1", "Snake-Standard-v1"])
def test_an_action_moves_the_player_on_the_shown_board_as_the_shown_rules_say(game_id: str, variant: str) -> None:
    game = make_game(f"{game_id}:{variant}")
    moved = 0
    for seed in range(4):
        for state in visited(game, seed):
            prompt = build_prompt(game, state)
            moves, board = read_moves(prompt.system), read_board(prompt.system, prompt.observation)
            assert set(moves) == set(game.actions)
            [(r, c)] = board.get("you") or board["your head"]
            for action, (down, right) in moves.items():
                after = game.step(state, action, np.random.default_rng(0))
                there = (r + down, c + right)
                alive = "Snake" not in game_id or after.state.alive
                inside = 0 <= there[0] < game.rows and 0 <= there[1] < game.rows
                seen = read_board(prompt.system, game.observe(after.state))
                [now] = seen.get("you") or seen["your head"]
                assert now == (there if inside and alive else (r, c))
                moved += now == there
    assert moved > 20


@pytest.mark.parametrize("id", [id for id in IDS if id.startswith((LAKE + ":", "Snake-Solo-v1:", "Snake-Fire-v1:"))])
def test_legal_and_safe_actions_of_a_variant_are_those_that_a_step_bears_out(id: str) -> None:
    game = make_game(id)
    for seed in range(4):
        for state in visited(game, seed):
            legal, safe = game.legal_actions(state), game.safe_actions(state)
            assert [a for a in game.actions if a in legal] == list(legal)
            assert [a for a in game.actions if a in safe] == list(safe)
            for action in game.actions:
                after = game.step(state, action, np.random.default_rng(1)).state
                if "Lake" in id:
                    assert (action in legal) == (after.player != state.player)
                    assert (action in safe) == (action in legal and after.player not in state.holes)
                elif not state.opponent:
                    assert (action in legal) == (action in safe) == after.alive
                elif action not in safe:
                    assert not after.alive


@pytest.mark.parametrize("game_id", [LAKE, SNAKE])
def test_a_reflected_board_is_a_mirror_image_and_a_rotated_one_a_quarter_turn(game_id: str) -> None:
    plain = make_game(game_id)
    for state in visited(plain, 11):
        board = np.array([list(row) for row in plain.grid(state)])
        for variant, image in (("reflected", np.fliplr(board)), ("rotated", np.rot90(board))):
            shown = np.array([list(row) for row in make_game(f"{game_id}:{variant}").grid(state)])
            assert (shown == image).all()


@pytest.mark.parametrize("game_id", [LAKE, SNAKE])
def test_a_partial_view_shows_its_part_and_hides_the_other(game_id: str) -> None:
    plain, coordinates, grid = (make_game(f"{game_id}{view}") for view in ("", ":coordinates", ":grid"))
    for state in visited(plain, 3):
        assert f"{coordinates.observe(state)}\n{grid.observe(state)}" == plain.observe(state)
        assert "(" not in grid.observe(state)
        assert "Grid" not in coordinates.observe(state)


def test_the_body_of_a_snake_is_told_from_its_head_on_and_other_cells_in_reading_order() -> None:
    game, body, checked = make_game(f"{SNAKE}:reflected"), re.compile("Your body: (.*)"), 0
    for seed in range(12):
        for episode in play_episodes(game, ScriptedPolicy(SCRIPTED["greedy"]), [(seed, 0)]):
            for state in replayed_states(game, episode)[:-1]:
                told = read_coordinates(game.observe(state))
                assert told["Your body"] == [(r, game.rows - 1 - c) for r, c in state.snake[1:]]
                assert told["Apples"] == sorted(told["Apples"])
                checked += len(state.snake) > 3 and body.search(game.observe(state)) is not None
    assert checked > 20


# ---- the changed instruction stands in the prompt


def system_of(id: str) -> str:
    game = make_game(id)
    return build_prompt(game, game.initial_state(np.random.default_rng(0))).system


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("Snake-PoisonApple-v1", "An apple gives -1 and makes you one cell longer; then it appears elsewhere."),
        ("Snake-DoubleApple-v1", "An apple gives 2 and makes you one cell longer; then it appears elsewhere."),
        ("Snake-Fire-v1", "A fire gives -1; then it appears elsewhere."),
        ("Snake-Fire-v1", "F is fire"),
        ("FrozenLake-Exactly8-v1", "The goal gives 1 if you reach it in exactly 8 turns, else 0, and ends the game."),
        (f"{SNAKE}:compass", "North changes the row by -1, South by 1; West changes the column by -1, East by 1."),
        (f"{SNAKE}:compass", "[Available Actions]\nWest, South, East, North\n"),
        (f"{LAKE}:permuted-actions", "Here Down moves to the column on the left, Right to the row below"),
        (f"{LAKE}:other-symbols", "In the grid _ is ice, P is you, H is hole, E is goal."),
        ("Snake-PoisonApple-v1:compass", "An apple gives -1 and makes you one cell longer"),
    ],
)
def test_the_changed_instruction_really_stands_in_the_prompt(id: str, words: str) -> None:
    assert words in system_of(id)
    plain = LAKE if "Lake" in id else SNAKE
    assert words not in system_of(plain)


@pytest.mark.parametrize("game_id", [game_id for game_id in GAMES if game_id != "Snake-DownHill-v1"])
def test_no_word_of_the_plain_rules_is_left_where_it_would_be_false(game_id: str) -> None:
    assert not re.search(r"\b(Up|Down|Left|Right)\b", system_of(f"{game_id}:compass"))
    assert "change the row by one" not in system_of(f"{game_id}:permuted-actions")
    old = [f"{symbol} is {name}" for symbol, name in make_game(game_id).symbols.items()]
    assert not [legend for legend in old if legend in system_of(f"{game_id}:other-symbols")]
    assert system_of(f"{game_id}:reflected") == system_of(f"{game_id}:rotated") == system_of(game_id)


def test_exactly_eight_shows_the_turns_left_and_pays_on_the_last_turn_alone() -> None:
    game = make_game("FrozenLake-Exactly8-v1")
    start = next(s for seed in range(99) if not (s := game.initial_state(stream(seed, "initial_state"))).holes)
    ways = {6: ["Down"] * 3 + ["Right"] * 3, 8: ["Left", "Up"] + ["Down"] * 3 + ["Right"] * 3}
    for turns, way in ways.items():
        state, rng = start, np.random.default_rng(0)
        for turn, action in enumerate(way):
            assert f"Turns left: {8 - turn}\n" in build_prompt(game, state).user
            after = game.step(state, action, rng)
            state = after.state
        assert (after.reward, after.terminated, game.succeeded(state)) == (float(turns == 8), True, turns == 8)


@pytest.mark.parametrize("id", IDS)
def test_gymnasium_can_hold_every_observation_of_a_variant(id: str) -> None:
    text, planes = TextGameEnv(id), TextGameEnv(id, observation="tensor")
    for env in (text, planes):
        observation, info = env.reset(seed=4)
        while True:
            assert env.observation_space.contains(observation)
            action = int(np.flatnonzero(info["action_mask"])[0]) if info["action_mask"].any() else 0
            observation, _, terminated, truncated, info = env.step(np.int64(action))
            if terminated or truncated:
                break


# ---- bad input


@pytest.mark.parametrize(
    ("id", "words"),
    [
        (f"{SNAKE}:reflectd", "unknown variant 'reflectd': did you mean 'reflected'?"),
        (f"{SNAKE}:upside-down", "unknown variant 'upside-down': expected one of reflected, rotated, "),
        (f"{SNAKE}:", "unknown variant '': expected one of reflected, "),
        (f"{SNAKE}:reflected:rotated", "unknown variant 'reflected:rotated'"),
        ("Snake-Standart-v1:reflected", f"unknown game 'Snake-Standart-v1': did you mean '{SNAKE}'?"),
        *((id, "since its rules name a direction: expected another variant") for id in sorted(NO_SUCH)),
    ],
)
def test_a_variant_that_does_not_exist_is_refused_in_one_line(id: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        make_game(id)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_items_that_roll_down_still_roll_down_in_the_variants_that_are_left() -> None:
    for variant in ("", ":reflected", ":other-symbols"):
        game = make_game(f"Snake-DownHill-v1{variant}")
        assert isinstance(make_game("Snake-DownHill-v1"), Snake)
        prompt = build_prompt(game, game.initial_state(stream(1, "initial_state")))
        assert "Items roll one cell Down each turn." in prompt.system
        assert read_moves(prompt.system)["Down"] == (1, 0)
