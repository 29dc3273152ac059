"""What does training reach, over 5 to 8 seeds, beside players that are not trained here?"""

from __future__ import annotations

from typing import Any

from benchmark.experiments.experiment import Experiment, Settings, configuration
from benchmark.experiments.main_result.page import answer, figure, headline, tables
from benchmark.experiments.main_result.runs import run, unit_of


def units() -> dict[str, Settings]:
    """The players of each game, then every run with every seed, seed by seed."""
    config = configuration("main_result")
    players: dict[str, Settings] = {
        f"{game}-{player.replace(' ', '-')}": {"game": game, "player": player, "episodes": config["episodes"]}
        for game, of_game in config["players"].items()
        for player in of_game
    }
    runs: dict[str, Settings] = {
        unit_of(name, seed): {
            "run": name,
            "seed": seed,
            "stages": stages(config, name),
            "also": settings.get("also", []),
            "episodes": config["episodes"],
        }
        for seed in config["seeds"]
        for name, settings in config["run"].items()
        if seed in settings.get("seeds", config["seeds"])
    }
    supervised: dict[str, Settings] = {
        f"supervised-{case.get('game', case['preset'])}-seed{seed}": {**case, "seed": seed, "episodes": config["episodes"]}
        for seed in config["supervised"]["seeds"]
        for case in config["supervised"]["case"]
    }
    networks: dict[str, Settings] = {
        f"dqn-{game}-{steps}-seed{seed}": {"dqn": game, "seed": seed, "episodes": config["episodes"], "steps": steps}
        for game, budgets in config["dqn"]["steps"].items()
        for steps in budgets
        for seed in config["dqn"]["seeds"]
    }
    trl: dict[str, Settings] = {
        f"trl-{name}-seed{seed}": {"trl": name, "seed": seed, "episodes": config["episodes"], "stages": stages(config, name)}
        for name, seeds in config["trl"]["seeds"].items()
        for seed in seeds
    }
    return players | runs | supervised | networks | trl


def stages(config: dict[str, Any], name: str) -> list[Settings]:
    """What leads to a run, the first first: a preset and fields that differ from it; with a `teacher`, it is taught so."""
    run = config["run"][name]
    own = {field: value for field, value in run.items() if field not in ("after", "also", "seeds", "before")}
    before = stages(config, run["after"]) if "after" in run else []
    if "before" in run:
        before = [{"preset": run["preset"], "game": run["game"], **run["before"]}]
    return [*before, {**own, **config["stage"]}]


EXPERIMENT = Experiment(
    question="What does training reach?",
    units=units(),
    run=run,
    headline=headline,
    answer=answer,
    tables=tables,
    figure=figure,
)
