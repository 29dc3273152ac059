"""A replay as plain data: a game's board, its states and an episode, as the player saw them.

Cells are numbers, counted row by row from the top left. Boards of variants are drawn as displayed: mirrored, rotated,
or with other symbols. A game without scenes is drawn from its grid and its symbols alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgrpo_hub.episode import Episode, Step, StepScore
from msgrpo_hub.games import Game, base_game, display_name, make_game
from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.game import Scene, has_scene, is_solvable
from msgrpo_hub.games.solving import soonest_optimal_actions
from msgrpo_hub.games.variants import display_symbol
from msgrpo_hub.rendering.board_art import FACES, PENGUIN, shape
from msgrpo_hub.rendering.board_svg import FREE, icy, moves, pictures, still_grid
from msgrpo_hub.rendering.endings import how_it_ended
from msgrpo_hub.rendering.report_plots import ending
from msgrpo_hub.rollout import replayed_states

LONGEST = 3_000
"""Number of characters kept from a long reply, from its start and its end."""

Data = dict[str, Any]


def game_data(game: Game) -> Data:
    """The data of a game that the script of a page needs to draw its boards."""
    return {
        "title": game.id,
        "rows": game.rows,
        "columns": game.columns,
        "horizon": game.horizon,
        "actions": list(game.actions),
        "moves": dict(moves(game)),
        "icy": icy(game),
        "pieces": {symbol: _piece(name, symbol) for symbol, name in pictures(game).items()},
        "symbols": [[symbol, name] for symbol, name in game.symbols.items()],
        "legend": [[symbol, name] for symbol, name in pictures(game).items() if symbol != display_symbol(game, FREE)],
    }


def episode_data(game: Game, episode: Episode, scores: Sequence[StepScore]) -> Data:
    """One episode as the script of a page shows it, with the scores of its steps.

    Raises:
        ValueError: for a record that does not replay.
    """
    states, last = replayed_states(game, episode), episode.steps[-1].action if episode.steps else None
    return {
        "ending": ending(episode),
        "ended": how_it_ended(game, states, last, success=episode.success, terminated=episode.terminated),
        "states": [state_data(game, state) for state in states],
        "steps": [_step(game, *each) for each in zip(states[:-1], episode.steps, scores, strict=True)],
    }


def _step(game: Game, state: Any, step: Step, score: StepScore) -> Data:
    number_of = game.actions.index
    return {
        "reply": _kept(step.completion.text),
        "status": "illegal" if step.action is not None and not step.legal else step.status,
        "action": None if step.action is None else number_of(step.action),
        "legal": [number_of(action) for action in score.legal_actions],
        "optimal": [number_of(action) for action in score.optimal_actions],
        "best": [number_of(action) for action in best_moves(game, state)],
        "reward": step.reward,
        "regret": score.regret,
    }


def best_moves(game: Game, state: Any) -> tuple[str, ...]:
    """The optimal actions worth showing: those that shorten the way, and a move against a wall only if no other is as good.

    All actions are returned if nothing is left to win, so that none is better.
    """
    core = base_game(game)
    if not is_solvable(core):
        return ()
    best = [display_name(game, action) for action in soonest_optimal_actions(core, state)]
    legal = game.legal_actions(state) if len(best) < len(game.actions) else best
    return tuple(action for action in best if action in legal) or tuple(best)


def _kept(reply: str) -> str:
    left_out = len(reply) - LONGEST
    half = LONGEST // 2
    return reply if left_out <= 0 else f"{reply[:half]}\n[… {left_out} characters left out …]\n{reply[-half:]}"


# ---- boards, as the player saw them


def state_data(game: Game, state: Any) -> Data:
    """The content of a board: the cells of its pieces by symbol, and the moving bodies."""
    free = {" ", display_symbol(game, FREE)}
    cells: dict[str, list[int]] = {}
    for row, line in enumerate(still_grid(game, state)):
        for column, symbol in enumerate(line):
            if symbol not in free:
                cells.setdefault(symbol, []).append(row * game.columns + column)
    return {"pieces": cells, **(_movers(game, game.scene(state)) if has_scene(game) else {})}


def _movers(game: Game, scene: Scene) -> Data:
    """The moving bodies from head to tail, the player's first, or a single player and its posture."""

    def numbers(cells: Iterable[Cell]) -> list[int]:
        return [row * game.columns + column for row, column in cells]

    if scene.bodies:
        return {"bodies": [numbers(body.cells) for body in scene.bodies], "alive": [body.alive for body in scene.bodies]}
    return {"walker": numbers([scene.player])[0], "posture": scene.posture}


def _piece(name: str, symbol: str) -> str:
    """The id of a shape in the page."""
    return "piece-" + "-".join(str(ord(character)) for character in name + symbol)


def shapes(tasks: Iterable[str]) -> Mapping[str, str]:
    """All shapes on the boards of some tasks: id → SVG. A symbol without a drawing is a letter on a tile."""
    drawn = {_piece(name, symbol): shape(name, symbol) for task in tasks for symbol, name in pictures(make_game(task)).items()}
    return {**drawn, "walker": PENGUIN, "faces": FACES}
