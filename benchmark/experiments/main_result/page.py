"""The page of the main result: per game, every player and every training seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmark.experiments.curves import with_interval
from benchmark.experiments.dots import draw_dots, height, in_lines
from benchmark.experiments.experiment import Values
from benchmark.experiments.headlines import LEAST
from benchmark.experiments.main_result.ceilings import CEILING
from benchmark.experiments.main_result.runs import COOLER
from benchmark.experiments.spread import boards_of_tests, by_chance
from msgrpo_hub.evaluation.tables import markdown

TRAINED = ("trained", "taught", "TRL", "DQN")
"""How the names of players begin that are trained here, and have one mean per training seed."""


ELSEWHERE = ", not on this game"
"""What follows the name of a run where it plays a game that it was not trained on."""


class Line(NamedTuple):
    """A player of a game: one mean for a scripted player, one per training seed for a run."""

    game: str
    name: str
    means: Sequence[float]
    luck_adjusted: Sequence[float]
    """The same without the luck of the ice; empty where the game is not solved."""
    by_chance: float | None
    """Standard deviation of a mean that chance in the test episodes makes, where boards come several times."""
    learned_from: str
    """How much it has learned from, on average over its seeds; empty for a player that is not trained here."""

    @property
    def trained(self) -> bool:
        return self.name.startswith(TRAINED)

    @property
    def kind(self) -> str:
        """What the headline has one line of: a way to train at a temperature, a scripted player, players without some moves."""
        way = next((name for name in (*TRAINED, CEILING) if self.name.startswith(name)), self.name)
        return f"{way} {ELSEWHERE in self.name} {self.name.endswith(f' at {COOLER}')}"

    def told(self, means: Sequence[float]) -> str:
        """The mean of its means, with its interval over training seeds where it has some."""
        return with_interval(means, game=self.game) if self.trained else f"{means[0]:.3f}"


HEAD = (
    "Shares of the best player's reward, or rewards where it gains none; on the slippery lake without the luck of the ice."
    " *taught*: the same adapter, taught the moves of the best player; *TRL*: its GRPO on the same base, from one"
    " step of each episode, with the settings of `lake` and `snake alone`, which were not chosen for it, and in their processor"
    " seconds, while our engine acts;"
    f" *at {COOLER}*: replies sampled at this temperature, at which the authors evaluated later, and not at 1 as in training;"
    " *best …*: the exact optimum without some moves; *from*: without what the run began with. Of several runs of a kind the best"
    " is here, and the one that TRL is compared with; the tables have all."
)

COMPARED = ("trained: lake", "trained: snake alone")
"""The runs in whose seconds TRL's GRPO has learned."""

REFERENCES = ("optimal", "planner", "greedy")
"""What results are held against: the first of these that plays the game."""


def lines_of(rows: Mapping[str, Values]) -> dict[str, list[Line]]:
    """Game → its lines, in the order of the units; of a model that has played cooler as well, two."""
    found: dict[str, dict[str, list[tuple[Values, Values]]]] = {}
    for values in rows.values():
        for key, apart in (("games", ""), ("cooler", f" at {COOLER}")):
            for place, (game, played) in enumerate(values.get(key, {}).items()):
                if played["rewards"]:
                    name = f"{values['player']}{ELSEWHERE * (place > 0)}{apart}"
                    found.setdefault(game, {}).setdefault(name, []).append((values, played))
    return {game: [_line(game, name, of_line) for name, of_line in lines.items()] for game, lines in found.items()}


def _line(game: str, name: str, found: Sequence[tuple[Values, Values]]) -> Line:
    """A line of the rows of a player, each with what it played."""
    rows, played = zip(*found, strict=True)
    means, adjusted = ([float(np.mean(p[key])) for p in played if p.get(key)] for key in ("rewards", "luck_adjusted"))
    rewards = [p["rewards"] for p in played]
    return Line(game, name, means, adjusted, by_chance(rewards, boards_of_tests(game, len(rewards[0]))), _learned_from(rows))


def _learned_from(rows: Sequence[Values]) -> str:
    """Environment steps, or the episodes of the run that is named, without those of a run that it begins with."""
    for key, unit in (("environment_steps", "steps"), ("training_episodes", "episodes")):
        if amounts := [values[key] for values in rows if key in values]:
            return f"{round(np.mean(amounts)):,} {unit}"
    return ""


def reference(lines: Sequence[Line]) -> Line | None:
    """The best player that the game has."""
    by_name = {line.name: line for line in lines}
    return next((by_name[name] for name in REFERENCES if name in by_name), None)


def headline(rows: Mapping[str, Values]) -> str:
    """Game by game, what other players reach of the best one's reward, the most first; rewards if that gains nothing."""
    said = []
    for game, lines in lines_of(rows).items():
        best = reference(lines)
        ranked = sorted(
            (line for line in lines if line is not best and _counts(line)), key=lambda line: -np.mean(without_luck(line, best))
        )
        others = [
            line
            for place, line in enumerate(ranked)
            if line.name in COMPARED or line.kind not in {other.kind for other in ranked[:place]}
        ]
        if best and any(line.trained for line in others):
            gains = share(best, lines) is not None
            of_best = f"of *{best.name}*" if gains else f"rewards; *{best.name}* {best.means[0]:.2f}"
            told = "; ".join(_share(found, line) if (found := share(line, lines)) else _reward(line) for line in others)
            said.append(f"- **{game.removesuffix('-v1')}**, {of_best}: {told}.")
    return "\n".join([HEAD, "", *said]) if said else ""


