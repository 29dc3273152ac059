"""A custom player that reads the text a language model reads, and a random one on the same boards."""

import re

import numpy as np

from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.games import Game, make_game
from msgrpo_hub.rollout import play_groups


def go_down_then_right(game: Game, state: object, rng: np.random.Generator) -> str:
    """Down to the row of the goal, then right to its column; it does not look at the holes."""
    row, _, goal_row, _ = map(int, re.findall(r"\d+", game.observe(state))[:4])  # You: (0, 0) Goal: (3, 3) …
    return "Down" if row < goal_row else "Right"


def choose_at_random(game: Game, state: object, rng: np.random.Generator) -> str:
    return str(rng.choice(game.actions))


if __name__ == "__main__":
    game = make_game("FrozenLake-NotSlippery-v1")
    for chooser in (go_down_then_right, choose_at_random):
        groups = play_groups(game, ScriptedPolicy(chooser), seeds=range(50), group_size=1)
        print(f"{chooser.__name__}: success on {sum(group.episodes[0].success for group in groups)} of 50 boards")
