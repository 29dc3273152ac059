"""The computed parts of the page on the games, written by `python docs/tables.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from msgrpo_hub.agent.policy import ScriptedPolicy, build_prompt
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.games import GAMES, episode_seed, make_game, stream
from msgrpo_hub.games.game import return_range
from msgrpo_hub.players.registry import SCRIPTED

SUITES = ("quick", "paper", "standard", "precise", "semantic")
FIRST = {"FrozenLake": "FrozenLake-NotSlippery-v1", "Snake": "Snake-Standard-v1"}
"""Family → the game whose rules the table leaves out."""


def games(family: str) -> str:
    """The registered games of a family, each with the rules that its first game does not have."""
    first, rows = make_game(FIRST[family]), []
    for game in (make_game(name) for name in GAMES if name.startswith(family)):
        others = (*first.rules, *(rule for rule in game.rules if rule.startswith(("In the grid", "The game ends after"))))
        special = " ".join(rule for rule in game.rules if rule not in others)
        (low, high), size = return_range(game), f"{game.rows}×{game.columns}"
        rows.append([f"`{game.id}`", size, str(game.horizon), f"{low:g} to {high:g}", special or "–"])
    return markdown(["game", "board", "turns", "return", "special rules"], rows)


def game_prompt() -> str:
    """The prompt of a turn, and a reply to it."""
    game = make_game(FIRST["FrozenLake"])
    prompt = build_prompt(game, game.initial_state(stream(episode_seed(game.id, "test", 0), "initial_state")))
    [reply] = ScriptedPolicy(SCRIPTED["greedy"]).complete([prompt], [np.random.default_rng(0)])
    parts: Sequence[tuple[str, str]] = [*prompt.contents, ("assistant", reply.text)]
    return "\n\n".join(f"*{role}*\n\n```text\n{text}\n```" for role, text in parts)


TABLES: dict[str, Callable[[], str]] = {
    "games-lake": partial(games, "FrozenLake"),
    "games-snake": partial(games, "Snake"),
    "game-prompt": game_prompt,
}