def _counts(line: Line) -> bool:
    return len(line.means) >= LEAST or not line.trained


def _share(found: tuple[str, float, float], line: Line) -> str:
    _, mean, worst = found
    return f"{line.name} {mean:.0%}{_seeds(line, f'{worst:.0%}')}"


def _reward(line: Line) -> str:
    return f"{line.name} {np.mean(line.means):.2f}{_seeds(line, f'{min(line.means):.2f}')}"


def _seeds(line: Line, worst: str) -> str:
    if not line.trained:
        return ""
    amount = f", from {line.learned_from}" if line.learned_from and line.learned_from not in line.name else ""
    return f" (worst of {len(line.means)} seeds {worst}{amount})"


def answer(_: Mapping[str, Values]) -> str:
    """How to read the tables."""
    return (
        "Intervals are over training seeds (Student's t). “Std by chance” is what sampled replies and slipping ice alone make of"
        " it. All seeds play the same test episodes with the same chance in them, so intervals are about other training seeds,"
        " not about other boards, and the std of adapters that hardly differ can be below that of chance. “Learned from” leaves"
        " out what a run began with: `slippery` goes on from `lake`, and `snake` from `snake alone`, of the same seed, and"
        " what is reinforced after teaching from what was taught. Runs end with their last weights; a DQN is its best checkpoint"
        " by validation, which favours it. Some runs were repeated to play at 0.5 as well and round differently; those that go on"
        " from them were not."
    )


def share(line: Line, lines: Sequence[Line]) -> tuple[str, float, float] | None:
    """The best player, and what of its reward a line reaches, without the luck of the ice where there is any.

    Returns:
        The player's name, the mean share over seeds and that of the worst seed; None where the best player gains nothing, since
        a share of nothing says nothing.
    """
    best = reference(lines)
    if best is None:
        return None
    own, reached = without_luck(line, best), float(np.mean(without_luck(best, best)))
    return (best.name, float(np.mean(own)) / reached, min(own) / reached) if reached > 0 else None


def without_luck(line: Line, best: Line | None) -> Sequence[float]:
    """The means of a line, without the luck of the ice where there is any."""
    return line.luck_adjusted if best and _lucky(line, best) else line.means


def _lucky(line: Line, best: Line) -> bool:
    """Whether luck has a part in the rewards of the best player of a solved game, and what a player has without it is known."""
    return bool(line.luck_adjusted) and not np.allclose(best.luck_adjusted, best.means, atol=1e-6)


def tables(rows: Mapping[str, Values]) -> str:
    """One table per game."""
    return "\n\n".join(f"**{game}**\n\n{_table(lines)}" for game, lines in lines_of(rows).items())


def _table(lines: Sequence[Line]) -> str:
    head = ["player", "seeds", "learned from", "test reward [95 %]", "std", "std by chance", "lowest", "best", "luck-adjusted"]
    best = reference(lines)
    return markdown([*head, f"share of {best.name}" if best else "share"], [_row(line, lines) for line in lines])


def _row(line: Line, lines: Sequence[Line]) -> list[str]:
    found, spread = share(line, lines), ["–"] * 4
    if len(line.means) > 1:
        chance = "–" if line.by_chance is None else f"{line.by_chance:.3f}"
        spread = [f"{np.std(line.means, ddof=1):.3f}", chance, f"{min(line.means):.3f}", f"{max(line.means):.3f}"]
    return [
        line.name,
        str(len(line.means)) if line.trained else "–",
        line.learned_from or "–",
        line.told(line.means),
        *spread,
        line.told(line.luck_adjusted) if line.luck_adjusted else "–",
        f"{found[1]:.0%}" if found else "–",
    ]


def figure(rows: Mapping[str, Values]) -> Figure:
    """A panel per game: a dot for every training seed, a grey one for every other player; without luck where there is any."""
    found = lines_of(rows)
    heights = [height(in_lines(line.name) for line in lines) + 0.5 for lines in found.values()]
    drawn = Figure(figsize=(5, 0.4 + 0.27 * sum(heights)), layout="constrained")
    FigureCanvasAgg(drawn)
    panels = drawn.subplots(len(found), 1, squeeze=False, height_ratios=heights).flatten()
    for axes, (game, lines) in zip(panels, found.items(), strict=True):
        best = reference(lines)
        scripted = {in_lines(line.name) for line in lines if not line.trained}
        dots = {in_lines(line.name): without_luck(line, best) for line in lines}
        draw_dots(axes, dots, best and without_luck(best, best)[0], scripted)
        axes.set_title(game + (", without luck" if best and _lucky(best, best) else ""), fontsize=9, loc="left")
    drawn.supxlabel(
        "mean test reward: of every seed, and their mean;\ngrey: not trained here; dotted: the best player", fontsize=9
    )
    return drawn
