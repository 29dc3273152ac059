"""What does training reach, over 5 to 8 seeds, beside players that are not trained here?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from textwrap import wrap
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmark.experiments.differences import with_interval
from benchmark.experiments.experiment import Experiment, Settings, Values
from benchmark.experiments.figures import LONGEST, draw_dots, height, panels
from benchmark.experiments.main_result.runs import CEILING, COOLER, run, unit_of
from benchmark.experiments.spread import boards_of_tests, by_chance
from msgrpo_hub.evaluation.statistics import FEWEST_SEEDS
from msgrpo_hub.evaluation.tables import markdown

TRAINED = ("trained", "taught", "TRL", "DQN")
"""The starts of the names of players that are trained here; they have one mean per training seed."""
ELSEWHERE = ", not on this game"
"""Added to the name of a run on a game that it has not trained on."""
COMPARED = ("trained: lake", "trained: snake alone")
"""The runs whose seconds TRL's GRPO gets."""
REFERENCES = ("optimal", "planner", "greedy")
"""The reference of a game is the first of these players that plays it."""

HEAD = (
    "Shares of the best player's reward, or rewards if that player gains nothing; luck-adjusted on the slippery lake."
    " *taught*: the same adapter after SFT on the best player's moves; *TRL*: its GRPO on the same base, on one step of each"
    " episode, with the settings of `lake` and `snake alone`, not tuned for it, for their processor seconds, while our engine"
    f" samples; *at {COOLER}*: replies sampled at this temperature, as in the authors' later evaluations, and not at 1 as in"
    " training; *best …*: the exact optimum without some moves; *from*: without the run that it started from. Of each kind of"
    " run, only the best is here, and the one that TRL is compared with; the tables have all."
)


class Line(NamedTuple):
    """A player on a game: one mean for a scripted player, one per training seed for a trained one."""

    name: str
    trained: bool
    means: Sequence[float]
    luck_adjusted: Sequence[float]
    """Luck-adjusted means; empty if the game is not solved."""
    without_luck: Sequence[float]
    """The means, luck-adjusted if luck matters in the game."""
    shares: Sequence[float]
    """The shares of the reference player's reward; empty if that player gains nothing."""
    by_chance: float | None
    """Standard deviation of a mean due to chance in the test episodes; None if boards do not repeat."""
    learned_from: str
    """Episodes or steps, on average over the seeds; empty for a player that is not trained here."""


class Played(NamedTuple):
    """A game with its players, in the order of the units."""

    game: str
    lines: Sequence[Line]
    best: Line | None
    """The reference player."""
    lucky: bool
    """Whether the game is solved and luck changes the reference player's rewards."""


def lines_of(rows: Mapping[str, Values]) -> list[Played]:
    """The lines of each game; a model that has also played at a lower temperature has two."""
    found: dict[str, dict[str, list[tuple[Values, Values]]]] = {}
    for values in rows.values():
        for key, apart in (("games", ""), ("cooler", f" at {COOLER}")):
            for place, (game, played) in enumerate(values.get(key, {}).items()):
                if played["rewards"]:
                    name = f"{values['player']}{ELSEWHERE * (place > 0)}{apart}"
                    found.setdefault(game, {}).setdefault(name, []).append((values, played))
    games = []
    for game, by_name in found.items():
        means, adjusted = (
            {name: [float(np.mean(p[key])) for _, p in pairs if p.get(key)] for name, pairs in by_name.items()}
            for key in ("rewards", "luck_adjusted")
        )
        best = next((name for name in REFERENCES if name in by_name), "")
        lucky = bool(adjusted.get(best)) and not np.allclose(adjusted[best], means[best], atol=1e-6)
        counted = {name: adjusted[name] if lucky and adjusted[name] else means[name] for name in by_name}
        reached, lines = float(np.mean(counted[best])) if best else 0.0, dict[str, Line]()
        for name, pairs in by_name.items():
            rewards, learned_from = [played["rewards"] for _, played in pairs], ""
            for key, unit in (("training_episodes", "episodes"), ("environment_steps", "steps")):
                if amounts := [values[key] for values, _ in pairs if key in values]:
                    learned_from = f"{round(np.mean(amounts)):,} {unit}"
            lines[name] = Line(
                name=name,
                trained=name.startswith(TRAINED),
                means=means[name],
                luck_adjusted=adjusted[name],
                without_luck=counted[name],
                shares=[mean / reached for mean in counted[name]] if reached > 0 else [],
                by_chance=by_chance(rewards, boards_of_tests(game, len(rewards[0]))),
                learned_from=learned_from,
            )
        games.append(Played(game, list(lines.values()), lines.get(best), lucky))
    return games


