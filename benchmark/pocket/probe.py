"""The held-out probe of the built-in base: every kind of task on random states outside its training data, greedily."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from benchmark.pocket.tasks import (
    GameVariant,
    PretrainingTask,
    about_the_board,
    about_the_rules,
    instructions,
    lookups,
    play,
    random_state,
    random_variant,
)
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import user_text
from msgrpo_hub.games import Game
from msgrpo_hub.models.language_model import LanguageModel

PROBE_SEED = 1_000_003
"""Training uses the streams (seed, 1) and (seed, 2, index); the probe uses (PROBE_SEED, index)."""


def ask(model: LanguageModel, variants: list[GameVariant], seed: int = PROBE_SEED) -> dict[str, float]:
    """Kind of task → accuracy, over one random state per variant."""
    questions: list[tuple[PretrainingTask, Prompt]] = []
    for index, variant in enumerate(variants):
        rng = np.random.default_rng((seed, index))
        state = random_state(variant.game, rng)
        observation = variant.game.observe(state)
        for task in (
            play(variant, state),
            *about_the_board(variant, state, rng),
            *about_the_rules(variant, rng),
            *lookups(variant, state, rng),
            *instructions(variant, state, rng),
        ):
            contents = (("system", variant.system), ("user", user_text(observation, task.request)))
            questions.append((task, Prompt(contents, observation, variant.game, state)))
    greedy = replace(model, temperature=0.0, max_new_tokens=48)
    completions = greedy.complete([prompt for _, prompt in questions], [np.random.default_rng()] * len(questions))
    scores: dict[str, list[float]] = defaultdict(list)
    for (task, _), completion in zip(questions, completions, strict=True):
        scores[task.kind].append(score(task, completion.text))
    return {kind: float(np.mean(values)) for kind, values in sorted(scores.items())}


def score(task: PretrainingTask, answer: str) -> float:
    """1 for a correct answer, else 0. For `each direction`, the share of correct directions.

    For `way`, the base chooses: an answer is correct if the move is named in its thought, after a correct local view.

    >>> view = PretrainingTask("each direction", "", ("Left wall Down ice Right hole Up ice",))
    >>> score(view, "Left wall Down ice Right ice Up ice")
    0.75
    >>> ways = PretrainingTask("way", "", ("<think>Up ice way Up 2</think><action>Up</action>",))
    >>> score(ways, "<think>Up ice way Left 1</think><action>Left</action>")
    1.0
    """
    if task.kind == "way":
        view = task.replies[0].partition(" way ")[0]
        thought, _, move = answer.removesuffix("</action>").partition("</think><action>")
        return float(thought.startswith(f"{view} way ") and move in thought.partition(" way ")[2].split())
    if task.kind != "each direction":
        return float(answer in task.replies)
    [expected] = (reply.split() for reply in task.replies)
    words = answer.split()
    pairs = range(0, len(expected), 2)
    return float(np.mean([words[i : i + 2] == expected[i : i + 2] for i in pairs]))


def held_out_probe(model: LanguageModel, games: list[Game], states: int) -> dict[str, dict[str, float]]:
    """The scores on registered games, and on random variants (`mixed`: other rewards, fewer actions, prohibitions)."""
    scores = {game.id: ask(model, [GameVariant(game, game.actions)] * states) for game in games}
    mixed = [random_variant(np.random.default_rng((PROBE_SEED, 7, index))) for index in range(states)]
    return {**scores, "mixed": ask(model, mixed)}
