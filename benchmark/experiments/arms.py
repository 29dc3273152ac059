"""Experiments that compare arms: every arm trains in every case with every seed, for the same number of updates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmark.experiments.curves import Arms, curve_table, draw_curves, draw_ends, findings
from benchmark.experiments.experiment import Experiment, Settings, Values, configuration
from benchmark.experiments.headlines import headline, headline_of_games
from benchmark.experiments.others import draw_others, table_of_others
from benchmark.experiments.training import learning_curve
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.presets import PRESETS

MOST_CURVES = 8
"""Arms that a figure shows the curves of; of more it shows how they end."""

MEASURES = ("eval_episodes", "test_episodes", "init_adapter")
"""Settings that a page does not name: how often an arm is measured, and a folder."""

Run = Callable[[Settings, Path], Values]


def compare_arms(name: str, question: str, run: Run = learning_curve) -> Experiment:
    """The experiment of a folder whose config.toml has `seeds`, `evaluations`, `updates` by case, `settings` of all and `arm`.

    A case is a preset, unless `run` takes it for something else; an arm's table `in` has the fields of one case. `also`
    names games that every arm plays in the end; then arms are compared on these alone, since they may train on different ones.

    Args:
        name: of the folder.
        question: the title of its page.
        run: (settings of a unit, folder for files that units share) → its values; see `training.learning_curve`.
    """
    config = configuration(name)
    return Experiment(
        question=question,
        units=units(config),
        run=run,
        headline=partial(_headline, config),
        answer=partial(_answer, config),
        tables=partial(_tables, config),
        figure=partial(_figure, config),
    )


def units(config: Mapping[str, Any]) -> dict[str, Settings]:
    """One per seed, case and arm, of an arm without training one for all seeds. Seed by seed, to be compared at any time."""
    return {
        unit_name(case, arm, seed): {
            "case": case,
            "updates": updates,
            "evaluations": config["evaluations"],
            "seed": seed,
            **({"also": config["also"]} if "also" in config else {}),
            "settings": {**config["settings"], **_in_case(case, changes)},
            "arm": arm,
        }
        for seed in config["seeds"]
        for case, updates in config["updates"].items()
        for arm, changes in config["arm"].items()
        if seed == seed_of(config, arm, seed)
    }


def seed_of(config: Mapping[str, Any], arm: str, seed: int) -> int:
    """The seed whose run stands for this one: the first for an arm without training, since every test is played with one seed."""
    first: int = config["seeds"][0]
    return seed if config["arm"][arm].get("updates", 1) else first


def _in_case(case: str, changes: Settings) -> Settings:
    """The fields that an arm changes; those of its table `in` are of one case each.

    >>> _in_case("quickstart-snake", {"sampler": "top", "in": {"quickstart-snake": {"selected_per_group": 4}}})
    {'sampler': 'top', 'selected_per_group': 4}
    """
    everywhere = {name: value for name, value in changes.items() if name != "in"}
    return {**everywhere, **changes.get("in", {}).get(case, {})}


def unit_name(case: str, arm: str, seed: int) -> str:
    """A name that can be that of a file."""
    plain = "".join(letter if (letter.isascii() and letter.isalnum()) or letter == "." else " " for letter in arm)
    return f"{case}-{'-'.join(plain.split())}-seed{seed}"


def is_preset(config: Mapping[str, Any], case: str, arm: str, but: Collection[str]) -> bool:
    """Whether an arm has the settings of the preset that is its case, but for some fields, such as the test episodes."""
    fields = {"updates": config["updates"][case], **config["settings"], **_in_case(case, config["arm"][arm])}
    own = asdict(preset(case))
    return all(own[name] == value for name, value in fields.items() if name not in but)


def unlike_preset(config: Mapping[str, Any], case: str) -> dict[str, tuple[Any, Any]]:
    """Field → (value of the arms, value of the preset that is their case), where they differ; arms may name other values."""
    if case not in PRESETS:
        return {}
    arms = [{**config["settings"], **_in_case(case, changes)} for changes in config["arm"].values()]
    common = {name: value for name, value in arms[0].items() if all(arm.get(name) == value for arm in arms)}
    own = asdict(preset(case))
    return {name: (value, own[name]) for name, value in {**common, **config["settings"]}.items() if own.get(name, value) != value}


def best_on_validation(arms: Arms) -> tuple[str, float]:
    """The arm with the highest mean of the last validation rewards, and this mean."""
    means = {arm: float(np.mean([values["curve"][-1][1] for values in seeds.values()])) for arm, seeds in arms.items()}
    best = max(means, key=means.__getitem__)
    return best, means[best]


def arms_of(config: Mapping[str, Any], case: str, rows: Mapping[str, Values]) -> Arms:
    """The rows of a case by arm and seed, of the arms that have any."""
    found = {
        arm: {seed: rows[name] for seed in config["seeds"] if (name := unit_name(case, arm, seed_of(config, arm, seed))) in rows}
        for arm in config["arm"]
    }
    return {arm: of_seeds for arm, of_seeds in found.items() if of_seeds}


def game_of(config: Mapping[str, Any], case: str) -> str:
    """The game of a case: that of all arms, or of the preset that is the case, or the case itself."""
    named: str = config["settings"].get("game") or (preset(case).game if case in PRESETS else case)
    return named


def titled(config: Mapping[str, Any], rows: Mapping[str, Values]) -> list[tuple[str, Arms]]:
    """Title and arms of each case that has rows."""
    other = {arm: fields["updates"] for arm, fields in config["arm"].items() if fields.get("updates") and "updates" not in arm}
    apart = f" ({', '.join(f'{arm}: {updates}' for arm, updates in other.items())})" if other else ""
    found = [(f"{case}, {updates} updates{apart}", arms_of(config, case, rows)) for case, updates in config["updates"].items()]
    return [(title, arms) for title, arms in found if arms]


def _tables(config: Mapping[str, Any], rows: Mapping[str, Values]) -> str:
    parts = []
    for title, arms in titled(config, rows):
        game = game_of(config, title.partition(", ")[0])
        table = table_of_others(arms, config["also"]) if "also" in config else curve_table(arms, game)
        parts.append(f"**{title}**\n\n{table}")
    return "\n\n".join(parts)


def _headline(config: Mapping[str, Any], rows: Mapping[str, Values]) -> str:
    found = [
        (title, headline_of_games(arms, config["also"]) if "also" in config else headline(arms))
        for title, arms in titled(config, rows)
    ]
    return "\n\n".join(f"**{title}.** {said}" for title, said in found if said)


def _answer(config: Mapping[str, Any], rows: Mapping[str, Values]) -> str:
    head = (
        "Every arm trains with the same seeds, for the number of updates in the heading unless its name has another. Differences"
        " are of test rewards of the last adapter, seed by seed, with their 95 % interval over training seeds; against an arm"
        " without training it is Welch's, whose sample there is its episodes. None is corrected for the number of arms."
        f" {len(rows)} of {len(units(config))} runs are in.{_unlike_presets(config)}"
    )
    found = [
        f"- **{title}{game and f', {game}'}.** {findings(arms, game)}"
        for title, arms in titled(config, rows)
        for game in config.get("also", [""])
    ]
    return "\n".join([head, "", *found])


def _unlike_presets(config: Mapping[str, Any]) -> str:
    """What the arms have in place of a preset's values, but for what only measures them."""
    told = ""
    for case in config["updates"]:
        apart = {name: both for name, both in unlike_preset(config, case).items() if name not in MEASURES}
        fields = ", ".join(f"`{name}` {arms} (the preset: {own})" for name, (arms, own) in apart.items())
        told += f" Arms of `{case}` have {fields}, unless their names say otherwise." if fields else ""
    return told


def _figure(config: Mapping[str, Any], rows: Mapping[str, Values]) -> Figure:
    found = titled(config, rows)
    if "also" in config and found:
        return draw_others(found, config["also"])
    return draw_ends(found, best_first=True) if len(config["arm"]) > MOST_CURVES else draw_curves(found)
