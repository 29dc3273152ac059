"""The exam of the built-in base: every kind of question, on random states that no lesson showed, answered greedily."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from msgrpo_hub.agent.language_model import LanguageModel
from msgrpo_hub.agent.prompt import Prompt, user_text
from msgrpo_hub.games import Game
from msgrpo_hub.pocket.lessons import (
    Lesson,
    Task,
    about_the_board,
    about_the_rules,
    instructions,
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
            *instructions(task, state, rng),
        ):
            asked.append((lesson, Prompt(task.system, user_text(observation, lesson.request), observation, task.game, state)))
    greedy = replace(model, temperature=0.0, max_new_tokens=48)
    completions = greedy.complete([prompt for _, prompt in asked], [np.random.default_rng()] * len(asked))
    right: dict[str, list[bool]] = defaultdict(list)
    for (lesson, _), completion in zip(asked, completions, strict=True):
        right[lesson.kind].append(completion.text in lesson.replies)
    return {kind: float(np.mean(answers)) for kind, answers in sorted(right.items())}


def exam(model: LanguageModel, games: list[Game], states: int) -> dict[str, dict[str, float]]:
    """The scores on some registered games, and on random tasks (`mixed`: other rewards, fewer actions, prohibitions)."""
    scores = {game.id: ask(model, [Task(game, game.actions)] * states) for game in games}
    mixed = [random_task(np.random.default_rng((EXAM_SEED, 7, index))) for index in range(states)]
    return {**scores, "mixed": ask(model, mixed)}