class MainResult(Experiment):
    """Every run with every seed, other ways to train, and the other players."""

    @cached_property
    def units(self) -> dict[str, Settings]:
        """The players of each game, then every run with every seed, seed by seed, then the other ways to train."""
        config = self.config
        episodes, units = config["episodes"], dict[str, Settings]()
        for game, players in config["players"].items():
            for player in players:
                units[f"{game}-{player.replace(' ', '-')}"] = {"game": game, "player": player, "episodes": episodes}
        for seed in config["seeds"]:
            for name, of_run in config["run"].items():
                if seed in of_run.get("seeds", config["seeds"]):
                    further = {"stages": self.stages(name), "also": of_run.get("also", []), "episodes": episodes}
                    units[unit_of(name, seed)] = {"run": name, "seed": seed, **further}
        for seed in config["supervised"]["seeds"]:
            for case in config["supervised"]["case"]:
                unit = f"supervised-{case.get('game', case['preset'])}-seed{seed}"
                units[unit] = {**case, "seed": seed, "episodes": episodes}
        for game, budgets in config["dqn"]["steps"].items():
            for steps in budgets:
                for seed in config["dqn"]["seeds"]:
                    units[f"dqn-{game}-{steps}-seed{seed}"] = {"dqn": game, "seed": seed, "episodes": episodes, "steps": steps}
        for name, seeds in config["trl"]["seeds"].items():
            for seed in seeds:
                settings = {"trl": name, "seed": seed, "episodes": episodes, "stages": self.stages(name)}
                units[f"trl-{name}-seed{seed}"] = settings
        return units

    def stages(self, name: str) -> list[Settings]:
        """The runs that lead to a run, first to last: a preset and changed fields; `teacher` without `taught`: no rewards."""
        run = self.config["run"][name]
        own = {field: value for field, value in run.items() if field not in ("after", "also", "seeds", "before")}
        before = self.stages(run["after"]) if "after" in run else []
        if "before" in run:
            before = [{"preset": run["preset"], "game": run["game"], **run["before"]}]
        return [*before, {**own, **self.config["stage"]}]

    def run(self, settings: Settings) -> Values:
        return run(settings, self.scratch)

    def headline(self, rows: Mapping[str, Values]) -> str:
        """Game by game, the shares of the reference player's reward, the largest first; rewards if that player gains nothing.

        One line of a kind: way to train, game trained on, and temperature; scripted player; exact optimum.
        """
        said = []
        for game, lines, best, _ in lines_of(rows):
            counted = [line for line in lines if line is not best and (len(line.means) >= FEWEST_SEEDS or not line.trained)]
            parts, kinds, trained = [], set[tuple[str, bool, bool]](), False
            for line in sorted(counted, key=lambda line: -np.mean(line.without_luck)):
                way = next((name for name in (*TRAINED, CEILING) if line.name.startswith(name)), line.name)
                kind = way, ELSEWHERE in line.name, line.name.endswith(f" at {COOLER}")
                if line.name in COMPARED or kind not in kinds:
                    values, form = (line.shares, ".0%") if line.shares else (line.means, ".2f")
                    amount = f", from {line.learned_from}" if line.learned_from and line.learned_from not in line.name else ""
                    worst = f" (worst of {len(line.means)} seeds {min(values):{form}}{amount})" if line.trained else ""
                    parts.append(f"{line.name} {np.mean(values):{form}}{worst}")
                    trained |= line.trained
                kinds.add(kind)
            if best and trained:
                of_best = f"of *{best.name}*" if best.shares else f"rewards; *{best.name}* {best.means[0]:.2f}"
                said.append(f"- **{game.removesuffix('-v1')}**, {of_best}: {'; '.join(parts)}.")
        return "\n".join([HEAD, "", *said]) if said else ""

    def answer(self, rows: Mapping[str, Values]) -> str:  # noqa: ARG002
        """How to read the tables."""
        return (
            "Intervals are over training seeds (Student's t). “Std by chance” is the part due to sampled replies and slippery"
            " ice. All seeds play the same test episodes with the same random numbers, so intervals describe other training"
            " seeds and not other boards, and the std of similar adapters can be smaller. “Learned from” leaves out earlier"
            " runs: `slippery` starts from `lake`, `snake` from `snake alone` with the same seed, and a run after teaching from"
            " the taught adapter. Runs end with their last weights; a DQN is its best checkpoint by validation, which favours"
            " it. Some runs were repeated to play at 0.5 as well, and round differently; the runs that start from them were not"
            " repeated."
        )

    def tables(self, rows: Mapping[str, Values]) -> str:
        head = ["player", "seeds", "learned from", "test reward [95 %]", "std", "std by chance", "lowest", "best"]
        tables = []
        for game, lines, best, _ in lines_of(rows):
            cells = []
            for line in lines:
                spread = ["–"] * 4
                if len(line.means) > 1:
                    chance = "–" if line.by_chance is None else f"{line.by_chance:.3f}"
                    spread = [f"{np.std(line.means, ddof=1):.3f}", chance, f"{min(line.means):.3f}", f"{max(line.means):.3f}"]
                reward, adjusted = (
                    "–" if not means else with_interval(means, game=game) if line.trained else f"{means[0]:.3f}"
                    for means in (line.means, line.luck_adjusted)
                )
                seeds = str(len(line.means)) if line.trained else "–"
                share = f"{np.mean(line.shares):.0%}" if line.shares else "–"
                cells.append([line.name, seeds, line.learned_from or "–", reward, *spread, adjusted, share])
            table = markdown([*head, "luck-adjusted", f"share of {best.name}" if best else "share"], cells)
            tables.append(f"**{game}**\n\n{table}")
        return "\n\n".join(tables)

    def figure(self, rows: Mapping[str, Values]) -> Figure:
        """A panel per game: a dot for every training seed, a grey one for every other player; luck-adjusted if luck matters."""
        games = lines_of(rows)
        labels = [["\n".join(wrap(line.name, LONGEST)) for line in of_game.lines] for of_game in games]
        figure, axes = panels([height(names) + 0.27 * 0.5 for names in labels], 0.4)
        for axis, (game, lines, best, lucky), names in zip(axes, games, labels, strict=True):
            scripted = {name for name, line in zip(names, lines, strict=True) if not line.trained}
            dots = {name: line.without_luck for name, line in zip(names, lines, strict=True)}
            draw_dots(axis, dots, best.without_luck[0] if best else None, scripted)
            axis.set_title(game + (", without luck" if lucky else ""), fontsize=9, loc="left")
        figure.supxlabel(
            "mean test reward: of every seed, and their mean;\ngrey: not trained here; dotted: the best player", fontsize=9
        )
        return figure


EXPERIMENT = MainResult("main_result", "What does training reach?")
