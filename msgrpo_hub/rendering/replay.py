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
from msgrpo_hub.games.variants import display_symbol
from msgrpo_hub.rollout import past_turns, replayed_states

Data = dict[str, Any]

LIGHT = """
.ice{fill:#d6eaf8}.gleam{stroke:#fff;stroke-width:.035px;stroke-linecap:round;opacity:.75}
.field{fill:#eef4e8}.check{fill:#e3edd9}.tile{fill:#8b8d98}.letter{font-size:.6px;fill:#fff;text-anchor:middle}
.body,.belly{fill:none;stroke-linecap:round;stroke-linejoin:round}.body{stroke-width:.74px}
.belly{stroke-width:.2px;stroke:#fff;opacity:.35}
.body.you{stroke:#30a46c}.head.you{fill:#218358}.body.opponent{stroke:#7c8cc4}.head.opponent{fill:#5563a0}
:root{--rim:#9cc6e6}
"""
DARK = """:root{--rim:#5b86ab}
.ice{fill:#24415c}.gleam{opacity:.16}.field{fill:#1c2a20}.check{fill:#213226}"""
"""The colours of boards."""

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
    free = display_symbol(game, ".")
    return {
        "title": game.id,
        "rows": game.rows,
        "columns": game.columns,
        "horizon": game.horizon,
        "actions": list(game.actions),
        "moves": dict(game.directions) if has_scene(game) else {},
        "icy": game.symbols.get(free) == "ice",
        "pieces": {symbol: _piece(name, symbol) for symbol, name in drawn.items()},
        "symbols": [[symbol, name] for symbol, name in game.symbols.items()],
        "legend": [[symbol, name] for symbol, name in drawn.items() if symbol != free],
    }


def state_data(game: Game, state: Any) -> Data:
    """One board.

    Returns:
        `pieces`: symbol → cells. With a scene also the `bodies` from head to tail, the player's first, and whether each is
        `alive`; or, for a player without a body, its cell (`walker`) and `posture`.
    """
    free, under, movers = {" ", display_symbol(game, ".")}, {}, {}

    def numbers(cells: Iterable[Cell]) -> list[int]:
        return [row * game.columns + column for row, column in cells]

    if has_scene(game):
        scene = game.scene(state)
        if scene.bodies:
            under = {cell: " " for body in scene.bodies for cell in body.cells}
            movers = {"bodies": [numbers(b.cells) for b in scene.bodies], "alive": [b.alive for b in scene.bodies]}
        else:
            under = {scene.player: scene.under}
            movers = {"walker": numbers([scene.player])[0], "posture": scene.posture}
    pieces: dict[str, list[int]] = {}
    for row, line in enumerate(game.grid(state)):
        for column, shown in enumerate(line):
            symbol = under.get((row, column), shown)
            if symbol not in free:
                pieces.setdefault(symbol, []).append(row * game.columns + column)
    return {"pieces": pieces, **movers}


def episode_data(
    game: Game, episode: Episode, scores: Sequence[StepScore] | None = None, prompt_format: PromptFormat | None = None
) -> Data:
    """One episode.

    Args:
        game: the rules.
        episode: the record.
        scores: the scores of its steps; computed if None.
        prompt_format: if given, the result has the prompts: `system` (the constant part), and each step's `prompt`.

    Returns:
        `states` (one more than `steps`), `ending` and `ended` (in words). Each step has its `reply`, `status`, `action`, `legal`,
        `optimal` and `best` actions (indices of `game.actions`; `best` as in `best_moves`), `move` (the index in the base game,
        equal for all names of an action), `reward` and `regret` (None if the game is not solved).

    Raises:
        ValueError: the record does not replay.
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


def _piece(name: str, symbol: str) -> str:
    """The id of a shape in a page."""
    return "piece-" + "-".join(str(ord(character)) for character in name + symbol)


def shapes(games: Iterable[Game]) -> str:
    """SVG definitions of all pieces on the boards of some games. A symbol without a drawing is a letter on a tile.

    The tile has its colours as attributes: inside `<use>`, the nested selectors of a page do not match.
    """
    art = dict(re.findall(r'^<g id="([\w-]+)" [^>]*>(.*)</g>$', read_part("board_art.svg"), re.MULTILINE))
    drawn = {name: art.pop(name) for name in ("walker", "faces")}
    tile = '<rect fill="#8b8d98" x="-.4" y="-.4" width=".8" height=".8" rx=".16"/>'
    tile += '<text class="letter" font-size=".6" fill="#fff" text-anchor="middle" y=".2">{}</text>'
    for game in games:
        pictures: Mapping[str, str] = game.pictures if has_scene(game) else game.symbols
        for symbol, name in pictures.items():
            drawn[_piece(name, symbol)] = art.get(name.replace(" ", "-"), tile.format(escape(symbol)))
    return "<defs>" + "".join(f'<g id="{name}">{svg}</g>' for name, svg in drawn.items()) + "</defs>"


def replay_assets(games: Iterable[str], dark: str = "@media (prefers-color-scheme:dark)") -> dict[str, str]:
    """What all replays of a page share.

    Args:
        games: ids of the games.
        dark: the CSS rule or selector under which the page is dark.

    Returns:
        `script`: JavaScript with `replayPlayer(element, options)`, `drawBoard(game, episode, turn, label)` and `glide`.
        `style`: CSS of boards and player; the page defines the colours that replay_player.css names.
        `shapes`: an invisible SVG with every shape that the boards use, for the body of the page.
    """
    light, darker = (colours.replace(":root", "&") for colours in (LIGHT, DARK))
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
