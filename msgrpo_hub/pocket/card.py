"""The model card of the built-in base, written from its exam and its play; no number in it is typed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.statistics import mean_interval, wilson
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.scripted import choose_random, choose_random_legal, choose_random_safe
from msgrpo_hub.pocket.exam import exam
from msgrpo_hub.rollout import play_episodes

GAMES = ("FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1", "Snake-Solo-v1", "Snake-Standard-v1")
PERCEPTS = (
    *("each direction", "one direction", "what thing", "what cell", "where", "bearing"),
    *("goal", "nearest", "length", "opponent", "legal", "safe"),
)
EPISODES = 500
STATES = 200


def measure(model: LanguageModel) -> dict[str, Any]:
    """Exam scores, and how the base plays beside the random players, on validation seeds."""
    base = replace(model, temperature=1.0, max_new_tokens=32)
    players: dict[str, Policy] = {
        "pocket": base,
        "random": ScriptedPolicy(choose_random),
        "random-legal": ScriptedPolicy(choose_random_legal),
        "random-safe": ScriptedPolicy(choose_random_safe),
    }
    return {
        "exam": exam(model, [make_game(game) for game in GAMES], STATES),
        "play": {game: {name: _play(game, player) for name, player in players.items()} for game in GAMES},
        "parameters": sum(parameter.numel() for parameter in model.model.parameters()),
    }


def _play(game_id: str, player: Policy) -> dict[str, Any]:
    episode_keys = [(episode_seed(game_id, "validation", index), 0) for index in range(EPISODES)]
    episodes: list[Episode] = play_episodes(make_game(game_id), player, episode_keys)
    steps = [step for episode in episodes for step in episode.steps]
    success = wilson(sum(episode.success for episode in episodes), EPISODES)
    rewards = [episode.reward for episode in episodes]
    reward = mean_interval(rewards, 0)
    assert reward is not None
    return {
        "success": [sum(episode.success for episode in episodes) / EPISODES, success.low, success.high],
        "reward": [sum(rewards) / EPISODES, reward.low, reward.high],
        "readable": sum(step.action is not None for step in steps) / len(steps),
    }


def render(measured: Mapping[str, Any], command: str) -> str:
    """The card as Markdown with front matter."""
    return _CARD.format(
        parameters=f"{measured['parameters']:,}",
        exam=_exam_table(measured["exam"]),
        play=_play_table(measured["play"]),
        command=command,
        states=STATES,
        episodes=EPISODES,
    )


def _exam_table(scores: Mapping[str, Mapping[str, float]]) -> str:
    kinds = sorted({kind for answers in scores.values() for kind in answers})
    lines = [f"| question | {' | '.join(scores)} |", f"|---|{'---|' * len(scores)}"]
    for kind in kinds:
        cells = [f"{answers[kind]:.3f}" if kind in answers else "–" for answers in scores.values()]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _play_table(play: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["| game | player | success | reward | readable replies |", "|---|---|---|---|---|"]
    for game, players in play.items():
        for name, row in players.items():
            success, reward = ("{:.3f} [{:.3f}, {:.3f}]".format(*row[key]) for key in ("success", "reward"))
            lines.append(f"| {game} | {name} | {success} | {reward} | {row['readable']:.3f} |")
    return "\n".join(lines)


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

A causal language model of {parameters} parameters (Qwen2 architecture, own tokenizer and chat template), made from
nothing by `{command}`. It is a stand-in for a small instruct model, so that MS-GRPO can be tried, taught and tested in
minutes on two CPU cores without a download. It knows nothing but the text of two board games.

## What it was taught, and what not
Supervised, on random boards that no play leads to: questions about the board it is shown (what lies in each direction,
where things are, how far), questions about the rules in its prompt (rewards, number of turns, available actions), and
requests to choose ("Name a move that is not onto a hole", "Name one of Left or Up"), where every choice that fits the
words is equally likely. Asked to act, it first says what it sees and then takes one of the allowed moves, all equally
likely: on the lake those that do not walk into a wall, in Snake those that do not hit a wall or a snake; in some lessons
fewer actions are available, or a rule forbids one kind of cell. Asked to "think of any way, then go it", it names
one or two directions drawn at random, whatever the board holds, and takes one of those it named: so that what it does can
follow from what it thinks.

It was never shown goal-directed play: no reward, no plan, no move preferred for where it leads. What an adapter
trained on it knows about winning, it learned from rewards.

## Exam
Share of right answers (of right directions, for `each direction`), greedy, on {states} random states per column that no
lesson showed. `mixed` has other rewards, fewer actions, prohibitions. `play` is right when the thoughts are all true and
the move is an allowed one, `way` when the move is one that its thought names, `choose` and `avoid` when the choice fits
the words.

{exam}

## Play
Sampled at temperature 1, {episodes} validation episodes per game, 95 % intervals (Wilson for success, BCa for rewards).

{play}

## Limits
It reads only boards and rules worded as in the package (versioned `-v1`); other English falls back to bytes it has
hardly seen. Its thoughts can be wrong where the exam says so. It is no language model in any wider sense.
"""
