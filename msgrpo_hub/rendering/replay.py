"""An animated SVG of episodes side by side.

The picture needs no script, so it also moves in a README. It follows the reader's light or dark theme, and on a phone, where it
is half as wide, its text is larger.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from html import escape
from itertools import accumulate
from unicodedata import east_asian_width

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Episode, Step
from msgrpo_hub.evaluation.tables import short
from msgrpo_hub.games import Game
from msgrpo_hub.rendering.board_art import STYLE
from msgrpo_hub.rendering.board_svg import board, definitions, moves
from msgrpo_hub.rendering.endings import label
from msgrpo_hub.rendering.timeline import Timeline
from msgrpo_hub.rollout import replayed_states

_BOARD = 320
_MARGIN = 18
_GAP = 24
_HEADING = 40
_TITLE = 38
_CAPTION = 96
_FOOT = 24
_TITLE_CHARACTERS = 23
_ACTION_CHARACTERS = 10
_LINE_CHARACTERS = 38
_PHONE_CHARACTERS = 27

_ARROWS = {(0, -1): "←", (1, 0): "↓", (0, 1): "→", (-1, 0): "↑"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;fill:#1f2328;font-size:16px}
.card{fill:#fff;stroke:#d1d9e0}.heading,.thought{fill:#59636e}.thought{font-size:17px}.title{font-size:21px;font-weight:700}
.status{font-size:19px;font-weight:600}.reward{font-size:19px;font-weight:600;text-anchor:end;font-variant-numeric:tabular-nums}
.plus{fill:#1a7f37}.minus,.none{fill:#d1242f}.good{fill:#1a7f37}.bad{fill:#d1242f}.mark{fill:none;stroke:#fff;stroke-width:2.2px}
.track{fill:#d1d9e0}.film{fill:#0969da}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.card{fill:#0d1117;stroke:#3d444d}.heading,.thought{fill:#9198a1}
.plus{fill:#3fb950}.minus,.none{fill:#f85149}.good{fill:#238636}.bad{fill:#da3633}.track{fill:#3d444d}.film{fill:#4493f8}}
.phone{display:none}
@media (max-width:520px){.desk{display:none}.phone{display:inline}
.heading,.thought,.status,.reward{font-size:24px}.title{font-size:26px}}
"""


def replay_svg(game: Game, episodes: Sequence[tuple[str, Episode]], prompt_format: PromptFormat = THINK_ACTION) -> str:
    """A self-contained animated SVG: episodes from one seed side by side, turn by turn, with thoughts and actions.

    Args:
        game: the rules they were played by.
        episodes: a title, such as the player's name, with each episode.
        prompt_format: parses the thoughts of each reply.

    Raises:
        ValueError: for no episodes, for different seeds, or for a record that does not replay.
    """
    if len({episode.seed for _, episode in episodes}) != 1:
        raise ValueError("a replay shows one or more episodes of the same seed")
    timeline = Timeline(max(len(episode.steps) for _, episode in episodes))
    columns = 2 if len(episodes) in (2, 4) else min(len(episodes), 3)
    corners = [_corner(index, columns) for index in range(len(episodes))]
    panels = [_panel(game, title, episode, timeline, prompt_format) for title, episode in episodes]
    width = max(x for x, _ in corners) + _BOARD + _MARGIN
    height = max(y for _, y in corners) + _TITLE + _BOARD + _CAPTION + _FOOT
    titles = ", ".join(title for title, _ in episodes)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{_clean(f'{game.id}, seed {episodes[0][1].seed}: {titles}')}</title>",
            definitions(game),
            f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="12"/>',
            f'<text class="heading" x="{_MARGIN}" y="32">{_clean(game.id)}</text>',
            *(f'<g transform="translate({x} {y})">{panel}</g>' for (x, y), panel in zip(corners, panels, strict=True)),
            _progress(width - 2 * _MARGIN, height - _FOOT, timeline),
            f"<style>{_STYLE}{STYLE}{timeline.style()}</style>",
            "</svg>\n",
        ]
    )


def _corner(index: int, columns: int) -> tuple[int, int]:
    """The upper left corner of an episode's panel."""
    row, column = divmod(index, columns)
    return _MARGIN + column * (_BOARD + _GAP), _HEADING + row * (_TITLE + _BOARD + _CAPTION)


