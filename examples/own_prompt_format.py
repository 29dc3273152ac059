"""A custom prompt format: the model answers with the number of an action instead of its name."""

import re
from collections.abc import Sequence

from msgrpo_hub.agent import PromptFormat, ScriptedPolicy
from msgrpo_hub.games import Game, make_game
from msgrpo_hub.rollout import play_groups

ACTIONS = ("Left", "Down", "Right", "Up")


class Numbered(PromptFormat):
    """`Answer: 2` names the second action. The rules come first, so that every prompt of a game begins alike."""

    name = "numbered"

    def render(self, game: Game, observation: str, history: Sequence[tuple[str, str]] = ()) -> list[dict[str, str]]:
        choices = "\n".join(f"{number}. {action}" for number, action in enumerate(ACTIONS, start=1))
        rules = "\n".join([game.instructions, *game.rules, choices])
        request = f"{observation}\nAnswer with the number of an action, as in: Answer: 2"
        return [{"role": "system", "content": rules}, {"role": "user", "content": request}]

    def reply(self, action: str) -> str:
        return f"Answer: {ACTIONS.index(action) + 1}"

    def parse(self, text: str, actions: Sequence[str]) -> str | None:
        found = re.search(r"Answer: ([1-4])", text)
        action = ACTIONS[int(found[1]) - 1] if found else None
        return action if action in actions else None


if __name__ == "__main__":
    game = make_game("FrozenLake-NotSlippery-v1")
    downhill = ScriptedPolicy(lambda game, state, rng: "Down" if "Down" in game.legal_actions(state) else "Right")
    [group] = play_groups(game, downhill, seeds=[0], group_size=1, prompt_format=Numbered())
    for step in group.episodes[0].steps:
        print(f"{step.completion.text}  →  {step.action}, reward {step.reward:g}")
