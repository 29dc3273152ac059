"""Experiments that compare arms: every arm trains in every case with every seed, for the same number of updates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmark.experiments.differences import (
    Arms,
    findings,
    headline,
    headline_of_games,
    mean_with_interval,
    means_of,
    updates_of,
    with_interval,
)
from benchmark.experiments.experiment import Experiment, Settings, Values
from benchmark.experiments.figures import draw_curves, draw_ends, draw_games
from benchmark.experiments.training import learning_curve
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.presets import PRESETS

MOST_CURVES = 8
"""Up to this many arms, the figure shows learning curves; with more, the final rewards."""

MEASURES = ("eval_episodes", "test_episodes", "init_adapter")
"""Settings that the page omits: numbers of episodes, and a folder."""


class Comparison(Experiment):
    """Arms from a config.toml with `seeds`, `evaluations`, `updates` by case, `settings` of all arms and `arm`.

    A case is a preset. An arm's table `in` has fields of one case. `also` lists games that every arm plays after training;
    then arms are compared on these games, since they may train on different ones.
    """

    @cached_property
    def units(self) -> dict[str, Settings]:
        """One unit per seed, case and arm, seed by seed; one for all seeds if the arm is not trained."""
        config = self.config
        return {
            unit_name(case, arm, seed): {
                "case": case,
                "updates": updates,
                "evaluations": config["evaluations"],
                "seed": seed,
                **({"also": config["also"]} if "also" in config else {}),
                "settings": self.fields(case, arm),
                "arm": arm,
            }
            for seed in config["seeds"]
            for case, updates in config["updates"].items()
            for arm in config["arm"]
            if seed == self.seed_of(arm, seed)
        }

    run = staticmethod(learning_curve)

    def seed_of(self, arm: str, seed: int) -> int:
        """The seed whose run serves for this seed: the first one for an untrained arm, whose test episodes do not vary."""
        first: int = self.config["seeds"][0]
        return seed if self.config["arm"][arm].get("updates", 1) else first

    def fields(self, case: str, arm: str) -> dict[str, Any]:
        """The settings of an arm in a case: of all arms, then its own, then its own in this case."""
        changes = self.config["arm"][arm]
        own = {name: value for name, value in changes.items() if name != "in"}
        return {**self.config["settings"], **own, **changes.get("in", {}).get(case, {})}

    def is_preset(self, arm: str, but: Collection[str]) -> bool:
        """Whether an arm of the first case has the settings of the preset, except for the fields `but`."""
        case, updates = next(iter(self.config["updates"].items()))
        own, fields = asdict(preset(case)), {"updates": updates, **self.fields(case, arm)}
        return all(own[name] == value for name, value in fields.items() if name not in but)

    def unlike_preset(self, case: str) -> dict[str, tuple[Any, Any]]:
        """Field → (value, the preset's value) where all arms, or the shared settings, differ from the preset."""
        if case not in PRESETS:
            return {}
        first, *others = [self.fields(case, arm) for arm in self.config["arm"]]
        common = {name: value for name, value in first.items() if all(arm.get(name) == value for arm in others)}
        own = asdict(preset(case))
        fields = {**common, **self.config["settings"]}
        return {name: (value, own[name]) for name, value in fields.items() if own.get(name, value) != value}

    def arms(self, rows: Mapping[str, Values], case: str = "") -> Arms:
        """The rows of a case, by default the first, by arm and seed; arms without rows are left out."""
        case, seeds = case or next(iter(self.config["updates"])), self.config["seeds"]
        found = {
            arm: {seed: rows[name] for seed in seeds if (name := unit_name(case, arm, self.seed_of(arm, seed))) in rows}
            for arm in self.config["arm"]
        }
        return {arm: of_seeds for arm, of_seeds in found.items() if of_seeds}

    def titled(self, rows: Mapping[str, Values]) -> list[tuple[str, Arms]]:
        """Title and arms of each case that has rows."""
        arms = self.config["arm"].items()
        other = [f"{arm}: {fields['updates']}" for arm, fields in arms if fields.get("updates") and "updates" not in arm]
        apart = f" ({', '.join(other)})" if other else ""
        cases = self.config["updates"].items()
        found = [(f"{case}, {updates} updates{apart}", self.arms(rows, case)) for case, updates in cases]
        return [(title, of_case) for title, of_case in found if of_case]

    def headline(self, rows: Mapping[str, Values]) -> str:
        games = self.config.get("also")
        found = [(title, headline_of_games(arms, games) if games else headline(arms)) for title, arms in self.titled(rows)]
        return "\n\n".join(f"**{title}.** {said}" for title, said in found if said)

    def answer(self, rows: Mapping[str, Values]) -> str:
        head = (
            "Every arm trains with the same seeds, for the number of updates in the heading unless its name has another."
            " Differences are of test rewards of the last adapter, seed by seed, with 95 % intervals over training seeds. Against"
            " an untrained arm the interval is Welch's, with that arm's episodes as its sample. No interval is corrected for the"
            f" number of arms. {len(rows)} of {len(self.units)} runs are in."
        )
        for case in self.config["updates"]:
            apart = {name: both for name, both in self.unlike_preset(case).items() if name not in MEASURES}
            fields = ", ".join(f"`{name}` {arms} (the preset: {own})" for name, (arms, own) in apart.items())
            head += f" Arms of `{case}` have {fields}, unless their names say otherwise." if fields else ""
        found = [
            f"- **{title}{game and f', {game}'}.** {findings(arms, game)}"
            for title, arms in self.titled(rows)
            for game in self.config.get("also", [""])
        ]
        return "\n".join([head, "", *found])

    def tables(self, rows: Mapping[str, Values]) -> str:
        """Per case, the rewards on all games of `also`; else the last validation reward and the test rewards."""
        parts, games = [], self.config.get("also")
        head = ["arm", "seeds", "validation reward", "test reward [95 % over seeds]", "std over seeds", "lowest seed"]
        for title, arms in self.titled(rows):
            own = self.config["settings"].get("game") or preset(title.partition(", ")[0]).game
            lines = []
            for arm, seeds in arms.items():
                count = str(len(seeds)) if updates_of(seeds) else "–"
                if games:
                    lines.append([arm, count, *(mean_with_interval(seeds, game) for game in games)])
                    continue
                ends = list(means_of(seeds).values())
                cells = [f"{ends[0]:.3f}", "–", "–"]
                if updates_of(seeds):
                    spread = f"{np.std(ends, ddof=1):.3f}" if len(ends) > 1 else "–"
                    cells = [with_interval(ends, game=own), spread, f"{min(ends):.3f}"]
                validation = np.mean([values["curve"][-1][-1] for values in seeds.values()])
                lines.append([arm, count, f"{validation:.3f}", *cells])
            table = markdown(["arm", "seeds", *games] if games else head, lines)
            parts.append(f"**{title}**\n\n{table}")
        return "\n\n".join(parts)

    def figure(self, rows: Mapping[str, Values]) -> Figure:
        found, many = self.titled(rows), len(self.config["arm"]) > MOST_CURVES
        if "also" in self.config and found:
            return draw_games(found, self.config["also"])
        return draw_ends(found, best_first=True) if many else draw_curves(found)


def unit_name(case: str, arm: str, seed: int) -> str:
    """A valid file name for a unit."""
    plain = "".join(letter if (letter.isascii() and letter.isalnum()) or letter == "." else " " for letter in arm)
    return f"{case}-{'-'.join(plain.split())}-seed{seed}"


def best_on_validation(arms: Arms) -> tuple[str, float]:
    """The arm with the highest mean of the last validation rewards, and this mean."""
    means = {arm: float(np.mean([values["curve"][-1][1] for values in seeds.values()])) for arm, seeds in arms.items()}
    best = max(means, key=means.__getitem__)
    return best, means[best]
