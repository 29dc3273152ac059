"""Episodes side by side as one animated SVG, as a video, and boards as pixels.

The SVG needs no script, so it also plays in a README. It follows the reader's light or dark theme. State t appears at second
t · TICK. The move to it ends the turn before, so a reader sees the thought before the action. Pixels come from stills of the SVG.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from io import BytesIO
from itertools import accumulate, pairwise
from math import atan2, degrees
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

import numpy as np
import numpy.typing as npt
from matplotlib import get_data_path
from PIL import Image

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.tables import short
from msgrpo_hub.games import Game
from msgrpo_hub.rendering.replay import Data, ending, game_data, read_part, shapes, state_data
from msgrpo_hub.rollout import replayed_states
from msgrpo_hub.storage.files import write_atomically

TICK, PAUSE, MOVE = 1.5, 3.5, 0.4
"""Seconds of a turn, seconds of the last state, and the share of a turn during which pieces move."""

_BOARD, _MARGIN, _GAP, _HEADING, _TITLE, _CAPTION, _FOOT = 320, 18, 24, 40, 38, 96, 24
"""Sizes in pixels: the side of a board, the margins, and the heights above and below."""

_FIELD = '<clipPath id="field"><rect width="{0.columns}" height="{0.rows}" rx=".3"/></clipPath>'

_LINE = 33
"""Characters on a line of a thought."""

_POSTURES = {"": "scale(1);opacity:1", "goal": "translate(-.14px) scale(.9);opacity:1", "hole": "scale(.55);opacity:.8"}
_ARROWS = {(0, -1): "←", (1, 0): "↓", (0, 1): "→", (-1, 0): "↑"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Timeline:
    """Collects CSS keyframes. Without animation, every element looks as in the last state."""

    seconds: float
    still: int | None = None
    """Draws only this state, or the last of a shorter episode, without keyframes."""
    names: dict[tuple[object, ...], str] = field(default_factory=dict)
    """Looks → their class."""
    rules: dict[str, str] = field(default_factory=dict)
    """Class → its rule and its keyframes."""

    def follow(self, looks: Sequence[str], *, jumps: bool = False) -> str:
        """The class of an element that has the CSS `looks[t]` in state t; it moves between them, or `jumps`."""
        frames = f"0%{{{looks[0]}}}"
        for turn, (before, after) in enumerate(pairwise(looks), start=1):
            if before != after:
                for at, look in ((turn - MOVE, before), (turn, after))[jumps:]:
                    frames += f"{100 * at * TICK / self.seconds:.5g}%{{{look}}}"
        name = self.names.setdefault((jumps, *looks), f"k{len(self.names)}")
        if self.still is not None:
            self.rules[name] = f".{name}{{{looks[min(self.still, len(looks) - 1)]}}}"
            return name
        animation = f"animation:{name} {self.seconds:g}s {'step-end' if jumps else 'ease-in-out'} infinite"
        self.rules[name] = f".{name}{{{looks[-1]};{animation}}}@keyframes {name}{{{frames}to{{{looks[-1]}}}}}"
        return name

    def show(self, seen: Sequence[bool]) -> str:
        """The class of an element that is visible in state t if `seen[t]`."""
        return self.follow([f"visibility:{'visible' if each else 'hidden'}" for each in seen], jumps=True)


def replay_svg(
    game: Game, episodes: Sequence[tuple[str, Episode]], prompt_format: PromptFormat = THINK_ACTION, still: int | None = None
) -> str:
    """A self-contained animated SVG of (title, episode) pairs from one seed side by side, with thoughts and actions.

    `prompt_format` parses the thoughts; `still` is a state to draw without animation. Raises `ValueError` if there are no
    episodes, they have different seeds, or a record does not replay.
    """
    if len({episode.seed for _, episode in episodes}) != 1:
        raise ValueError("a replay shows one or more episodes of the same seed")
    turns = max(len(episode.steps) for _, episode in episodes)
    timeline, drawing = Timeline(turns * TICK + PAUSE, still), game_data(game)
    columns = 2 if len(episodes) in (2, 4) else min(len(episodes), 3)
    panels = []
    for index, (title, episode) in enumerate(episodes):
        row, column = divmod(index, columns)
        corner = f"{_MARGIN + column * (_BOARD + _GAP)} {_HEADING + row * (_TITLE + _BOARD + _CAPTION)}"
        panel = _panel(game, drawing, title, episode, timeline, prompt_format)
        panels.append(f'<g transform="translate({corner})">{panel}</g>')
    width = 2 * _MARGIN + columns * (_BOARD + _GAP) - _GAP
    height = _HEADING + -(-len(episodes) // columns) * (_TITLE + _BOARD + _CAPTION) + _FOOT
    film = timeline.follow([f"transform:scale({turn / turns:.4f},1)" for turn in range(turns + 1)])
    bar = f'width="{width - 2 * _MARGIN}" height="4" rx="2"'
    about = f"{game.id}, seed {episodes[0][1].seed}: {', '.join(title for title, _ in episodes)}"
    dark = f"@media (prefers-color-scheme:dark){{{read_part('board_dark.css')}}}"
    style = "\n".join([read_part("replay_svg.css"), read_part("board.css"), dark, *timeline.rules.values()])
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    progress = f'<rect class="track" {bar}/><rect class="film {film}" {bar}/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{_clean(about)}</title>",
            shapes([game]),
            _FIELD.format(game),
            f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="12"/>',
            f'<text class="heading" x="{_MARGIN}" y="30">{_clean(game.id)}</text>',
            *panels,
            f'<g transform="translate({_MARGIN} {height - _FOOT})">{progress}</g>',
            f"<style>{style}</style>",
            "</svg>\n",
        ]
    )


def write_videos(paths: Sequence[Path], game: Game, episodes: Sequence[tuple[str, Episode]], prompt_format: PromptFormat) -> None:
    """Writes the replay of `replay_svg` as `.mp4` and `.gif` files, a frame per turn. Raises `UserError` as `pixels`."""
    from imageio.v3 import imwrite  # of the extra, with ffmpeg

    how: dict[str, Any]
    turns = max(len(episode.steps) for _, episode in episodes)
    frames = [pixels(replay_svg(game, episodes, prompt_format, still=turn)) for turn in range(turns + 1)]
    for path in paths:
        shown, how = frames, {"duration": [int(1000 * TICK)] * turns + [int(1000 * PAUSE)], "loop": 0}  # milliseconds
        if path.suffix == ".mp4":  # two frames a second, which every player plays
            shown = [frame for turn, frame in enumerate(frames) for _ in range(int(2 * (TICK if turn < turns else PAUSE)))]
            how = {"fps": 2, "macro_block_size": 2, "output_params": ["-f", "mp4"]}
        write_atomically(path, partial(imwrite, image=np.stack(shown), extension=path.suffix, **how))


def board_pixels(game: Game, states: Sequence[Any], side: int = 320) -> npt.NDArray[np.uint8]:
    """The board of the last state, its longer side `side` pixels; the states before it turn the heads of snakes."""
    drawing, timeline = game_data(game), Timeline(TICK, len(states) - 1)
    board = _board(drawing, [state_data(game, state) for state in states], timeline)
    scale = side // max(game.rows, game.columns) // 2 * 2  # videos take even sizes only
    size = f'width="{game.columns * scale}" height="{game.rows * scale}" viewBox="0 0 {game.columns} {game.rows}"'
    style = f"<style>{read_part('board.css')}{''.join(timeline.rules.values())}</style>"
    return pixels(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{shapes([game])}{_FIELD.format(game)}{board}{style}</svg>')


def pixels(svg: str) -> npt.NDArray[np.uint8]:
    """A still as (rows, columns, RGB), in light colours. Raises `UserError` without the packages of the extra `video`."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise UserError("a picture of a board needs resvg-py: run `pip install 'msgrpo-hub[video]'`") from error
    # the renderer knows neither variables nor units in transforms
    plain = re.sub(r"@media[^{]*{(?:[^{}]*{[^{}]*})*[^{}]*}", "", svg)
    plain = re.sub(r"<style>.*?</style>", lambda style: re.sub(r"(?<=\d)(px|deg)", "", style[0]), plain, flags=re.DOTALL)
    for name, value in re.findall(r"(--\w+):(#\w+)", svg):
        plain = plain.replace(f"var({name})", value)
    fonts = [f"{get_data_path()}/fonts/ttf/DejaVuSans{weight}.ttf" for weight in ("", "-Bold")]
    families: dict[str, Any] = dict.fromkeys(("font_family", "sans_serif_family"), "DejaVu Sans")
    png = svg_to_bytes(svg_string=plain, background="#fff", font_files=fonts, skip_system_fonts=True, **families)
    return np.array(Image.open(BytesIO(bytes(png))).convert("RGB"))


