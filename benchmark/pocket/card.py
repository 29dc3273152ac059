"""The model card of the built-in base, rendered from measured scores: a held-out probe, and play.

The probe asks every kind of task on random states outside the training data, greedily.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmark.pocket import tasks
from benchmark.pocket.tasks import GameVariant, PretrainingTask, random_state, random_variant
from msgrpo_hub.agent.policy import Policy, Prompt, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import USER_TEXT
from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.statistics import mean_interval, wilson
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.scripted import choose_random, choose_random_legal, choose_random_safe
from msgrpo_hub.rollout import play_episodes

GAMES = ("FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1", "Snake-Solo-v1", "Snake-Standard-v1")
BOARD_KINDS = (
    *("each direction", "one direction", "what thing", "what cell", "where", "bearing"),
    *("goal", "nearest", "length", "opponent", "legal", "safe"),
)
"""The kinds of tasks about the board; "bearing" is the stored key of the direction task."""
EPISODES = 500
STATES = 200


PROBE_SEED = 1_000_003
"""The probe uses the random streams (PROBE_SEED, index); training uses (seed, 1) and (seed, 2, index)."""


def ask(model: LanguageModel, variants: list[GameVariant], seed: int = PROBE_SEED) -> dict[str, float]:
    """Kind of task → greedy accuracy, over one random state per variant."""
    questions: list[tuple[PretrainingTask, Prompt]] = []
    for index, variant in enumerate(variants):
        rng = np.random.default_rng((seed, index))
        state = random_state(variant.game, rng)
        observation = variant.game.observe(state)
        for task in (
            tasks.play(variant, state),
            *tasks.about_the_board(variant, state, rng),
            *tasks.about_the_rules(variant, rng),
            *tasks.lookups(variant, state, rng),
            *tasks.instructions(variant, state, rng),
        ):
            contents = (("system", variant.system), ("user", USER_TEXT.format(observation, task.request)))
            questions.append((task, Prompt(contents, observation, variant.game, state)))
    greedy = replace(model, temperature=0.0, max_new_tokens=48)
    completions = greedy.complete([prompt for _, prompt in questions], [np.random.default_rng()] * len(questions))
    scores: dict[str, list[float]] = defaultdict(list)
    for (task, _), completion in zip(questions, completions, strict=True):
        scores[task.kind].append(score(task, completion.text))
    return {kind: float(np.mean(values)) for kind, values in sorted(scores.items())}


def score(task: PretrainingTask, answer: str) -> float:
    """1 for a correct answer, else 0. For `each direction`, the share of correct directions.

    For `way`, the base chooses: an answer is correct if its thought names the move, after a correct local view.

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


def measure(model: LanguageModel) -> dict[str, Any]:
    """Scores of the probe and of validation episodes, for the base and the random players.

    The probe asks on registered games and on random variants (`mixed`: other rewards, fewer actions, prohibitions).
    """
    games: dict[str, Any] = {name: make_game(name) for name in GAMES}
    exam = {name: ask(model, [GameVariant(game, game.actions)] * STATES) for name, game in games.items()}
    exam["mixed"] = ask(model, [random_variant(np.random.default_rng((PROBE_SEED, 7, index))) for index in range(STATES)])
    players: dict[str, Policy] = {
        "pocket": replace(model, temperature=1.0, max_new_tokens=32),
        "random": ScriptedPolicy(choose_random),
        "random-legal": ScriptedPolicy(choose_random_legal),
        "random-safe": ScriptedPolicy(choose_random_safe),
    }
    played: dict[str, dict[str, Any]] = {}
    for name, game in games.items():
        keys = [(episode_seed(name, "validation", index), 0) for index in range(EPISODES)]
        for player, policy in players.items():
            episodes: list[Episode] = play_episodes(game, policy, keys)
            steps = [step for episode in episodes for step in episode.steps]
            rewards, successes = [episode.reward for episode in episodes], sum(episode.success for episode in episodes)
            success, reward = wilson(successes, EPISODES), mean_interval(rewards, 0, bounds=return_range(game))
            assert reward is not None
            played.setdefault(name, {})[player] = {
                "success": [successes / EPISODES, success.low, success.high],
                "reward": [sum(rewards) / EPISODES, reward.low, reward.high],
                "readable": sum(step.action is not None for step in steps) / len(steps),
            }
    return {"exam": exam, "play": played, "parameters": sum(parameter.numel() for parameter in model.model.parameters())}


def render(measured: Mapping[str, Any], command: str) -> str:
    """The card as Markdown with front matter."""
    exam = measured["exam"]
    probe = [f"| question | {' | '.join(exam)} |", f"|---|{'---|' * len(exam)}"]
    for kind in sorted({kind for answers in exam.values() for kind in answers}):
        cells = [f"{answers[kind]:.3f}" if kind in answers else "–" for answers in exam.values()]
        probe.append(f"| {kind} | {' | '.join(cells)} |")
    table = ["| game | player | success | reward | parsed replies |", "|---|---|---|---|---|"]
    for game, players in measured["play"].items():
        for name, row in players.items():
            success, reward = ("{:.3f} [{:.3f}, {:.3f}]".format(*row[key]) for key in ("success", "reward"))
            table.append(f"| {game} | {name} | {success} | {reward} | {row['readable']:.3f} |")
    tables = {"probe": "\n".join(probe), "play": "\n".join(table), "parameters": f"{measured['parameters']:,}"}
    return _CARD.format(**tables, command=command, states=STATES, episodes=EPISODES)


_CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
language: en
tags:
- text-games
- msgrpo
---

# pocket: the built-in base of msgrpo_hub

A causal language model with {parameters} parameters (Qwen2 architecture, own tokenizer and chat template), trained from
scratch by `{command}`. The model replaces a small instruct model, so that MS-GRPO can be tried, taught and tested in minutes
on two CPU cores without a download. It is deliberately limited: it knows only the text of two board games.

## Pretraining tasks
The model was trained by supervised learning on random boards that no play produced. The tasks are:

- Questions about the board: the content of each direction, positions and distances.
- Questions about the rules in the prompt: rewards, number of turns, available actions.
- Requests to choose ("Name a move that is not onto a hole", "Name one of Left or Up"). Every choice that satisfies the
  request is equally likely.
- Requests to act. The model first describes the board, then takes one of the allowed moves, all equally likely. On the lake,
  a move is allowed if it does not walk into a wall; in Snake, if it does not hit a wall or a snake. In some tasks fewer
  actions are available, or a rule forbids one kind of cell.
- "Think of any way, then go it." The model names one or two random directions, regardless of the board, and takes one of
  them, so that its actions can follow from its thoughts.

No task showed goal-directed play: no reward, no plan, no preference for moves by where they lead. Everything that an adapter
trained on this base knows about winning comes from rewards.

## Held-out probe
Accuracy of greedy answers on {states} random states per column that were not in the training data; for `each direction`, the
share of correct directions. `mixed` has other rewards, fewer actions and prohibitions. `play` is correct if all thoughts are
true and the move is allowed, `way` if the thought names the move, `choose` and `avoid` if the choice satisfies the request.
`bearing` asks for the direction and distance to a cell.

{probe}

## Play
Sampled at temperature 1, {episodes} validation episodes per game, 95 % intervals (Wilson for success, BCa for rewards).

{play}

## Limits
The model reads only boards and rules worded as in the package (versioned `-v1`). Other English falls back to bytes that were
rare in training. Its thoughts can be wrong, as the probe shows. It is not a general language model.
"""
