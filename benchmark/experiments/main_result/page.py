"""The page of the main result: per game, every player and every training seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmark.experiments.dots import draw_dots
from benchmark.experiments.experiment import Values
from benchmark.experiments.headlines import LEAST
from benchmark.experiments.main_result.ceilings import CEILING
from benchmark.experiments.spread import boards_of_tests, by_chance
from msgrpo_hub.evaluation.aggregate import method_interval
from msgrpo_hub.evaluation.tables import markdown

KINDS = {
    "trained": "Training",
    "taught": "The same adapter, taught the moves of the best player",
    "TRL": "TRL's GRPO on the same base, in the same seconds",
    "DQN": "A DQN",
}
"""How a player's name begins → what it is."""


class Line(NamedTuple):
    """A player of a game: one mean for a scripted player, one per training seed for a run."""

    name: str
    means: Sequence[float]
    luck_adjusted: Sequence[float]
    """The same without the luck of the ice; empty where the game is not solved."""
    by_chance: float | None
    """Standard deviation of a mean that chance in the test episodes makes, where boards come several times."""

    @property
    def kind(self) -> str:
        """The key of `KINDS` that its name begins with; empty for a player that is not trained here."""
        return next((kind for kind in KINDS if self.name.startswith(kind)), "")

    @property
    def variant(self) -> str:
        """What its name says beyond the kind: a run, or a number of environment steps."""
        return self.name.removeprefix(self.kind).lstrip(":, ")

    @property
    def trained(self) -> bool:
        """Whether it has one mean per training seed."""
        return bool(self.kind)


REFERENCES = ("optimal", "planner", "greedy")
"""What results are held against: the first of these that plays the game."""


def lines_of(rows: Mapping[str, Values]) -> dict[str, list[Line]]:
    """Game → its lines, in the order of the units."""
    found: dict[str, dict[str, list[Values]]] = {}
    for values in rows.values():
        for game, played in values["games"].items():
            if played["rewards"]:
                found.setdefault(game, {}).setdefault(values["player"], []).append(played)
    return {game: [_line(game, name, of_line) for name, of_line in lines.items()] for game, lines in found.items()}


def _line(game: str, name: str, played: Sequence[Values]) -> Line:
    means, adjusted = ([float(np.mean(p[key])) for p in played if p.get(key)] for key in ("rewards", "luck_adjusted"))
    rewards = [p["rewards"] for p in played]
    return Line(name, means, adjusted, by_chance(rewards, boards_of_tests(game, len(rewards[0]))))


def reference(lines: Sequence[Line]) -> Line | None:
    """The best player that the game has."""
    by_name = {line.name: line for line in lines}
    return next((by_name[name] for name in REFERENCES if name in by_name), None)


def headline(rows: Mapping[str, Values]) -> str:
    """The share of the best player's reward on each game, by kind of player: the mean over seeds, and the worst seed."""
    said: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for game, lines in lines_of(rows).items():
        for line in (line for line in lines if line.trained and len(line.means) >= LEAST):
            if found := share(line, lines):
                best, mean, worst = found
                worst_of = f"{worst:.0%} on the worst of {len(line.means)} seeds"
                which = f", {line.variant}" if sum(other.kind == line.kind for other in lines) > 1 else ""
                said[line.kind].append(f"{mean:.0%} of {best} on {game.removesuffix('-v1')}{which} ({worst_of})")
    told = "\n".join(f"- {KINDS[kind]}: {', '.join(parts)}." for kind, parts in said.items() if parts)
    told += "".join(f"\n- {sentence}" for game, lines in lines_of(rows).items() if (sentence := _ceilings(game, lines)))
    return told and f"Shares of the best player's reward, on the slippery lake without the luck of the ice:\n\n{told}"


def _ceilings(game: str, lines: Sequence[Line]) -> str:
    """What players that leave out some moves reach at most."""
    shares = {line.name: share(line, lines) for line in lines if line.name.startswith(CEILING)}
    said = ", ".join(f"{found[1]:.0%} {name.removeprefix(CEILING)}" for name, found in shares.items() if found)
    return said and f"The most that a player can reach on {game.removesuffix('-v1')}: {said}."


