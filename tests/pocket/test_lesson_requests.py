"""No request asks for a way or for the better move, and none has to do with the board of play."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import scipy.stats

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.prompt_formats import system_text
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.pocket.lessons import Task, instructions, lessons
from tests.pocket.lessons_oracle import CHOICES, MOVES, after, at, me, samples


def test_no_request_asks_for_a_way_or_for_the_better_move() -> None:
    """A list of all that is asked: a new kind of request fails here, so that its honesty is thought about."""
    cell, thing = r"\(\d, \d\)", r"(ice|hole|goal|you|wall|free|head|body|opponent|apple|banana|fire)"
    facts = [
        *(r"What lies in each direction\?", r"What lies (Left|Down|Right|Up)\?", rf"What lies at {cell}\?"),
        *(r"Where are you\?", rf"How far is {cell}\?", r"How far is the goal\?", r"Which moves are (legal|safe)\?"),
        *(rf"Which {thing} is nearest\?", r"How long are you\?", r"Where is the opponent\?"),
        *(r"How many turns has the game\?", r"Which actions are available\?", rf"What does an? {thing} give\?"),
        r"What does dying give\?",
    ]
    known = re.compile("|".join([*facts, *CHOICES.values()]))
    for task, state, rng in samples(700):
        for lesson in lessons(task, state, rng):
            assert known.fullmatch(lesson.request), lesson.request
            if lesson.kind not in CHOICES:
                assert len(lesson.replies) == 1
                assert "<action>" not in lesson.replies[0]


def test_a_prohibition_allows_every_move_that_it_does_not_forbid() -> None:
    things = set()
    for task, state, rng in samples(700):
        (lesson,) = [lesson for lesson in instructions(task, state, rng) if lesson.kind == "avoid"]
        thing = lesson.request.removeprefix("Name a move that is not onto ").removesuffix(".")
        others = [a for a in MOVES if at(task.game, state, after(me(state), a)) != thing]
        assert list(lesson.replies) == (others or ["none"])
        things.add(thing)
    assert things >= {"wall", "ice", "hole", "goal", "free", "body", "opponent", "apple"}


def test_a_choice_between_two_moves_has_nothing_to_do_with_the_board() -> None:
    """Both replies are right, and the pairs are uniform in a state where the goal lies Down and Right."""
    game = FrozenLake("lesson")
    task, state = Task(game, game.actions), LakeState(4, ((1, 1),), player=(2, 2))
    counts: Counter[tuple[str, ...]] = Counter()
    rng = np.random.default_rng(0)
    for _ in range(3600):
        (lesson,) = [lesson for lesson in instructions(task, state, rng) if lesson.kind == "choose"]
        assert lesson.request == f"Name one of {lesson.replies[0]} or {lesson.replies[1]}."
        counts[lesson.replies] += 1
    assert len(counts) == 12
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_a_way_has_nothing_to_do_with_the_board_and_the_move_is_one_that_it_names() -> None:
    """Where the goal lies Right and Down, every way is as likely as any other, off the board and into holes too."""
    game = FrozenLake("lesson")
    task, state = Task(game, game.actions), LakeState(4, ((1, 1),), player=(2, 2))
    counts: Counter[str] = Counter()
    rng = np.random.default_rng(0)
    for _ in range(4900):
        for lesson in instructions(task, state, rng):
            if lesson.kind == "way":
                thoughts = {reply.partition("</think>")[0] for reply in lesson.replies}
                (way,) = (thought.partition(" way ")[2] for thought in thoughts)
                moves = [parse_action(reply, game.actions) for reply in lesson.replies]
                assert moves == [action for action in MOVES if action in way.split()]
                counts[way] += 1
    assert len(counts) == 48  # 7 × 7 offsets, less none at all
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_no_lesson_counts_one_of_its_replies_twice() -> None:
    for task, state, rng in samples(300):
        for lesson in lessons(task, state, rng):
            assert len(lesson.replies) == len(set(lesson.replies)) >= 1


def test_the_system_message_never_gains_a_hint() -> None:
    """It is the game's own, but for fewer actions and at most one prohibition, which is never about the goal."""
    for task, _, _ in samples(500):
        own = system_text(task.game).replace("Left, Down, Right, Up", ", ".join(task.actions))
        extra = task.system.removeprefix(own)
        assert extra in ("", f"\nNever move onto {task.avoid}.")
        assert task.avoid != "goal"
        assert set(task.actions) <= set(MOVES)
        assert len(task.actions) >= 2
