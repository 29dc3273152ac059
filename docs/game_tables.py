"""The computed parts of the page on the games, written by `python docs/tables.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.games import GAMES, Game, episode_seed, make_game, stream
from msgrpo_hub.games.game import return_range
from msgrpo_hub.players.registry import SCRIPTED

SUITES = ("quick", "paper", "standard", "precise", "semantic")
FIRST = {"FrozenLake": "FrozenLake-NotSlippery-v1", "Snake": "Snake-Standard-v1"}
"""Family → the game that its others are compared with."""


def lake_games() -> str:
    """The registered lakes."""
    return _games("FrozenLake")


def snake_games() -> str:
    """The registered Snakes."""
    return _games("Snake")


def _games(family: str) -> str:
    first = make_game(FIRST[family])
    rows = [_row(make_game(name), first) for name in GAMES if name.startswith(family)]
    return markdown(["game", "board", "turns", "return", "rules of its own", "suites"], rows)


def _row(game: Game, first: Game) -> list[str]:
    told_elsewhere = ("In the grid", "The game ends after")
    own = " ".join(rule for rule in game.rules if rule not in first.rules and not rule.startswith(told_elsewhere))
    low, high = return_range(game)
    suites = ", ".join(f"`{name}`" for name in SUITES if game.id in load_suite(name).tasks)
    return [f"`{game.id}`", f"{game.rows}×{game.columns}", str(game.horizon), f"{low:g} to {high:g}", own or "–", suites or "–"]


def game_prompt() -> str:
    """What a model reads on a turn, and a reply."""
    game = make_game(FIRST["FrozenLake"])
    prompt = build_prompt(game, game.initial_state(stream(episode_seed(game.id, "test", 0), "initial_state")))
    [reply] = ScriptedPolicy(SCRIPTED["greedy"]).complete([prompt], [np.random.default_rng(0)])
    parts: Sequence[tuple[str, str]] = [*prompt.contents, ("assistant", reply.text)]
    return "\n\n".join(f"*{role}*\n\n```text\n{text}\n```" for role, text in parts)


TABLES: dict[str, Callable[[], str]] = {"games-lake": lake_games, "games-snake": snake_games, "game-prompt": game_prompt}
