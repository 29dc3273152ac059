"""The Play tab: a visitor plays a seed move by move, then the agent and the best player play the same one.

The server keeps nothing between two moves: the visitor's page sends all moves so far.
"""

from __future__ import annotations

from typing import Any

import players
import replay

from msgrpo_hub.agent import build_prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import episode_seed, stream
from msgrpo_hub.players import can_play
from msgrpo_hub.rendering.replay import game_data, how_it_ended, state_data


def play_step(game: str, seed: int, actions: list[str], action: str = "") -> dict[str, Any]:
    """Plays the moves so far and one more, and returns the board after them.

    Args:
        game: id of a game.
        seed: number of the test episode, as for watch.
        actions: the moves so far, each an action of the game; empty for the first board.
        action: the next move, or an empty text.

    Returns:
        `game`, `states`, `steps` (action and reward of each), `actions` (all moves so far), `legal` (names), `reward` so far,
        `turns_left`, `over`, `success`, `ended` (how, in words; empty before the end), `goal` (of the game) and `rules` (the
        constant part of a model's prompt).
    """
    rules, number = players.game_of(game), players.number(seed)
    if not isinstance(actions, list) or len(actions) > rules.horizon:
        raise UserError(f"expected a list of at most {rules.horizon} moves")
    moves = [*actions, *([action] if action else [])]
    for move in moves:
        if move not in rules.actions:
            raise UserError(f"unknown move {str(move)[:30]!r}: expected one of {', '.join(rules.actions)}")
    value = episode_seed(rules.id, "test", number)
    state = rules.initial_state(stream(value, "initial_state"))
    dynamics = stream(value, "dynamics", 0)
    states, over, ended = [state], False, ""
    steps: list[dict[str, Any]] = []
    for move in moves:
        if over:
            raise UserError(f"{len(moves)} moves: the episode was over after {len(steps)}; start another")
        after = rules.step(state, move, dynamics)
        state, over = after.state, after.terminated or after.truncated
        states.append(state)
        if over:
            ended = how_it_ended(rules, states, move, success=rules.succeeded(state), terminated=after.terminated)
        unmarked: dict[str, Any] = {"legal": [], "optimal": [], "best": [], "status": "ok"}  # no hints for the visitor
        steps.append({"action": rules.actions.index(move), "reward": after.reward, **unmarked})
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
        "ended": ended,
        "goal": rules.instructions,
        "rules": build_prompt(rules, states[0]).system,
    }


def play_result(game: str, seed: int, player: str) -> dict[str, Any]:
    """Plays a seed that the visitor has played: by the agent, and by the best player that knows the game.

    Args:
        game: id of a game.
        seed: number of the test episode.
        player: as for watch.

    Returns:
        `agent` and `best`, each with `player`, `reward`, `success`, `turns` and `value_optimal`: the mean reward of optimal
        play on this board, None if the game is not solved; and `film`, the replay of the agent.
    """
    rules, number = players.game_of(game), players.number(seed)
    best = "optimal" if can_play("optimal", rules) else "planner" if can_play("planner", rules) else "random-safe"
    found = {}
    with players.line(players.check_player(player, rules)).place():
        for role, name in (("agent", player), ("best", best)):
            [episode] = players.play(name, rules, [episode_seed(rules.id, "test", number)])
            found[role] = replay.player_data(rules, name, episode)
    fields = ("player", "reward", "success", "value_optimal")
    results = {role: {name: data[name] for name in fields} | {"turns": len(data["steps"])} for role, data in found.items()}
    return {**results, "film": replay.combine(number, [found["agent"]])}