def _panel(game: Game, drawing: Data, title: str, episode: Episode, timeline: Timeline, prompt_format: PromptFormat) -> str:
    """One episode: its title, its board, and for each turn its number, action, thought and the reward so far.

    The thought of an unparsed reply is the whole reply. The last state has the outcome with a tick or a cross.
    """
    states = [state_data(game, state) for state in replayed_states(game, episode)]
    cell = _BOARD / max(game.rows, game.columns)
    left, top = ((_BOARD - cell * cells) / 2 for cells in (game.columns, game.rows))
    captions = []
    for turn, reward in enumerate(accumulate((step.reward for step in episode.steps), initial=0.0)):
        step, said = episode.steps[turn] if turn < len(episode.steps) else None, ""
        if step:
            unparsed = f'<tspan class="none">{"truncated" if step.status == "truncated_reply" else "unparsed"}</tspan>'
            arrow = _ARROWS.get(drawing["moves"].get(step.action), "")
            action = unparsed if step.action is None else f"{arrow} {_clean(short(step.action, 10))}"
            status = f'<text class="status" y="30">{turn + 1}/{game.horizon} {action}</text>'
            thought = prompt_format.thought(step.completion.text)
            if thought is None:
                thought = "" if step.action else step.completion.text
            wide = any(east_asian_width(character) in "WF" for character in thought)
            lines = textwrap.wrap(thought, _LINE // (2 if wide else 1), max_lines=2, placeholder=" …")
            said = "".join(f'<text class="thought" y="{59 + 26 * row}">{_clean(line)}</text>' for row, line in enumerate(lines))
        else:
            kind, mark = (
                ("good", "M5.5 10.5L8.7 13.5L14.5 7") if episode.success else ("bad", "M6.5 6.5L13.5 13.5M13.5 6.5L6.5 13.5")
            )
            drawn = f'<circle class="{kind}" cx="10" cy="10" r="10"/><path class="mark" d="{mark}"/>'
            how = f"{turn}/{game.horizon} {ending(success=episode.success, terminated=episode.terminated)}"
            status = f'<g transform="translate(0 13.5)">{drawn}</g><text class="status" x="28" y="30">{how}</text>'
        sign = "plus" if reward > 0 else "minus" if reward < 0 else ""
        earned = f"{'+' if reward > 0 else ''}{reward:g}".replace("-", "−") if reward else "0"
        reward_text = f'<text class="reward {sign}" x="{_BOARD}" y="30">{earned}</text>'
        seen = timeline.show([shown == turn for shown in range(len(states))])
        captions.append(f'<g class="{seen}">{status}{reward_text}{said}</g>')
    return (
        f'<text class="title" y="25">{_clean(short(title, 23))}</text>'
        f'<g transform="translate({left:g} {_TITLE + top:g}) scale({cell:g})">{_board(drawing, states, timeline)}</g>'
        f'<g transform="translate(0 {_TITLE + _BOARD})">{"".join(captions)}</g>'
    )


def _clean(text: str) -> str:
    """Text for XML, which allows no control characters, not even escaped ones."""
    return escape(_NOT_XML.sub("\ufffd", text))


# ---- boards, in units of one cell


def _board(drawing: Data, states: Sequence[Data], timeline: Timeline) -> str:
    """The ground, the pieces that appear and disappear, and the moving bodies, the player's on top."""
    rows, columns = drawing["rows"], drawing["columns"]
    places = [(cell % columns, cell // columns) for cell in range(rows * columns)]
    if drawing["icy"]:
        tile = 'width=".92" height=".92" rx=".14"'
        drawn = "".join(f'<rect class="ice" x="{x + 0.04:.2f}" y="{y + 0.04:.2f}" {tile}/>' for x, y in places)
        gleams = (f"M{x + 0.18:.2f} {y + 0.34:.2f}l.16-.16m-.06.26l.26-.26" for x, y in places if (3 * y + 5 * x) % 7 in (1, 4))
        drawn += f'<path class="gleam" d="{"".join(gleams)}"/>'
    else:
        dark = "".join(f"M{x} {y}h1v1h-1z" for x, y in places if (x + y) % 2)
        drawn = f'<rect class="field" width="{columns}" height="{rows}" rx=".3"/>'
        drawn += f'<path class="check" d="{dark}" clip-path="url(#field)"/>'
    for symbol in sorted({symbol for state in states for symbol in state["pieces"]}):
        for cell, (x, y) in enumerate(places):
            present = [cell in state["pieces"].get(symbol, ()) for state in states]
            if any(present):
                seen = "" if all(present) else timeline.show(present)
                drawn += f'<use href="#{drawing["pieces"].get(symbol)}" x="{x + 0.5}" y="{y + 0.5}" class="{seen}"/>'
    if "walker" in states[0]:
        spots = [f"transform:translate({x + 0.5:g}px,{y + 0.5:g}px)" for x, y in places]
        stands = timeline.follow([f"{spots[state['walker']]} {_POSTURES[state['posture']]}" for state in states])
        drawn += f'<use href="#walker" class="{stands}"/>'
    for who in reversed(range(len(states[0].get("bodies", ())))):
        alive = [state["alive"][who] for state in states]
        drawn += _snake([state["bodies"][who] for state in states], ("you", "opponent")[who], alive, places, timeline)
    return drawn


def _snake(
    bodies: Sequence[Sequence[int]], who: str, alive: Sequence[bool], places: Sequence[tuple[int, int]], timeline: Timeline
) -> str:
    """A snake: its body is a dash that slides along the path of its head, and its head faces its last move.

    `bodies` are the cells of each state, from head to tail, and `places` the (x, y) of each cell.
    """
    heads, path, ends = [places[body[0]] for body in bodies], [places[cell] for cell in reversed(bodies[0])], [len(bodies[0]) - 1]
    ways = [(after[1] - before[1], after[0] - before[0]) for before, after in pairwise(heads)]
    angles = [degrees(atan2(*next(filter(any, ways), (0, 1))))]
    for head, way in zip(heads[1:], ways, strict=True):
        path += [head] * any(way)
        ends.append(len(path) - 1)
        angles.append(angles[-1] + ((degrees(atan2(*way)) - angles[-1] + 180) % 360 - 180) * any(way))  # turns the short way
    looks = [
        f"transform:translate({x + 0.5:g}px,{y + 0.5:g}px) rotate({angle:g}deg)"
        for (x, y), angle in zip(heads, angles, strict=True)
    ]
    # One dash, then a gap longer than any path. A path of length zero is not drawn, hence the last .001.
    windows = [
        f"stroke-dasharray:{len(body) - 1}px 999px;stroke-dashoffset:{len(body) - 1 - end}px"
        for body, end in zip(bodies, ends, strict=True)
    ]
    line, sliding = "L".join(f"{x + 0.5:g} {y + 0.5:g}" for x, y in path), timeline.follow(windows)
    body = "".join(f'<path class="{part} {sliding}" d="M{line}h.001"/>' for part in (f"body {who}", "belly"))
    face = f'<g class="{timeline.show(alive)}"><use href="#awake"/></g>'
    if not all(alive):
        face += f'<g class="{timeline.show([not each for each in alive])}"><use href="#dead"/></g>'
    return f'{body}<g class="{timeline.follow(looks)}"><circle class="head {who}" r=".43"/>{face}</g>'
