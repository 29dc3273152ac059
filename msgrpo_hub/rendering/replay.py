"""Replays as plain data, which the script of a web page and `replay_svg` draw.

Cells are numbers, counted row by row from the top left. A variant's boards look as the player saw them: mirrored, rotated, or
with other symbols. A game without scenes is drawn from its grid and its symbols.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Episode, StepScore
from msgrpo_hub.evaluation.scores import score_steps
from msgrpo_hub.games import Game, base_game, display_name, make_game
from msgrpo_hub.games.board import Cell, inside, neighbour
from msgrpo_hub.games.game import has_scene, is_solvable
from msgrpo_hub.games.solving import soonest_optimal_actions
from msgrpo_hub.rollout import past_turns, replayed_states

Data = dict[str, Any]

LONGEST = 3_000
"""Characters kept of a long reply: its start and its end."""


def number(value: float | None, decimals: int = 3) -> str:
    """A number with a true minus sign and without a negative zero.

    >>> number(-1.25), number(-0.0001), number(None)
    ('−1.250', '0.000', '–')
    """
    return "–" if value is None else f"{value:z.{decimals}f}".replace("-", "−")


def ending(*, success: bool, terminated: bool) -> str:
    """How an episode ended, as a label: success, survived, out of turns, or lost."""
    if success:
        return "success" if terminated else "survived"
    return "lost" if terminated else "out of turns"


def how_it_ended(game: Game, states: Sequence[Any], last: str | None, *, success: bool, terminated: bool) -> str:
    """How an episode ended, in words that complete "the player …", such as "fell into a hole".

    `last` is the last action; `terminated` says that the game ended the episode, not the number of turns.
    """
    if not has_scene(game) or len(states) < 2:
        return ending(success=success, terminated=terminated)
    scene, turns = game.scene(states[-1]), len(states) - 1
    if scene.bodies and not scene.bodies[0].alive:
        if last is None:
            return "died"
        me, *_ = game.scene(states[-2]).bodies
        ahead = neighbour(me.cells[0], last, game.directions)
        if not inside(ahead, game.rows, game.columns):
            return "ran into the wall"
        return "bit itself" if ahead in me.cells else "ran into the other snake"
    if scene.bodies:
        return "survived, the other snake died" if terminated else f"survived all {turns} turns"
    if scene.posture == "goal":
        why = "" if success else " on the wrong turn" if scene.wanted else ", which is a trap"
        return f"reached the goal{why}"
    if scene.posture == "hole":
        return "fell into a hole"
    return f"stayed on the ice for {turns} turns" if success else f"ran out of turns after {turns}"


def game_data(game: Game) -> Data:
    """A game's size, actions and their directions, and the drawings of its symbols."""
    drawn = game.pictures if has_scene(game) else game.symbols
    free = display_name(game, ".")
    return {
        "title": game.id,
        "rows": game.rows,
        "columns": game.columns,
        "horizon": game.horizon,
        "actions": list(game.actions),
        "moves": dict(game.directions) if has_scene(game) else {},
        "icy": game.symbols.get(free) == "ice",
        "pieces": {symbol: "piece-" + "-".join(str(ord(each)) for each in name + symbol) for symbol, name in drawn.items()},
        "symbols": [[symbol, name] for symbol, name in game.symbols.items()],
        "legend": [[symbol, name] for symbol, name in drawn.items() if symbol != free],
    }


def state_data(game: Game, state: Any) -> Data:
    """One board: `pieces` (symbol → cells); with a scene also the `bodies` from head to tail, the player's first, and whether
    each is `alive`; or, for a player without a body, its cell (`walker`) and `posture`.
    """
    under: dict[Cell, str] = {}
    data: Data = {"pieces": {}}
    if has_scene(game):
        scene = game.scene(state)
        if scene.bodies:
            under = {cell: " " for body in scene.bodies for cell in body.cells}
            data["bodies"] = [[row * game.columns + column for row, column in body.cells] for body in scene.bodies]
            data["alive"] = [body.alive for body in scene.bodies]
        else:
            under = {scene.player: scene.under}
            data |= {"walker": scene.player[0] * game.columns + scene.player[1], "posture": scene.posture}
    free = (" ", display_name(game, "."))
    for row, line in enumerate(game.grid(state)):
        for column, shown in enumerate(line):
            symbol = under.get((row, column), shown)
            if symbol not in free:
                data["pieces"].setdefault(symbol, []).append(row * game.columns + column)
    return data


