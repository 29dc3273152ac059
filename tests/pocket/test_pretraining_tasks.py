"""Every answer of a task is a fact of the state or the prompt, and no reply to the play request favours a good move."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.pocket.tasks import PLAY_REQUEST, GameVariant, play, pretraining_tasks, random_state
from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.snake import Snake
from msgrpo_hub.pocket.thoughts import direction_to
from tests.pocket.tasks_oracle import CHOICES, MOVES, Cell, after, at, me, samples, steps_between


def allowed(variant: GameVariant, state: Any) -> list[str]:
    """The available moves that hit no wall, no snake and nothing forbidden; all available moves if none is left."""
    bad = {"wall", "body", "opponent", variant.avoid}
    return [a for a in variant.actions if at(variant.game, state, after(me(state), a)) not in bad] or list(variant.actions)


def walked(start: Cell, words: str) -> Cell:
    """The cell that a direction such as `Right 2 Up 1` leads to."""
    if words == "here":
        return start
    assert re.fullmatch(r"\w+ [1-9]\d*( \w+ [1-9]\d*)?", words)
    for action, steps in re.findall(r"(\w+) (\d+)", words):
        start = start[0] + int(steps) * MOVES[action][0], start[1] + int(steps) * MOVES[action][1]
    return start


def cell_of(text: str) -> Cell:
    row, column = re.fullmatch(r"\((\d+), (\d+)\)", text).groups()  # type: ignore[union-attr]
    return int(row), int(column)


def is_right(variant: GameVariant, state: Any, request: str, answer: str) -> bool:
    """Whether the answer to a question with one correct answer is correct."""
    game, here, system = variant.game, me(state), variant.system
    if request == "What lies in each direction?":
        return answer == " ".join(f"{a} {at(game, state, after(here, a))}" for a in MOVES)
    if found := re.fullmatch(r"What lies (\w+)\?", request):
        return answer == at(game, state, after(here, found[1]))
    if found := re.fullmatch(r"What lies at (\(.*\))\?", request):
        return answer == at(game, state, cell_of(found[1]))
    if request == "Where are you?":
        return cell_of(answer) == here
    if found := re.fullmatch(r"How far is (\(.*\))\?", request):
        return walked(here, answer) == cell_of(found[1])
    if request == "How far is the goal?":
        return at(game, replace(state, player=(-1, -1)), walked(here, answer)) == "goal"
    if request in ("Which moves are legal?", "Which moves are safe?"):
        bad = {"wall", "body"} | ({"hole", "opponent"} if "safe" in request else set())
        return answer == (" ".join(a for a in MOVES if at(game, state, after(here, a)) not in bad) or "none")
    if found := re.fullmatch(r"Which (\w+) is nearest\?", request):
        cell, _, words = answer.partition(") ")
        cells = [(r, c) for r in range(game.rows) for c in range(game.rows) if at(game, state, (r, c)) == found[1]]
        there = cell_of(f"{cell})")
        nearest = min(steps_between(here, other) for other in cells)
        return there in cells and steps_between(here, there) == nearest and walked(here, words) == there
    if request == "How long are you?":
        return answer == str(sum(at(game, state, (r, c)) in ("head", "body") for r in range(game.rows) for c in range(game.rows)))
    if request == "Where is the opponent?":
        return cell_of(answer) == state.opponent[0]
    if request == "How many turns has the game?":
        return f"The game ends after {answer} turns." in system
    if request == "Which actions are available?":
        return f"[Available Actions]\n{', '.join(answer.split())}\n" in system
    if found := re.fullmatch(r"What does (an? \w+) give\?", request):
        return re.search(rf"^{found[1]} gives {re.escape(answer)}[ ;]", system, re.MULTILINE | re.IGNORECASE) is not None
    if request == "What does dying give?":
        return f"kills you: that gives {answer} and ends the game." in system
    raise AssertionError(f"a kind of question that this test does not know: {request}")


# ---- the tasks are correct


def test_every_answer_about_board_and_rules_is_a_fact_of_the_state_or_of_the_prompt() -> None:
    counts: Counter[str] = Counter()
    for variant, state, rng in samples(700):
        for task in pretraining_tasks(variant, state, rng):
            if task.kind not in CHOICES:
                (answer,) = task.replies
                assert is_right(variant, state, task.request, answer), (task, state)
                counts[task.kind] += 1
    kinds = {"each direction", "one direction", "where", "what thing", "what cell", "bearing", "legal", "safe"}
    assert counts.keys() == kinds | {"goal", "nearest", "length", "opponent", "rules"}
    assert min(counts.values()) > 50


def test_the_oracle_rejects_wrong_answers() -> None:
    """Guards the test above: the oracle rejects most answers of another state."""
    wrong: defaultdict[str, list[bool]] = defaultdict(list)
    for variant, state, rng in samples(200):
        other = random_state(variant.game, rng)
        for task in pretraining_tasks(variant, state, rng):
            if task.kind not in (*CHOICES, "rules"):
                wrong[task.kind].append(not is_right(variant, other, task.request, task.replies[0]))
    rates = {kind: np.mean(rejected) for kind, rejected in wrong.items()}
    assert min(rates.values()) > 0.2, rates


@given(here=st.tuples(st.integers(0, 9), st.integers(0, 9)), there=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_a_direction_leads_to_its_cell_by_a_shortest_path(here: Cell, there: Cell) -> None:
    words = direction_to(here, there)
    assert walked(here, words) == there
    assert sum(map(int, re.findall(r"\d+", words))) == steps_between(here, there)


# ---- no task teaches goal-directed play


def test_replies_to_the_play_request_are_exactly_the_allowed_moves() -> None:
    """One reply per allowed move, all with the same thought, so that training favours no move."""
    counts = set()
    for variant, state, _ in samples(1500):
        task = play(variant, state)
        moves = [parse_action(reply, variant.actions) for reply in task.replies]
        assert moves == allowed(variant, state)
        thoughts = {reply.removesuffix(f"<action>{move}</action>") for reply, move in zip(task.replies, moves, strict=True)}
        assert len(thoughts) == 1
        assert task.request == PLAY_REQUEST
        counts.add((len(moves), isinstance(state, LakeState), bool(variant.avoid), len(variant.actions)))
    assert len(counts) > 15  # number of moves, game, prohibition, number of actions


def test_the_thought_before_a_move_holds_only_the_local_view_and_the_nearest_food() -> None:
    for variant, state, _ in samples(500):
        thought = re.fullmatch(r"<think>(.*)</think><action>\w+</action>", play(variant, state).replies[0])
        assert thought is not None
        seen, _, item = thought[1].partition(" nearest ")
        assert is_right(variant, state, "What lies in each direction?", seen)
        assert bool(item) == (isinstance(variant.game, Snake) and any(i.grows for i in variant.game.items))
        if item:
            name, _, answer = item.partition(" ")
            cells = {c for i, cs in zip(variant.game.items, state.items, strict=True) for c in cs if i.grows}
            assert steps_between(me(state), cell_of(f"{answer.partition(')')[0]})")) == min(
                steps_between(me(state), c) for c in cells
            )
            assert at(variant.game, state, walked(me(state), answer.partition(") ")[2])) == name


@pytest.mark.parametrize("reward", [-5.0, 1.0, 10.0])
def test_the_reward_of_an_item_changes_no_reply(reward: float) -> None:
    """The replies neither approach food nor avoid poison."""
    for variant, state, _ in samples(300):
        if isinstance(variant.game, Snake):
            items = tuple(replace(item, reward=reward) for item in variant.game.items)
            other = replace(variant, game=replace(variant.game, items=items, death_reward=-9.0))
            assert play(other, state).replies == play(variant, state).replies


def test_moves_towards_the_goal_are_taught_as_often_as_random_legal_play_takes_them() -> None:
    """Compares the mean share of replies that approach the goal with the same share of legal moves."""
    taught, legal = [], []
    for variant, state, _ in samples(2000):
        if isinstance(variant.game, FrozenLake) and not variant.avoid and len(variant.actions) == 4:
            goal, here = (variant.game.rows - 1,) * 2, me(state)
            nearer = {a for a in MOVES if steps_between(after(here, a), goal) < steps_between(here, goal)}
            moves = [parse_action(reply, variant.actions) for reply in play(variant, state).replies]
            on_board = [a for a in MOVES if at(variant.game, state, after(here, a)) != "wall"]
            taught.append(np.mean([move in nearer for move in moves]))
            legal.append(np.mean([move in nearer for move in on_board]))
    assert len(taught) > 400
    assert taught == legal
