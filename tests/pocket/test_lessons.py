"""Every answer of a lesson is a fact of the state or of the prompt, and no reply to the play request favours a good move."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.prompt_formats import REPLY_FORMAT
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.snake import Snake
from msgrpo_hub.pocket.lessons import Task, bearing, lessons, play, random_state
from tests.pocket.lessons_oracle import CHOICES, MOVES, Cell, after, at, me, samples, steps_between


def allowed(task: Task, state: Any) -> list[str]:
    """The available moves that hit neither a wall nor a snake nor what the task says to avoid; all of them if none is left."""
    bad = {"wall", "body", "opponent", task.avoid}
    return [a for a in task.actions if at(task.game, state, after(me(state), a)) not in bad] or list(task.actions)


def walked(start: Cell, words: str) -> Cell:
    """Where a bearing such as `Right 2 Up 1` leads."""
    if words == "here":
        return start
    assert re.fullmatch(r"\w+ [1-9]\d*( \w+ [1-9]\d*)?", words)
    for action, steps in re.findall(r"(\w+) (\d+)", words):
        start = start[0] + int(steps) * MOVES[action][0], start[1] + int(steps) * MOVES[action][1]
    return start


def cell_of(text: str) -> Cell:
    row, column = re.fullmatch(r"\((\d+), (\d+)\)", text).groups()  # type: ignore[union-attr]
    return int(row), int(column)


def is_right(task: Task, state: Any, request: str, answer: str) -> bool:
    """Whether an answer to a question with one right answer is that answer."""
    game, here, system = task.game, me(state), task.system
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


# ---- what is taught is right


def test_every_answer_about_board_and_rules_is_a_fact_of_the_state_or_of_the_prompt() -> None:
    asked: Counter[str] = Counter()
    for task, state, rng in samples(700):
        for lesson in lessons(task, state, rng):
            if lesson.kind not in CHOICES:
                (answer,) = lesson.replies
                assert is_right(task, state, lesson.request, answer), (lesson, state)
                asked[lesson.kind] += 1
    kinds = {"each direction", "one direction", "where", "what thing", "what cell", "bearing", "legal", "safe"}
    assert asked.keys() == kinds | {"goal", "nearest", "length", "opponent", "rules"}
    assert min(asked.values()) > 50


def test_the_oracle_tells_a_wrong_answer() -> None:
    """Guards the test above: an answer that belongs to another state is mostly found out."""
    wrong: defaultdict[str, list[bool]] = defaultdict(list)
    for task, state, rng in samples(200):
        other = random_state(task.game, rng)
        for lesson in lessons(task, state, rng):
            if lesson.kind not in (*CHOICES, "rules"):
                wrong[lesson.kind].append(not is_right(task, other, lesson.request, lesson.replies[0]))
    rates = {kind: np.mean(found) for kind, found in wrong.items()}
    assert min(rates.values()) > 0.2, rates


@given(here=st.tuples(st.integers(0, 9), st.integers(0, 9)), there=st.tuples(st.integers(0, 9), st.integers(0, 9)))
@settings(deadline=None)
def test_a_bearing_leads_from_here_to_there_by_a_shortest_way(here: Cell, there: Cell) -> None:
    words = bearing(here, there)
    assert walked(here, words) == there
    assert sum(map(int, re.findall(r"\d+", words))) == steps_between(here, there)


# ---- what is taught is honest


def test_replies_to_the_play_request_are_exactly_the_allowed_moves_whatever_they_lead_to() -> None:
    """One reply for each allowed move, with one and the same thought: none is taught more often than another."""
    counts = set()
    for task, state, _ in samples(1500):
        lesson = play(task, state)
        moves = [parse_action(reply, task.actions) for reply in lesson.replies]
        assert moves == allowed(task, state)
        thoughts = {reply.removesuffix(f"<action>{move}</action>") for reply, move in zip(lesson.replies, moves, strict=True)}
        assert len(thoughts) == 1
        assert lesson.request == REPLY_FORMAT
        counts.add((len(moves), isinstance(state, LakeState), bool(task.avoid), len(task.actions)))
    assert len(counts) > 15  # of moves allowed, in both games, with and without a prohibition, with fewer actions


def test_the_thought_before_a_move_holds_percepts_only() -> None:
    for task, state, _ in samples(500):
        thought = re.fullmatch(r"<think>(.*)</think><action>\w+</action>", play(task, state).replies[0])
        assert thought is not None
        seen, _, item = thought[1].partition(" nearest ")
        assert is_right(task, state, "What lies in each direction?", seen)
        assert bool(item) == (isinstance(task.game, Snake) and any(i.grows for i in task.game.items))
        if item:
            name, _, answer = item.partition(" ")
            cells = {c for i, cs in zip(task.game.items, state.items, strict=True) for c in cs if i.grows}
            assert steps_between(me(state), cell_of(f"{answer.partition(')')[0]})")) == min(
                steps_between(me(state), c) for c in cells
            )
            assert at(task.game, state, walked(me(state), answer.partition(") ")[2])) == name


@pytest.mark.parametrize("reward", [-5.0, 1.0, 10.0])
def test_what_an_item_is_worth_changes_no_reply(reward: float) -> None:
    """Poison is approached and shunned as little as food."""
    for task, state, _ in samples(300):
        if isinstance(task.game, Snake):
            items = tuple(replace(item, reward=reward) for item in task.game.items)
            other = replace(task, game=replace(task.game, items=items, death_reward=-9.0))
            assert play(other, state).replies == play(task, state).replies


def test_moves_towards_the_goal_are_taught_as_often_as_random_legal_play_takes_them() -> None:
    """The mean over states of the share of replies that come nearer to the goal, against the same share of legal moves."""
    taught, legal = [], []
    for task, state, _ in samples(2000):
        if isinstance(task.game, FrozenLake) and not task.avoid and len(task.actions) == 4:
            goal, here = (task.game.rows - 1,) * 2, me(state)
            nearer = {a for a in MOVES if steps_between(after(here, a), goal) < steps_between(here, goal)}
            moves = [parse_action(reply, task.actions) for reply in play(task, state).replies]
            on_board = [a for a in MOVES if at(task.game, state, after(here, a)) != "wall"]
            taught.append(np.mean([move in nearer for move in moves]))
            legal.append(np.mean([move in nearer for move in on_board]))
    assert len(taught) > 400
    assert taught == legal
