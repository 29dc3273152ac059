"""The exam of the built-in base: every kind of question, on random states that no lesson showed, answered greedily."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import user_text
from msgrpo_hub.games import Game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.pocket.lessons import (
    Lesson,
    Task,
    about_the_board,
    about_the_rules,
    instructions,
    lookups,
    play,
    random_state,
    random_task,
)

EXAM_SEED = 1_000_003
"""The lessons use the streams (seed, 1) and (seed, 2, index); the exam uses (EXAM_SEED, index)."""


def ask(model: LanguageModel, tasks: list[Task], seed: int = EXAM_SEED) -> dict[str, float]:
    """Kind of question → share of right answers, over one random state per task."""
    asked: list[tuple[Lesson, Prompt]] = []
    for index, task in enumerate(tasks):
        rng = np.random.default_rng((seed, index))
        state = random_state(task.game, rng)
        observation = task.game.observe(state)
        for lesson in (
            play(task, state),
            *about_the_board(task, state, rng),
            *about_the_rules(task, rng),
            *lookups(task, state, rng),
            *instructions(task, state, rng),
        ):
            contents = (("system", task.system), ("user", user_text(observation, lesson.request)))
            asked.append((lesson, Prompt(contents, observation, task.game, state)))
    greedy = replace(model, temperature=0.0, max_new_tokens=48)
    completions = greedy.complete([prompt for _, prompt in asked], [np.random.default_rng()] * len(asked))
    marks: dict[str, list[float]] = defaultdict(list)
    for (lesson, _), completion in zip(asked, completions, strict=True):
        marks[lesson.kind].append(mark(lesson, completion.text))
    return {kind: float(np.mean(given)) for kind, given in sorted(marks.items())}


def mark(lesson: Lesson, answer: str) -> float:
    """1 for a right answer, else 0; where four things are asked at once, the share of the directions that are right.

    A way is the base's own choice: right is a move that it names in its thought, with true percepts before it.

    >>> mark(Lesson("each direction", "", ("Left wall Down ice Right hole Up ice",)), "Left wall Down ice Right ice Up ice")
    0.75
    >>> ways = Lesson("way", "", ("<think>Up ice way Up 2</think><action>Up</action>",))
    >>> mark(ways, "<think>Up ice way Left 1</think><action>Left</action>")
    1.0
    """
    if lesson.kind == "way":
        seen = lesson.replies[0].partition(" way ")[0]
        thought, _, move = answer.removesuffix("</action>").partition("</think><action>")
        return float(thought.startswith(f"{seen} way ") and move in thought.partition(" way ")[2].split())
    if lesson.kind != "each direction":
        return float(answer in lesson.replies)
    [wanted] = (reply.split() for reply in lesson.replies)
    given = answer.split()
    pairs = range(0, len(wanted), 2)
    return float(np.mean([given[i : i + 2] == wanted[i : i + 2] for i in pairs]))


def exam(model: LanguageModel, games: list[Game], states: int) -> dict[str, dict[str, float]]:
    """The scores on some registered games, and on random tasks (`mixed`: other rewards, fewer actions, prohibitions)."""
    scores = {game.id: ask(model, [Task(game, game.actions)] * states) for game in games}
    mixed = [random_task(np.random.default_rng((EXAM_SEED, 7, index))) for index in range(states)]
    return {**scores, "mixed": ask(model, mixed)}
