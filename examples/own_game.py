"""A custom game, played by two players. `docs/guide/own-game.md` makes a game known by name, so that it trains too."""

from typing import NamedTuple

import numpy as np

from msgrpo_hub.agent import Policy, ScriptedPolicy
from msgrpo_hub.games import Game, Transition
from msgrpo_hub.rollout import play_groups


class State(NamedTuple):
    cell: int
    turn: int


class Corridor(Game):
    """Five cells in a row; the door is at the right end, and the floor is slippery."""

    id, rows, columns, horizon, actions, reward_range = "Corridor-v1", 1, 5, 8, ("Left", "Right"), (0.0, 1.0)
    return_range = (0.0, 1.0)
    instructions = "You stand in a corridor. Reach the door."
    rules = ("Cells are numbered from 0 at the left to 4 at the right.", "One step in five slips and goes nowhere.")
    symbols = {".": "floor", "@": "you", "D": "door"}

    def initial_state(self, rng: np.random.Generator) -> State:
        return State(cell=int(rng.integers(3)), turn=0)

    def step(self, state: State, action: str | None, rng: np.random.Generator) -> Transition[State]:
        move = 0 if action is None or rng.random() < 0.2 else {"Left": -1, "Right": 1}[action]
        cell = min(max(state.cell + move, 0), 4)
        at_door, turn = cell == 4, state.turn + 1
        return Transition(State(cell, turn), float(at_door), at_door, turn == self.horizon and not at_door)

    def observe(self, state: State) -> str:
        return f"You: cell {state.cell}\nDoor: cell 4"

    def grid(self, state: State) -> list[str]:
        return ["".join("@" if cell == state.cell else "D" if cell == 4 else "." for cell in range(5))]

    def legal_actions(self, state: State) -> tuple[str, ...]:
        return self.actions if state.cell else ("Right",)

    safe_actions = legal_actions

    def succeeded(self, state: State) -> bool:
        return state.cell == 4


game = Corridor()
players: dict[str, Policy] = {
    "right": ScriptedPolicy(lambda game, state, rng: "Right"),
    "random": ScriptedPolicy(lambda game, state, rng: str(rng.choice(game.actions))),
}
for name, player in players.items():
    [group] = play_groups(game, player, seeds=[0], group_size=20)
    print(f"{name}: reached the door in {sum(episode.success for episode in group.episodes)} of 20 episodes")
