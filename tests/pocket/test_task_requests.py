"""No request asks for a path or for the better move, and choices do not depend on the board."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import scipy.stats

from benchmark.pocket.tasks import GameVariant, instructions, pretraining_tasks
from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.prompt_formats import system_text
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from tests.pocket.tasks_oracle import CHOICES, MOVES, after, at, me, samples


def test_no_request_asks_for_a_path_or_for_the_better_move() -> None:
    """The list of all requests. A new kind of request fails here, so that its author checks that it teaches no play."""
    cell, thing = r"\(\d, \d\)", r"(ice|hole|goal|you|wall|free|head|body|opponent|apple|banana|fire)"
    facts = [
        *(r"What lies in each direction\?", r"What lies (Left|Down|Right|Up)\?", rf"What lies at {cell}\?"),
        *(r"Where are you\?", rf"How far is {cell}\?", r"How far is the goal\?", r"Which moves are (legal|safe)\?"),
        *(rf"Which {thing} is nearest\?", r"How long are you\?", r"Where is the opponent\?"),
        *(r"How many turns has the game\?", r"Which actions are available\?", rf"What does an? {thing} give\?"),
        r"What does dying give\?",
    ]
    known = re.compile("|".join([*facts, *CHOICES.values()]))
    for variant, state, rng in samples(700):
        for task in pretraining_tasks(variant, state, rng):
            assert known.fullmatch(task.request), task.request
            if task.kind not in CHOICES:
                assert len(task.replies) == 1
                assert "<action>" not in task.replies[0]


def test_a_prohibition_allows_every_move_that_it_does_not_forbid() -> None:
    things = set()
    for variant, state, rng in samples(700):
        (task,) = [task for task in instructions(variant, state, rng) if task.kind == "avoid"]
        thing = task.request.removeprefix("Name a move that is not onto ").removesuffix(".")
        others = [a for a in MOVES if at(variant.game, state, after(me(state), a)) != thing]
        assert list(task.replies) == (others or ["none"])
        things.add(thing)
    assert things >= {"wall", "ice", "hole", "goal", "free", "body", "opponent", "apple"}


def test_a_choice_between_two_moves_does_not_depend_on_the_board() -> None:
    """Both replies are correct, and the pairs are uniform in a state whose goal lies Down and Right."""
    game = FrozenLake("task")
    variant, state = GameVariant(game, game.actions), LakeState(4, ((1, 1),), player=(2, 2))
    counts: Counter[tuple[str, ...]] = Counter()
    rng = np.random.default_rng(0)
    for _ in range(3600):
        (task,) = [task for task in instructions(variant, state, rng) if task.kind == "choose"]
        assert task.request == f"Name one of {task.replies[0]} or {task.replies[1]}."
        counts[task.replies] += 1
    assert len(counts) == 12
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_a_way_does_not_depend_on_the_board_and_names_the_move() -> None:
    """With the goal Right and Down, all ways are equally likely, including ways off the board and into holes."""
    game = FrozenLake("task")
    variant, state = GameVariant(game, game.actions), LakeState(4, ((1, 1),), player=(2, 2))
    counts: Counter[str] = Counter()
    rng = np.random.default_rng(0)
    for _ in range(4900):
        for task in instructions(variant, state, rng):
            if task.kind == "way":
                thoughts = {reply.partition("</think>")[0] for reply in task.replies}
                (way,) = (thought.partition(" way ")[2] for thought in thoughts)
                moves = [parse_action(reply, game.actions) for reply in task.replies]
                assert moves == [action for action in MOVES if action in way.split()]
                counts[way] += 1
    assert len(counts) == 48  # 7 × 7 offsets without (0, 0)
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_the_replies_of_a_task_are_distinct() -> None:
    for variant, state, rng in samples(300):
        for task in pretraining_tasks(variant, state, rng):
            assert len(task.replies) == len(set(task.replies)) >= 1


def test_the_system_message_never_gains_a_hint() -> None:
    """The message is the game's own, except for fewer actions and at most one prohibition, never about the goal."""
    for variant, _, _ in samples(500):
        own = system_text(variant.game).replace("Left, Down, Right, Up", ", ".join(variant.actions))
        extra = variant.system.removeprefix(own)
        assert extra in ("", f"\nNever move onto {variant.avoid}.")
        assert variant.avoid != "goal"
        assert set(variant.actions) <= set(MOVES)
        assert len(variant.actions) >= 2
