"""An episode of two turns, the same everywhere: of a model, whose tokens are known, or of a scripted player."""

from __future__ import annotations

from dataclasses import replace

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.games import make_game
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.storage.tables import Origin, Rollout

LAKE = "FrozenLake-NotSlippery-v1"
ORIGIN = Origin(split="train", player="training", run="0123456789abcdef", base="pocket", base_revision="0" * 64)
EVALUATED = Origin(split="test", player="random", run="fedcba9876543210")

_REPLIES = [
    Completion(
        text="<think>There is the edge.</think><action>Up</action>",
        prompt_ids=(1, 20, 21, 22),
        token_ids=(30, 31, 2),
        log_probs=(-0.5, -0.25, 1e-9),
        entropies=(0.7, 0.3, 0.0),
    ),
    Completion(
        text="Ünsure \ud800",
        finish="length",
        prompt_ids=(1, 20, 21),
        token_ids=(40,),
        log_probs=(-2.0,),
        entropies=(2.0,),
    ),
]
"""Replies with what is awkward in a file: a rounded log-probability above 0, and half of a character."""


def scripted_episode(steps: int = 2) -> Episode:
    """The first steps of a random player's episode."""
    [group] = play_groups(make_game(LAKE), ScriptedPolicy(choose_random), [5], 1)
    [episode] = group.episodes
    return replace(episode, steps=episode.steps[:steps])


def scripted() -> Rollout:
    return Rollout(episode=scripted_episode(), index=0)


def of_a_model(update: int = 3, member: int = 0) -> Rollout:
    episode = scripted_episode()
    first, second = (replace(step, completion=reply) for step, reply in zip(episode.steps, _REPLIES, strict=True))
    second = replace(second, action=None, status="truncated_reply", legal=False)
    played = replace(episode, steps=(first, second), member=member)
    return Rollout(episode=played, update=update, advantage=0.5, step_advantages=(0.5, 0.25), selected=True)
