"""The replay of a report as plain data: the episodes worth a look, state by state, as the players were shown them.

Cells are numbers, counted row by row from the top left. Boards of variants are those that were shown: mirrored, turned, or
with other symbols. A game without scenes is shown by its grid and its symbols alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from msgrpo_hub.episode import Episode, Step, StepScore
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.games import Game, episode_seed, make_game
from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.scene import Scene, has_scene
from msgrpo_hub.games.solving import TIE
from msgrpo_hub.games.variants import display_symbol
from msgrpo_hub.rendering.board_art import FACES, PENGUIN, shape
from msgrpo_hub.rendering.board_svg import FREE, icy, moves, pictures, still_grid
from msgrpo_hub.rendering.report_plots import ending, number
from msgrpo_hub.rollout import replayed_states

WORST = 3
"""Worst episodes listed per player."""

MOST = 20
"""Episodes of a task that can be replayed."""

BUDGET = 2_000_000
"""Bytes for all replays of a page: with its plots it stays below 3 MB."""

LONGEST = 3_000
"""Characters of a reply that are kept: its beginning and its end."""

Data = dict[str, Any]


def worst_episodes(result: Result) -> list[int]:
    """Positions of a player's worst episodes: of largest regret, or of lowest reward where the game is not solved."""
    badness = [-score.reward if score.regret is None else score.regret for score in result.scores]
    order = sorted(range(len(badness)), key=lambda position: (-badness[position], position))
    return [position for position in order if result.scores[position].regret is None or badness[position] > TIE][:WORST]


def telling_seeds(results: Sequence[Result]) -> list[int]:
    """Seeds worth a look, in turn: one on which the players differ most, and a player's worst."""
    rewards: dict[int, list[tuple[float, float]]] = {}
    for result in results:
        for episode, score in zip(result.episodes, result.scores, strict=True):
            rewards.setdefault(episode.seed, []).append((score.reward, score.regret or 0.0))

    def apart(seed: int) -> tuple[float, ...]:
        return tuple(max(values) - min(values) for values in zip(*rewards[seed], strict=True))

    differ = sorted(rewards, key=apart, reverse=True)[:MOST]  # a lone player's in the order of the suite
    ranks = zip_longest(*([r.episodes[position].seed for position in worst_episodes(r)] for r in results))
    worst = [seed for rank in ranks for seed in rank if seed is not None]
    mixed = chain.from_iterable(zip_longest(differ, worst))
    return list(dict.fromkeys(seed for seed in mixed if seed is not None))[:MOST]


def episode_numbers(result: Result) -> dict[int, int]:
    """Seed → number of the episode in its split."""
    config = result.config
    return {episode_seed(result.task, config["split"], index): index for index in range(config["episodes"])}


def replay_data(
    tasks: Sequence[Sequence[Result]], bases: Sequence[Result], name: Callable[[Result], str], budget: int = BUDGET
) -> Data:
    """All that the page's replay shows, as plain data.

    Args:
        tasks: the results of each task.
        bases: the player of each task whom the others are compared with.
        name: a player's name on the page.
        budget: bytes that the replays may take; the most telling seeds of every task come first.

    Raises:
        UserError: for a record that does not replay.
    """
    players = list(dict.fromkeys(name(result) for results in tasks for result in results))
    shown = [_task(results[0]) for results in tasks]
    for task, results, base in zip(shown, tasks, bases, strict=True):
        other = _companion(results, base)
        task["pair"] = {"a": players.index(name(base)), "b": players.index(name(other)) if other else None}
    queues = [telling_seeds(results) for results in tasks]
    for rank in range(MOST):
        for task, results, queue in zip(shown, tasks, queues, strict=True):
            if rank < len(queue):
                seed = _seed(results, queue[rank], [players.index(name(result)) for result in results])
                budget -= len(json.dumps(seed, ensure_ascii=False).encode("utf-8", "surrogatepass"))
                if budget >= 0:
                    task["seeds"].append(seed)
    return {"players": players, "tasks": shown}


def _companion(results: Sequence[Result], base: Result) -> Result | None:
    """Whom a reader wants to see beside the base: its adapter, or else the best of the others."""
    others = [result for result in results if result is not base]
    commit = base.config["identity"].get("base_commit")
    adapters = [result for result in others if commit and result.config["identity"].get("base_commit") == commit]
    return next(iter([*adapters, *others]), None)


