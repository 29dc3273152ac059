"""The model card of the built-in base, rendered from measured scores; no number is typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmark.pocket.probe import held_out_probe
from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
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


def measure(model: LanguageModel) -> dict[str, Any]:
    """The scores of the held-out probe, and of play on validation seeds, beside those of the random players."""
    base = replace(model, temperature=1.0, max_new_tokens=32)
    players: dict[str, Policy] = {
        "pocket": base,
        "random": ScriptedPolicy(choose_random),
        "random-legal": ScriptedPolicy(choose_random_legal),
        "random-safe": ScriptedPolicy(choose_random_safe),
    }
    return {
        "exam": held_out_probe(model, [make_game(game) for game in GAMES], STATES),
        "play": {game: {name: _play(game, player) for name, player in players.items()} for game in GAMES},
        "parameters": sum(parameter.numel() for parameter in model.model.parameters()),
    }


def _play(game_id: str, player: Policy) -> dict[str, Any]:
    episode_keys = [(episode_seed(game_id, "validation", index), 0) for index in range(EPISODES)]
    episodes: list[Episode] = play_episodes(make_game(game_id), player, episode_keys)
    steps = [step for episode in episodes for step in episode.steps]
    success = wilson(sum(episode.success for episode in episodes), EPISODES)
    rewards = [episode.reward for episode in episodes]
    reward = mean_interval(rewards, 0, bounds=return_range(make_game(game_id)))
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
        probe=_probe_table(measured["exam"]),
        play=_play_table(measured["play"]),
        command=command,
        states=STATES,
        episodes=EPISODES,
    )


def _probe_table(scores: Mapping[str, Mapping[str, float]]) -> str:
    kinds = sorted({kind for answers in scores.values() for kind in answers})
    lines = [f"| question | {' | '.join(scores)} |", f"|---|{'---|' * len(scores)}"]
    for kind in kinds:
        cells = [f"{answers[kind]:.3f}" if kind in answers else "–" for answers in scores.values()]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _play_table(play: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["| game | player | success | reward | parsed replies |", "|---|---|---|---|---|"]
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
