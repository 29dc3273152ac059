"""Episodes side by side as one animated SVG.

The picture needs no script, so it also plays in a README. It follows the reader's light or dark theme. State t appears at second
t · TICK. The move to it ends the turn before, so a reader sees the thought before the action.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from html import escape
from itertools import accumulate, groupby, pairwise
from math import atan2, degrees
from unicodedata import east_asian_width

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.tables import short
from msgrpo_hub.games import Game
from msgrpo_hub.rendering.replay import DARK, LIGHT, Data, ending, game_data, shapes, state_data
from msgrpo_hub.rollout import replayed_states

TICK, PAUSE, MOVE = 1.5, 3.5, 0.4
"""Seconds of a turn, seconds of the last state, and the share of a turn during which pieces move."""

_BOARD, _MARGIN, _GAP, _HEADING, _TITLE, _CAPTION, _FOOT = 320, 18, 24, 40, 38, 96, 24
"""Sizes in pixels: the side of a board, the margins, and the heights above and below."""

_LINE = 33
"""Characters on a line of a thought."""

_POSTURES = {"": "scale(1);opacity:1", "goal": "translateX(-.14px) scale(.9);opacity:1", "hole": "scale(.55);opacity:.8"}
_ARROWS = {(0, -1): "←", (1, 0): "↓", (0, 1): "→", (-1, 0): "↑"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;fill:#1f2328;font-size:19px}
.card{fill:#fff;stroke:#d1d9e0}.heading,.thought{fill:#59636e}.title{font-size:21px;font-weight:700}
.status,.reward{font-size:20px;font-weight:600}.reward{text-anchor:end;font-variant-numeric:tabular-nums}
.plus{fill:#1a7f37}.minus,.none{fill:#d1242f}.good{fill:#1a7f37}.bad{fill:#d1242f}.mark{fill:none;stroke:#fff;stroke-width:2.2px}
.track{fill:#d1d9e0}.film{fill:#0969da}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.card{fill:#0d1117;stroke:#3d444d}.heading,.thought{fill:#9198a1}
.plus{fill:#3fb950}.minus,.none{fill:#f85149}.good{fill:#238636}.bad{fill:#da3633}.track{fill:#3d444d}.film{fill:#4493f8}}
@media (max-width:520px){.thought{font-size:21px}.title,.status,.reward{font-size:24px}}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}
"""


class Timeline:
    """Collects CSS keyframes. Without animation, every element looks as in the last state."""

    def __init__(self, turns: int) -> None:
        self.seconds = turns * TICK + PAUSE
        self.rules: dict[str, str] = {}

    def shown(self, first: int, end: int | None) -> str:
        """The class of an element that is visible from state `first` until state `end` (None: to the end)."""
        if first == 0 and end is None:
            return ""
        name, still = f"v{first}-{end}", "visible" if end is None else "hidden"
        before = "0%{visibility:hidden}" if first else ""
        after = "to{visibility:visible}" if end is None else f"{self._at(end)},to{{visibility:hidden}}"
        self._add(name, f"visibility:{still}", "step-end", f"{before}{self._at(first)}{{visibility:visible}}{after}")
        return name

    def gliding(self, declarations: Sequence[str]) -> str:
        """The class of an element that has `declarations[t]` in state t and moves between them."""
        frames = [f"0%{{{declarations[0]}}}"]
        for turn, (before, after) in enumerate(pairwise(declarations), start=1):
            if before != after:
                frames += [f"{self._at(turn - MOVE)}{{{before}}}", f"{self._at(turn)}{{{after}}}"]
        name = f"g{len(self.rules)}"
        self._add(name, declarations[-1], "ease-in-out", "".join([*frames, f"to{{{declarations[-1]}}}"]))
        return name

    def _add(self, name: str, still: str, easing: str, frames: str) -> None:
        animation = f"animation:{name} {self.seconds:g}s {easing} infinite"
        self.rules[name] = f".{name}{{{still};{animation}}}@keyframes {name}{{{frames}}}"

    def _at(self, turn: float) -> str:
        return f"{100 * turn * TICK / self.seconds:.3f}".rstrip("0").rstrip(".") + "%"


