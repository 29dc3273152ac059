"""Animation of an SVG without script: CSS keyframes for elements that appear, disappear or glide from state to state.

State t of an episode is shown from second t · TICK on. The move towards it takes the last part of the turn before, so that a
viewer reads the thought, then sees the action. All animations have the same length and stay in step as they loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

TICK = 1.5
"""Seconds per turn."""

PAUSE = 3.5
"""Seconds that the last state is shown before the animation starts again."""

_MOVE = 0.4
"""The last part of a turn, in which pieces move."""


class Timeline:
    """Gives class names, and collects their keyframes. Without animation every element is as in the last state."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.seconds = turns * TICK + PAUSE
        self._rules: dict[str, str] = {}

    def shown(self, first: int, end: int | None) -> str:
        """The class of an element that is visible from state `first` until state `end` (None: to the end)."""
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
        """The style sheet of all classes. A reader who prefers reduced motion sees the last state, without animation."""
        return "\n".join([*self._rules.values(), "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"])

    def _at(self, turn: float) -> str:
        return f"{100 * turn * TICK / self.seconds:.3f}".rstrip("0").rstrip(".") + "%"


def _frames(name: str, frames: str) -> str:
    return f"@keyframes {name}{{{frames}}}"


def spans(present: Sequence[bool]) -> list[tuple[int, int | None]]:
    """The spans [first, end) in which an element is visible; the end is None if it stays to the last state.

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