def _progress(width: int, y: int, timeline: Timeline) -> str:
    """A bar that fills up turn by turn."""
    name = timeline.gliding([f"transform:scaleX({turn / timeline.turns:.4f})" for turn in range(timeline.turns + 1)])
    bar = f'width="{width}" height="4" rx="2"'
    return f'<g transform="translate({_MARGIN} {y})"><rect class="track" {bar}/><rect class="film {name}" {bar}/></g>'


def _panel(game: Game, title: str, episode: Episode, timeline: Timeline, prompt_format: PromptFormat) -> str:
    """One episode: its title, its board, and the thoughts and actions below it."""
    states = replayed_states(game, episode)
    drawn = board(game, states, [step.action for step in episode.steps], timeline)
    cell = _BOARD / max(game.rows, game.columns)
    left, top = ((_BOARD - cell * cells) / 2 for cells in (game.columns, game.rows))
    rewards = [0.0, *accumulate(step.reward for step in episode.steps)]
    captions = [
        _caption(_turn(game, step, turn), _thought(step, prompt_format), rewards[turn], timeline.shown(turn, turn + 1))
        for turn, step in enumerate(episode.steps)
    ]
    end = len(episode.steps)
    captions.append(_caption(_outcome(game, episode), "", rewards[end], timeline.shown(end, None)))
    return (
        f'<text class="title" y="25">{_clean(short(title, _TITLE_CHARACTERS))}</text>'
        f'<g transform="translate({left:g} {_TITLE + top:g}) scale({cell:g})">{drawn}</g>'
        f'<g transform="translate(0 {_TITLE + _BOARD})">{"".join(captions)}</g>'
    )


def _caption(status: str, thought: str, reward: float, name: str) -> str:
    """The lines below a board while one state is shown."""
    sign = "plus" if reward > 0 else "minus" if reward < 0 else ""
    desk, phone = _lines(thought, _LINE_CHARACTERS), _lines(thought, _PHONE_CHARACTERS)
    lines = (
        _paragraph(desk) if desk == phone else f'<g class="desk">{_paragraph(desk)}</g><g class="phone">{_paragraph(phone)}</g>'
    )
    earned = f'<text class="reward {sign}" x="{_BOARD}" y="30"><tspan class="desk">reward </tspan>{_signed(reward)}</text>'
    return f'<g class="{name}">{status}{earned}{lines}</g>'


def _paragraph(lines: Sequence[str]) -> str:
    return "".join(f'<text class="thought" y="{59 + 26 * row}">{_clean(line)}</text>' for row, line in enumerate(lines))


def _signed(reward: float) -> str:
    return f"{reward:+g}".replace("-", "−") if reward else "0"


def _turn(game: Game, step: Step, turn: int) -> str:
    if step.action is None:
        action = f'<tspan class="none">{"truncated" if step.status == "truncated_reply" else "unparsed"}</tspan>'
    else:
        arrow = _ARROWS[moves(game)[step.action]] if step.action in moves(game) else ""
        action = f"{arrow} {_clean(short(step.action, _ACTION_CHARACTERS))}"
    return f'<text class="status" y="30">{turn + 1}/{game.horizon} {action}</text>'


def _outcome(game: Game, episode: Episode) -> str:
    how = label(success=episode.success, terminated=episode.terminated)
    kind, mark = ("good", "M5.5 10.5L8.7 13.5L14.5 7") if episode.success else ("bad", "M6.5 6.5L13.5 13.5M13.5 6.5L6.5 13.5")
    badge = f'<g transform="translate(0 13.5)"><circle class="{kind}" cx="10" cy="10" r="10"/><path class="mark" d="{mark}"/></g>'
    return f'{badge}<text class="status" x="28" y="30">{len(episode.steps)}/{game.horizon} {how}</text>'


def _thought(step: Step, prompt_format: PromptFormat) -> str:
    """The thoughts of a reply; the whole reply if it is unparsed."""
    thought = prompt_format.thought(step.completion.text)
    return thought if thought is not None else "" if step.action else step.completion.text


def _lines(text: str, characters: int) -> list[str]:
    """At most two lines of so many characters; East Asian ones are twice as wide."""
    width = characters // (2 if any(east_asian_width(character) in "WF" for character in text) else 1)
    return textwrap.wrap(text, width, max_lines=2, placeholder=" …")


def _clean(text: str) -> str:
    """Text for XML, which allows no control characters, not even escaped ones."""
    return escape(_NOT_XML.sub("\ufffd", text))