def episode_data(
    game: Game, episode: Episode, scores: Sequence[StepScore] | None = None, prompt_format: PromptFormat | None = None
) -> Data:
    """One episode: `states` (one more than `steps`), `ending` and `ended` (in words).

    Each step has its `reply`, `status`, `action`, `legal`, `optimal` and `best` actions (indices of `game.actions`; `best` as in
    `best_moves`), `move` (the index in the base game, equal for all names of an action), `reward` and `regret` (None if the game
    is not solved). With a `prompt_format` there are the prompts: `system` (the constant part), and each step's `prompt`. The
    `scores` of the steps are computed if None. Raises `ValueError` if the record does not replay.
    """
    scores = scores if scores is not None else score_steps(game, episode)
    states, index = replayed_states(game, episode), game.actions.index
    moves = {display_name(game, name): number for number, name in enumerate(base_game(game).actions)}
    end = {"success": episode.success, "terminated": episode.terminated}
    steps = []
    for state, step, score in zip(states[:-1], episode.steps, scores, strict=True):
        reply, left_out = step.completion.text, len(step.completion.text) - LONGEST
        if left_out > 0:
            reply = f"{reply[: LONGEST // 2]}\n[… {left_out} characters left out …]\n{reply[-LONGEST // 2 :]}"
        steps.append(
            {
                "reply": reply,
                "status": "illegal" if step.action is not None and not step.legal else step.status,
                "action": None if step.action is None else index(step.action),
                "move": None if step.action is None else moves.get(step.action),
                "legal": [index(action) for action in score.legal_actions],
                "optimal": [index(action) for action in score.optimal_actions],
                "best": [index(action) for action in best_moves(game, state)],
                "reward": step.reward,
                "regret": score.regret,
            }
        )
    data = {
        "ending": ending(**end),
        "ended": how_it_ended(game, states, episode.steps[-1].action if episode.steps else None, **end),
        "states": [state_data(game, state) for state in states],
        "steps": steps,
    }
    if prompt_format:
        for turn, state in enumerate(states):
            prompt = build_prompt(game, state, prompt_format, past_turns(prompt_format, episode.steps[:turn]))
            data.setdefault("system", prompt.system)
            if turn < len(steps):
                steps[turn]["prompt"] = prompt.user
    return data


def best_moves(game: Game, state: Any) -> tuple[str, ...]:
    """The optimal actions that shorten the way. A move against a wall counts only if no other is as good.

    All actions are returned if none is better than another; none if the game is not solvable.
    """
    core = base_game(game)
    if not is_solvable(core):
        return ()
    best = tuple(display_name(game, action) for action in soonest_optimal_actions(core, state))
    legal = game.legal_actions(state) if len(best) < len(game.actions) else best
    return tuple(action for action in best if action in legal) or best


def shapes(games: Iterable[Game]) -> str:
    """SVG definitions of all pieces on the boards of some games. A symbol without a drawing is a letter on a tile.

    The tile has its colours as attributes: inside `<use>`, the nested selectors of a page do not match.
    """
    art = dict(re.findall(r'^<g id="([\w-]+)" [^>]*>(.*)</g>$', read_part("board_art.svg"), re.MULTILINE))
    drawn = {name: art.pop(name) for name in ("walker", "faces")}
    tile = '<rect fill="#8b8d98" x="-.4" y="-.4" width=".8" height=".8" rx=".16"/>'
    tile += '<text class="letter" font-size=".6" fill="#fff" text-anchor="middle" y=".2">{}</text>'
    for game in games:
        names: Mapping[str, str] = game.pictures if has_scene(game) else game.symbols
        for symbol, piece in game_data(game)["pieces"].items():
            drawn[piece] = art.get(names[symbol].replace(" ", "-"), tile.format(escape(symbol)))
    return "<defs>" + "".join(f'<g id="{name}">{svg}</g>' for name, svg in drawn.items()) + "</defs>"


def replay_assets(games: Iterable[str], dark: str = "@media (prefers-color-scheme:dark)") -> dict[str, str]:
    """What all replays of a page share.

    `script`: JavaScript with `replayPlayer(element, options)`, `drawBoard(game, episode, turn, label)` and `glide`.
    `style`: CSS of boards and player, dark under the rule `dark`; the page defines the colours that it names.
    `shapes`: an invisible SVG with every shape that the boards of these games use, for the body of the page.
    """
    light, darker = (read_part(name).replace(":root", "&") for name in ("board.css", "board_dark.css"))
    boards, drawn = ":is(.board,.replay-icon)", shapes(make_game(name) for name in games)
    return {
        "script": read_part("replay_board.js") + read_part("replay_player.js"),
        "style": f"{boards}{{{light}}}{dark}{{{boards}{{{darker}}}}}" + read_part("replay_player.css"),
        "shapes": f'<svg class="shapes" width="0" height="0" aria-hidden="true" focusable="false">{drawn}</svg>',
    }


@cache
def read_part(name: str) -> str:
    """The text of a file in this package."""
    return (files("msgrpo_hub.rendering") / name).read_text(encoding="utf-8")
