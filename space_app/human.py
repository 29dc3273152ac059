"""Play it yourself: a visitor on a seed, move by move, then the agent and the optimum on the same one.

Nothing is kept here between two moves: the visitor's page holds the moves so far and sends them all, so that visitors cannot
disturb each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import checks
import players
import replay

from msgrpo_hub.agent import build_prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, stream
from msgrpo_hub.players import can_play
from msgrpo_hub.rendering import game_data, state_data

LONGEST_MOVES = 100
"""Moves of an episode at most; no registered game has so many turns."""


def play_step(game: str, seed: int, actions: list[str], action: str = "") -> dict[str, Any]:
    """The moves so far and one more: the board after them.

    Args:
        game: id of a game.
        seed: number of the test episode, as for watch.
        actions: the moves so far, each an action of the game; none for the first board.
        action: the next move; empty for none.

    Returns:
        `game`, `states`, `steps` (action and reward of each), `actions` (all moves so far), `legal` (names), `reward` so far,
        `turns_left`, `over`, `success` and `rules` (what a model is told).
    """
    rules, number = checks.game(game), checks.number(seed)
    moves = [*_moves(rules, actions), *_moves(rules, [action] if action else [])]
    value = replay.seed_of(rules, number)
    state = rules.initial_state(stream(value, "initial_state"))
    dynamics = stream(value, "dynamics", 0)
    states, over = [state], False
    steps: list[dict[str, Any]] = []
    for move in moves:
        if over:
            raise UserError(f"{len(moves)} moves: the episode was over after {len(steps)}; begin another")
        after = rules.step(state, move, dynamics)
        state, over = after.state, after.terminated or after.truncated
        states.append(state)
        steps.append({"action": rules.actions.index(move), "reward": after.reward, "legal": [], "optimal": [], "status": "ok"})
    return {
        "game": game_data(rules),
        "number": number,
        "states": [state_data(rules, each) for each in states],
        "steps": steps,
        "actions": moves,
        "legal": [] if over else list(rules.legal_actions(state)),
        "reward": sum(step["reward"] for step in steps),
        "turns_left": rules.horizon - len(steps),
        "over": over,
        "success": over and rules.succeeded(state),
        "rules": build_prompt(rules, states[0]).system,
    }


def _moves(rules: Game, actions: Sequence[str]) -> list[str]:
    if not isinstance(actions, list) or len(actions) > LONGEST_MOVES:
        raise UserError(f"expected a list of at most {LONGEST_MOVES} moves")
    for action in actions:
        if action not in rules.actions:
            raise UserError(f"unknown move {str(action)[:30]!r}: expected one of {', '.join(rules.actions)}")
    return actions


def play_result(game: str, seed: int, player: str) -> dict[str, Any]:
    """What others get on a seed, for somebody who has played it: the agent, and the best player that knows the game.

    Args:
        game: id of a game.
        seed: number of the test episode.
        player: as for watch.

    Returns:
        `agent` and `best` with `player`, `reward`, `success` and `turns`; `best` also with `value_optimal`, what perfect play
        is worth on this board on average (None where the game is not solved); and the `film` of the agent.
    """
    rules, number = checks.game(game), checks.number(seed)
    best = "optimal" if can_play("optimal", rules) else "planner" if can_play("planner", rules) else "random-safe"
    found = {}
    for role, name in (("agent", players.check_player(player, rules)), ("best", best)):
        [episode] = players.play(name, rules, [replay.seed_of(rules, number)])
        found[role] = replay.track(rules, name, episode)
    shown = ("player", "reward", "success", "value_optimal")
    told = {role: {name: track[name] for name in shown} | {"turns": len(track["steps"])} for role, track in found.items()}
    return {**told, "film": replay.assemble(number, [found["agent"]])}