def replay_svg(game: Game, episodes: Sequence[tuple[str, Episode]], prompt_format: PromptFormat = THINK_ACTION) -> str:
    """A self-contained animated SVG of episodes from one seed side by side, turn by turn, with thoughts and actions.

    Args:
        game: the rules.
        episodes: (title, episode) pairs; a title is usually the player's name.
        prompt_format: parses the thoughts of each reply.

    Raises:
        ValueError: there are no episodes, they have different seeds, or a record does not replay.
    """
    if len({episode.seed for _, episode in episodes}) != 1:
        raise ValueError("a replay shows one or more episodes of the same seed")
    turns = max(len(episode.steps) for _, episode in episodes)
    timeline, drawing = Timeline(turns), game_data(game)
    columns = 2 if len(episodes) in (2, 4) else min(len(episodes), 3)
    panels = []
    for index, (title, episode) in enumerate(episodes):
        row, column = divmod(index, columns)
        corner = f"{_MARGIN + column * (_BOARD + _GAP)} {_HEADING + row * (_TITLE + _BOARD + _CAPTION)}"
        panel = _panel(game, drawing, title, episode, timeline, prompt_format)
        panels.append(f'<g transform="translate({corner})">{panel}</g>')
    width = 2 * _MARGIN + columns * (_BOARD + _GAP) - _GAP
    height = _HEADING + -(-len(episodes) // columns) * (_TITLE + _BOARD + _CAPTION) + _FOOT
    film = timeline.gliding([f"transform:scaleX({turn / turns:.4f})" for turn in range(turns + 1)])
    bar = f'width="{width - 2 * _MARGIN}" height="4" rx="2"'
    about = f"{game.id}, seed {episodes[0][1].seed}: {', '.join(title for title, _ in episodes)}"
    boards = f"{LIGHT}@media (prefers-color-scheme:dark){{{DARK}}}\n"
    style = "\n".join([_STYLE, boards, *timeline.rules.values()])
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    progress = f'<rect class="track" {bar}/><rect class="film {film}" {bar}/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{_clean(about)}</title>",
            shapes([game]),
            f'<clipPath id="field"><rect width="{game.columns}" height="{game.rows}" rx=".3"/></clipPath>',
            f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="12"/>',
            f'<text class="heading" x="{_MARGIN}" y="30">{_clean(game.id)}</text>',
            *panels,
            f'<g transform="translate({_MARGIN} {height - _FOOT})">{progress}</g>',
            f"<style>{style}</style>",
            "</svg>\n",
        ]
    )


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
        captions.append(f'<g class="{timeline.shown(turn, turn + 1 if step else None)}">{status}{reward_text}{said}</g>')
    return (
        f'<text class="title" y="25">{_clean(short(title, 23))}</text>'
        f'<g transform="translate({left:g} {_TITLE + top:g}) scale({cell:g})">{_board(drawing, states, episode, timeline)}</g>'
        f'<g transform="translate(0 {_TITLE + _BOARD})">{"".join(captions)}</g>'
    )


def _clean(text: str) -> str:
    """Text for XML, which allows no control characters, not even escaped ones."""
    return escape(_NOT_XML.sub("\ufffd", text))


# ---- boards, in units of one cell


def _board(drawing: Data, states: Sequence[Data], episode: Episode, timeline: Timeline) -> str:
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
            first = 0
            for present, run in groupby(cell in state["pieces"].get(symbol, ()) for state in states):
                end = first + len(list(run))
                if present:
                    seen = timeline.shown(first, end if end < len(states) else None)
                    drawn += f'<use href="#{drawing["pieces"].get(symbol)}" x="{x + 0.5}" y="{y + 0.5}" class="{seen}"/>'
                first = end
    if "walker" in states[0]:
        stands = [_at(state["walker"], columns, _POSTURES[state["posture"]]) for state in states]
        drawn += f'<use href="#walker" class="{timeline.gliding(stands)}"/>'
    action = episode.steps[-1].action if episode.steps else None
    for who in reversed(range(len(states[0].get("bodies", ())))):
        alive = states[-1]["alive"][who]
        hit = drawing["moves"].get(action) if who == 0 and not alive else None
        drawn += _snake([state["bodies"][who] for state in states], ("you", "opponent")[who], alive, hit, columns, timeline)
    return drawn


def _at(cell: int, columns: int, more: str) -> str:
    return f"transform:translate({cell % columns + 0.5:g}px,{cell // columns + 0.5:g}px) {more}"


def _snake(
    bodies: Sequence[Sequence[int]], who: str, alive: bool, hit: tuple[int, int] | None, columns: int, timeline: Timeline
) -> str:
    """A snake: its body is a dash that slides along the path of its head, and its head faces its last move.

    `bodies` are the cells of each state, from head to tail. `hit` is the (rows, columns) of the fatal move, if any: the head
    leans that way.
    """
    path, ways = list(reversed(bodies[0])), []
    ends = [len(path) - 1]
    for before, after in pairwise(body[0] for body in bodies):
        if after != before:
            path.append(after)
        ends.append(len(path) - 1)
        ways.append((after // columns - before // columns, after % columns - before % columns))
    if hit is not None:
        ways[-1] = hit
    angle = degrees(atan2(*next((way for way in ways if way != (0, 0)), (0, 1))))
    looks = [_at(bodies[0][0], columns, f"rotate({angle:g}deg) translateX(0px)")]
    for turn, way in enumerate(ways, start=1):
        if way != (0, 0):
            angle += (degrees(atan2(*way)) - angle + 180) % 360 - 180  # turns the short way round
        lean = 0.3 if hit is not None and turn == len(ways) else 0
        looks.append(_at(bodies[turn][0], columns, f"rotate({angle:g}deg) translateX({lean}px)"))
    # One dash, then a gap longer than any path. A path of length zero is not drawn, hence the last .001.
    windows = [
        f"stroke-dasharray:{len(body) - 1}px 999px;stroke-dashoffset:{len(body) - 1 - end}px"
        for body, end in zip(bodies, ends, strict=True)
    ]
    line, sliding = "L".join(f"{cell % columns + 0.5:g} {cell // columns + 0.5:g}" for cell in path), timeline.gliding(windows)
    body = "".join(f'<path class="{part} {sliding}" d="M{line}h.001"/>' for part in (f"body {who}", "belly"))
    last = len(bodies) - 1
    face = f'<g class="{timeline.shown(0, None if alive else last)}"><use href="#awake"/></g>'
    face += "" if alive else f'<g class="{timeline.shown(last, None)}"><use href="#dead"/></g>'
    return f'{body}<g class="{timeline.gliding(looks)}"><circle class="head {who}" r=".43"/>{face}</g>'
