"""A player of one's own that reads the text of the prompt, as a language model does, and a random one on the same boards."""

import re
from collections.abc import Sequence

import numpy as np

from msgrpo_hub.agent import Policy, Prompt, ScriptedPolicy
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import make_game
from msgrpo_hub.rollout import play_groups


class Downhill:
    """Goes down to the row of the goal, then right to its column; it does not look at the holes."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        return [Completion(text=reply(prompt.user)) for prompt in prompts]


def reply(text: str) -> str:
    (row, column), goal = (cell(name, text) for name in ("You", "Goal"))
    move = "Down" if row < goal[0] else "Right"
    return f"<think>From ({row}, {column}) to {goal}.</think><action>{move}</action>"


def cell(name: str, text: str) -> tuple[int, int]:
    row, column = re.findall(rf"{name}: \((\d+), (\d+)\)", text)[0]
    return int(row), int(column)


game = make_game("FrozenLake-NotSlippery-v1")
players: dict[str, Policy] = {
    "downhill": Downhill(),
    "random": ScriptedPolicy(lambda game, state, rng: str(rng.choice(game.actions))),
}
for name, player in players.items():
    groups = play_groups(game, player, seeds=range(50), group_size=1)
    print(f"{name}: success on {sum(group.episodes[0].success for group in groups)} of 50 boards")