def answer(rows: Mapping[str, Values]) -> str:
    """A sentence per run and game."""
    return "\n".join(_sentence(game, line, lines) for game, lines in lines_of(rows).items() for line in lines if line.trained)


def _sentence(game: str, line: Line, lines: Sequence[Line]) -> str:
    others = {other.name: other.means[0] for other in lines if not other.trained}
    against = ", ".join(f"{name} {mean:.3f}" for name, mean in others.items())
    told, best = "", reference(lines)
    if best and (found := share(line, lines)):
        name, mean, worst = found
        of_luck = " without the luck of the ice" if _lucky(line, best) else ""
        told = f" {mean:.0%} of {name}{of_luck}, {worst:.0%} on the worst seed."
    return f"- **{game}, {line.name}**: {_with_spread(line)}.{told}{against and f' Others: {against}.'}"


def share(line: Line, lines: Sequence[Line]) -> tuple[str, float, float] | None:
    """The best player, and what of its reward a line reaches, without the luck of the ice where there is any.

    Returns:
        The player's name, the mean share over seeds and that of the worst seed; None where the best player gains nothing, since
        a share of nothing says nothing.
    """
    best = reference(lines)
    if best is None:
        return None
    own, whole = (line.luck_adjusted, best.luck_adjusted) if _lucky(line, best) else (line.means, best.means)
    reached = float(np.mean(whole))
    return (best.name, float(np.mean(own)) / reached, min(own) / reached) if reached > 0 else None


def _lucky(line: Line, best: Line) -> bool:
    """Whether luck has a part in the rewards of the best player of a solved game, and what a player has without it is known."""
    return bool(line.luck_adjusted) and not np.allclose(best.luck_adjusted, best.means, atol=1e-6)


def _with_spread(line: Line) -> str:
    means = line.means
    if len(means) == 1:
        return f"{means[0]:.3f}"
    interval = method_interval(means)
    chance = (
        ""
        if line.by_chance is None
        else f" (of it by chance in the test episodes up to {min(line.by_chance, np.std(means, ddof=1)):.3f})"
    )
    spread = f"std {np.std(means, ddof=1):.3f}{chance}"
    return f"{np.mean(means):.3f} {interval or ''} over {len(means)} seeds, {spread}, best {max(means):.3f}"


def tables(rows: Mapping[str, Values]) -> str:
    """One table per game."""
    head = ["player", "seeds", "test reward [95 % over seeds]", "std", "std by chance", "lowest", "best", "luck-adjusted"]
    return "\n\n".join(
        f"**{game}**\n\n{markdown(head, [_row(line) for line in lines])}" for game, lines in lines_of(rows).items()
    )


def _row(line: Line) -> list[str]:
    adjusted = f"{np.mean(line.luck_adjusted):.3f}" if line.luck_adjusted else "–"
    if not line.trained:
        return [line.name, "–", f"{line.means[0]:.3f}", "–", "–", "–", "–", adjusted]
    interval = method_interval(line.means)
    spread = f"{np.std(line.means, ddof=1):.3f}" if len(line.means) > 1 else "–"
    return [
        line.name,
        str(len(line.means)),
        f"{np.mean(line.means):.3f} {interval or ''}".strip(),
        spread,
        "–" if line.by_chance is None else f"{line.by_chance:.3f}",
        f"{min(line.means):.3f}",
        f"{max(line.means):.3f}",
        adjusted,
    ]


def figure(rows: Mapping[str, Values]) -> Figure:
    """A panel per game: a dot for every training seed, a line for every other player."""
    found = lines_of(rows)
    drawn = Figure(figsize=(5, 0.4 + sum(0.5 + 0.26 * len(lines) for lines in found.values())), layout="constrained")
    FigureCanvasAgg(drawn)
    heights = [len(lines) + 1 for lines in found.values()]
    panels = drawn.subplots(len(found), 1, squeeze=False, height_ratios=heights).flatten()
    for axes, (game, lines) in zip(panels, found.items(), strict=True):
        best = reference(lines)
        scripted = {line.name for line in lines if not line.trained}
        draw_dots(axes, {line.name: line.means for line in lines}, best and best.means[0], scripted)
        axes.set_title(game, fontsize=9, loc="left")
    panels[-1].set_xlabel("mean reward on the test episodes", fontsize=9)
    return drawn