def _task(result: Result) -> Data:
    config = result.config
    episodes = f"{config['episodes']} {config['split']} episodes"
    return game_data(make_game(result.task)) | {"episodes": episodes, "seeds": []}


def game_data(game: Game) -> Data:
    """All that the script of the page must know of a game to draw its boards (see `board_art.script`)."""
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
    }


def _seed(results: Sequence[Result], seed: int, players: Sequence[int]) -> Data:
    """One seed as each player played it."""
    found = [
        (player, result, position)
        for player, result in zip(players, results, strict=True)
        for position, episode in enumerate(result.episodes)
        if episode.seed == seed
    ]
    rewards = sorted({result.scores[position].reward for _, result, position in found})
    span = " to ".join(number(reward, 0 if reward.is_integer() else 2) for reward in dict.fromkeys((rewards[0], rewards[-1])))
    return {
        "seed": str(seed),  # more digits than a JavaScript number holds
        "label": f"episode {episode_numbers(results[0])[seed]} · reward {span}",
        "episodes": {str(player): _episode(result, position) for player, result, position in found},
    }


def _episode(result: Result, position: int) -> Data:
    try:
        return episode_data(make_game(result.task), result.episodes[position], result.steps[position])
    except ValueError as error:
        raise UserError(f"{error}; expected results of this version of the game: `msgrpo verify` checks them") from error


def episode_data(game: Game, episode: Episode, scores: Sequence[StepScore]) -> Data:
    """One episode as the script of the page draws and tells it, with the scores of its steps.

    Raises:
        ValueError: for a record that does not replay.
    """
    return {
        "ending": ending(episode),
        "states": [state_data(game, state) for state in replayed_states(game, episode)],
        "steps": [_step(game, step, score) for step, score in zip(episode.steps, scores, strict=True)],
    }


def _step(game: Game, step: Step, score: StepScore) -> Data:
    number_of = game.actions.index
    return {
        "reply": _kept(step.completion.text),
        "status": "illegal" if step.action is not None and not step.legal else step.status,
        "action": None if step.action is None else number_of(step.action),
        "legal": [number_of(action) for action in score.legal_actions],
        "optimal": [number_of(action) for action in score.optimal_actions],
        "reward": step.reward,
        "regret": score.regret,
    }


def _kept(reply: str) -> str:
    left_out = len(reply) - LONGEST
    half = LONGEST // 2
    return reply if left_out <= 0 else f"{reply[:half]}\n[… {left_out} characters left out …]\n{reply[-half:]}"


# ---- boards, as they were shown


def state_data(game: Game, state: Any) -> Data:
    """What a board shows: the cells of its pieces by symbol, and those who move over it."""
    free = {" ", display_symbol(game, FREE)}
    cells: dict[str, list[int]] = {}
    for row, line in enumerate(still_grid(game, state)):
        for column, symbol in enumerate(line):
            if symbol not in free:
                cells.setdefault(symbol, []).append(row * game.columns + column)
    return {"pieces": cells, **(_movers(game, game.scene(state)) if has_scene(game) else {})}


def _movers(game: Game, scene: Scene) -> Data:
    """Who moves: bodies from head to tail, the player's first, or a lone walker and how it stands."""

    def numbers(cells: Iterable[Cell]) -> list[int]:
        return [row * game.columns + column for row, column in cells]

    if scene.bodies:
        return {"bodies": [numbers(body.cells) for body in scene.bodies], "alive": [body.alive for body in scene.bodies]}
    return {"walker": numbers([scene.player])[0], "posture": scene.posture}


def _piece(name: str, symbol: str) -> str:
    """The id of a shape in the page."""
    return "piece-" + "-".join(str(ord(character)) for character in name + symbol)


def shapes(tasks: Iterable[str]) -> Mapping[str, str]:
    """Every shape that the boards of some tasks use: its id, and its SVG, which is ours; what nobody has drawn is a letter."""
    drawn = {_piece(name, symbol): shape(name, symbol) for task in tasks for symbol, name in pictures(make_game(task)).items()}
    return {**drawn, "walker": PENGUIN, "faces": FACES}


def shown_end(episode: Episode) -> str:
    """How and when an episode ended."""
    return f"{ending(episode)} on turn {len(episode.steps)}"
