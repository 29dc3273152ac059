"""Pretraining tasks: every answer is a fact of the state or the prompt, and no task shows which move is good."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.stats

from benchmark.pocket.tasks import PLAY_REQUEST, GameVariant, instructions, play, pretraining_tasks, random_state
from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.snake import Snake
from tests.pocket.tasks_oracle import MOVES, Cell, after, at, me, samples, steps_between

CHOICES = {
    "way": r"Think of any way, then go it\.",
    "play": re.escape(PLAY_REQUEST),
    "choose": r"Name one of (Left|Down|Right|Up) or (Left|Down|Right|Up)\.",
    "avoid": r"Name a move that is not onto \w+\.",
}
"""The kinds of tasks with several correct replies; all other kinds are questions of fact."""
CELL, THING = r"\(\d, \d\)", r"(ice|hole|goal|you|wall|free|head|body|opponent|apple|banana|fire)"
FACTS = [
    *(r"What lies in each direction\?", r"What lies (Left|Down|Right|Up)\?", rf"What lies at {CELL}\?"),
    *(r"Where are you\?", rf"How far is {CELL}\?", r"How far is the goal\?", r"Which moves are (legal|safe)\?"),
    *(rf"Which {THING} is nearest\?", r"How long are you\?", r"Where is the opponent\?"),
    *(r"How many turns has the game\?", r"Which actions are available\?", rf"What does an? {THING} give\?"),
    r"What does dying give\?",
]


def allowed(variant: GameVariant, state: Any) -> list[str]:
    """The available moves that hit no wall, no snake and nothing forbidden, or else all available moves."""
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


def test_every_answer_is_a_fact_and_no_request_asks_for_a_path_or_the_better_move() -> None:
    """A new kind of request fails here, so that its author checks that it teaches no play."""
    counts: Counter[str] = Counter()
    wrong: defaultdict[str, list[bool]] = defaultdict(list)
    known = re.compile("|".join([*FACTS, *CHOICES.values()]))
    for variant, state, rng in samples(700):
        other = random_state(variant.game, rng)
        for task in pretraining_tasks(variant, state, rng):
            assert known.fullmatch(task.request), task.request
            assert len(task.replies) == len(set(task.replies)) >= 1
            if task.kind not in CHOICES:
                (answer,) = task.replies
                assert is_right(variant, state, task.request, answer), (task, state)
                assert "<action>" not in answer
                counts[task.kind] += 1
                if task.kind != "rules":
                    wrong[task.kind].append(not is_right(variant, other, task.request, answer))
    kinds = {"each direction", "one direction", "where", "what thing", "what cell", "bearing", "legal", "safe"}
    assert counts.keys() == kinds | {"goal", "nearest", "length", "opponent", "rules"}
    assert min(counts.values()) > 50
    assert min(map(np.mean, wrong.values())) > 0.2  # the oracle rejects most answers about another state


def test_replies_to_the_play_request_are_the_allowed_moves_with_one_thought() -> None:
    """So training favours no move, and the thought has only the local view and the nearest food."""
    counts = set()
    for variant, state, _ in samples(1500):
        task = play(variant, state)
        moves = [parse_action(reply, variant.actions) for reply in task.replies]
        assert moves == allowed(variant, state)
        (thought,) = {reply.removesuffix(f"<action>{move}</action>") for reply, move in zip(task.replies, moves, strict=True)}
        assert task.request == PLAY_REQUEST
        counts.add((len(moves), isinstance(state, LakeState), bool(variant.avoid), len(variant.actions)))
        seen, _, item = thought.removeprefix("<think>").removesuffix("</think>").partition(" nearest ")
        assert is_right(variant, state, "What lies in each direction?", seen)
        assert bool(item) == (isinstance(variant.game, Snake) and any(i.grows for i in variant.game.items))
        if item:
            name, _, answer = item.partition(" ")
            cells = {c for i, cs in zip(variant.game.items, state.items, strict=True) for c in cs if i.grows}
            there = cell_of(f"{answer.partition(')')[0]})")
            assert steps_between(me(state), there) == min(steps_between(me(state), cell) for cell in cells)
            assert at(variant.game, state, walked(me(state), answer.partition(") ")[2])) == name
    assert len(counts) > 15  # number of moves, game, prohibition, number of actions


def test_choices_and_ways_do_not_depend_on_the_board() -> None:
    """With the goal Right and Down, all pairs and all ways are equally likely, also ways off the board and into holes."""
    game = FrozenLake("task")
    variant, state = GameVariant(game, game.actions), LakeState(4, ((1, 1),), player=(2, 2))
    choices: Counter[tuple[str, ...]] = Counter()
    ways: Counter[str] = Counter()
    rng = np.random.default_rng(0)
    for _ in range(4900):
        tasks = {task.kind: task for task in instructions(variant, state, rng)}
        assert tasks["choose"].request == f"Name one of {tasks['choose'].replies[0]} or {tasks['choose'].replies[1]}."
        choices[tasks["choose"].replies] += 1
        if way_task := tasks.get("way"):
            (thought,) = {reply.partition("</think>")[0] for reply in way_task.replies}
            way = thought.partition(" way ")[2]
            moves = [parse_action(reply, game.actions) for reply in way_task.replies]
            assert moves == [action for action in MOVES if action in way.split()]
            ways[way] += 1
    assert (len(choices), len(ways)) == (12, 48)  # 7 × 7 offsets without (0, 0)
    for counts in (choices, ways):
        assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3
