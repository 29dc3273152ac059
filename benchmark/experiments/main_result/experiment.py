"""What does training reach, over 8 seeds, beside players that are not trained here?"""

from __future__ import annotations

from typing import Any

from benchmark.experiments.experiment import Experiment, Settings, configuration
from benchmark.experiments.main_result.page import answer, figure, tables
from benchmark.experiments.main_result.runs import run


def units() -> dict[str, Settings]:
    """The players of each game, then every run with every seed, seed by seed."""
    config = configuration("main_result")
    players: dict[str, Settings] = {
        f"{game}-{player}": {"game": game, "player": player, "episodes": config["episodes"]}
        for game, of_game in config["players"].items()
        for player in of_game
    }
    runs: dict[str, Settings] = {
        f"{name.replace(' ', '-')}-seed{seed}": {
            "run": name,
            "seed": seed,
            "stages": stages(config, name),
            "also": settings.get("also", []),
            "episodes": config["episodes"],
        }
        for seed in config["seeds"]
        for name, settings in config["run"].items()
    }
    supervised: dict[str, Settings] = {
        f"supervised-{case['preset']}-seed{seed}": {**case, "seed": seed, "episodes": config["episodes"]}
        for seed in config["supervised"]["seeds"]
        for case in config["supervised"]["case"]
    }
    others: dict[str, Settings] = {
        f"{kind}-{case}-{settings['steps']}-seed{seed}" if kind == "dqn" else f"{kind}-{case}-seed{seed}": {
            kind: case,
            "seed": seed,
            "episodes": config["episodes"],
            **settings,
        }
        for kind, case, settings in other_ways(config)
        for seed in config[kind]["seeds"]
    }
    return players | runs | supervised | others


def other_ways(config: dict[str, Any]) -> list[tuple[str, str, Settings]]:
    """What else is trained: kind, game or run, and what it needs to know."""
    networks = [("dqn", game, {"steps": steps}) for game, budgets in config["dqn"]["steps"].items() for steps in budgets]
    return networks + [("trl", name, {"stages": stages(config, name)}) for name in config["trl"]["runs"]]


def stages(config: dict[str, Any], name: str) -> list[Settings]:
    """The runs that lead to a run, the first first: preset, and fields that differ from it."""
    run = config["run"][name]
    own = {field: value for field, value in run.items() if field not in ("after", "also")}
    return [*(stages(config, run["after"]) if "after" in run else []), {**own, **config["stage"]}]


EXPERIMENT = Experiment(question="What does training reach?", units=units(), run=run, answer=answer, tables=tables, figure=figure)
