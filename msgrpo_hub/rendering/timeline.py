"""Time in an SVG without script: CSS keyframes for what comes and goes, and for what glides from state to state.

State t of an episode stands from second t · TICK on. A move is made in the last part of the turn before it, so that a
viewer reads the thought, then sees the deed. All animations last as long as the film, so they stay in step as it loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

TICK = 1.5
"""Seconds a turn."""

PAUSE = 3.5
"""Seconds the last state stands before the film starts again."""

_MOVE = 0.4
"""The last part of a turn, in which things move."""


class Timeline:
    """Hands out class names, and collects their keyframes. Without animation each element is as at the end of the film."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.seconds = turns * TICK + PAUSE
        self._rules: dict[str, str] = {}

    def shown(self, first: int, end: int | None) -> str:
        """The class of an element that is there from state `first` until state `end` (None: to the end of the film)."""
        if first == 0 and end is None:
            return ""
        name = f"v{first}-{'end' if end is None else end}"
        before = "0%{visibility:hidden}" if first else ""
        after = "to{visibility:visible}" if end is None else f"{self._at(end)},to{{visibility:hidden}}"
        frames = f"{before}{self._at(first)}{{visibility:visible}}{after}"
        still = "visible" if end is None else "hidden"
        self._rules[name] = (
            f".{name}{{visibility:{still};animation:{name} {self.seconds:g}s step-end infinite}}{_frames(name, frames)}"
        )
        return name

    def gliding(self, declarations: Sequence[str]) -> str:
        """The class of an element that has `declarations[t]` in state t, and moves between them."""
        stops = [f"0%{{{declarations[0]}}}"]
        for turn, (before, after) in enumerate(pairwise(declarations), start=1):
            if before != after:
                stops += [f"{self._at(turn - _MOVE)}{{{before}}}", f"{self._at(turn)}{{{after}}}"]
        if len(stops) > 1:
            stops.append(f"to{{{declarations[-1]}}}")
        frames = "".join(stops)
        name = f"g{len(self._rules)}"
        motion = f"animation:{name} {self.seconds:g}s ease-in-out infinite"
        self._rules[name] = f".{name}{{{declarations[-1]};{motion}}}{_frames(name, frames)}"
        return name

    def style(self) -> str:
        """The style sheet of every class handed out. Who asked for less motion sees the last state, standing still."""
        return "\n".join([*self._rules.values(), "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"])

    def _at(self, turn: float) -> str:
        return f"{100 * turn * TICK / self.seconds:.3f}".rstrip("0").rstrip(".") + "%"


def _frames(name: str, frames: str) -> str:
    return f"@keyframes {name}{{{frames}}}"


def spans(present: Sequence[bool]) -> list[tuple[int, int | None]]:
    """The stretches [first, end) in which something is there; None for one that lasts to the end of the film.

    >>> spans([True, True, False, True])
    [(0, 2), (3, None)]
    """
    found: list[tuple[int, int | None]] = []
    first: int | None = None
    for turn, there in enumerate(present):
        if there and first is None:
            first = turn
        elif not there and first is not None:
            found.append((first, turn))
            first = None
    return [*found, (first, None)] if first is not None else found
