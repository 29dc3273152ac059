"""The computed tables of the page on published lakes, written by `python docs/tables.py`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from lake_means import Means, lake_means, mean_of

from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.registry import LAKES

PUBLISHED = Path(__file__).with_name("published_lakes.toml")


@dataclass(frozen=True)
class Scale:
    """A published Frozen Lake: one game, or games of several sizes in equal shares."""

    name: str
    ids: str
    """The part of the ids between `FrozenLake-` and `-v1`, without the size."""
    source: str
    """Repository, commit and files that state the settings."""
    differs: str = "–"
    """What their game has that these ids lack."""
    sizes: range = range(0)

    @property
    def lakes(self) -> list[FrozenLake]:
        parts = [f"{self.ids}-{n}x{n}" for n in self.sizes] or [self.ids]
        return [LAKES[f"FrozenLake-{part}-v1"] for part in parts]


_GYMNASIUM = "Farama-Foundation/Gymnasium@v1.4.0 gymnasium/envs/__init__.py gymnasium/envs/toy_text/frozen_lake.py"
_RAGEN_1 = "RAGEN-AI/RAGEN@5eb79b8 ragen/env/frozen_lake config/envs.yaml config/base.yaml"
_RAGEN_2 = "mll-lab-nu/RAGEN@20daedc ragen/env/frozen_lake config/envs.yaml config/_3_frozen_lake.yaml config/base.yaml"
_ROLL = "alibaba/ROLL@8eb27cc roll/pipeline/agentic/env/frozen_lake examples/config/traj_envs.yaml"
_VAGEN = "mll-lab-nu/VAGEN@2936322 vagen/envs/frozenlake examples/train/frozenlake/val_frozenlake_text.yaml"
_TEXT_ARENA = "TextArena/TextArena@6dfb577 textarena/envs/__init__.py textarena/envs/FrozenLake/env.py textarena/state.py"
_RLLM = (
    "rllm-org/rllm@ef6451f rllm/environments/frozenlake/frozenlake.py examples/frozenlake/prepare_frozenlake_data.py "
    "examples/frozenlake/train_frozenlake_agent.sh"
)
_COOKBOOK = "rllm-org/rllm@9beb6e0 cookbooks/frozenlake/frozenlake_flow.py cookbooks/frozenlake/prepare_frozenlake_data.py"
_TRINITY = (
    "modelscope/Trinity-RFT@1d92209 benchmark/reports/frozenlake.md; "
    "modelscope/Trinity-RFT@1764513 trinity/common/workflows/envs/frozen_lake; "
    "hiyuchang/agentscope-samples@a1b4d54 tuner/frozen_lake (AgentScope's sample)"
)
_ACTIONS = "10 actions in 5 replies of up to {}; the whole history in the prompt"
_HISTORY = "the whole history in the prompt"
_WALLS = (
    "a move off the board is invalid and takes no turn, and the second in a row ends the game; "
    "a hole or the last turn gives the share of the way, at most 0.95"
)

SCALES = (
    Scale("gymnasium 4×4", "Gymnasium-4x4", _GYMNASIUM),
    Scale("gymnasium 8×8", "Gymnasium-8x8", _GYMNASIUM),
    Scale("RAGEN 1", "RAGEN1", _RAGEN_1, _ACTIONS.format(5)),
    Scale("RAGEN 2", "RAGEN2", _RAGEN_2, _ACTIONS.format(2)),
    Scale("RAGEN 2, slippery", "RAGEN2-Slippery", _RAGEN_2, _ACTIONS.format(2)),
    Scale("ROLL", "ROLL", _ROLL, "the instructions call the ice slippery, which it is not"),
    Scale("VAGEN", "VAGEN", _VAGEN, "25 actions in 5 replies of up to 5; 0.02 for each readable reply"),
    Scale("TextArena v0", "TextArena", _TEXT_ARENA, _WALLS),
    Scale("TextArena v0-hardcore", "TextArena-Hardcore", _TEXT_ARENA, _WALLS),
    Scale("rLLM, examples", "rLLM", _RLLM, _HISTORY, range(2, 10)),
    Scale("rLLM, examples, slippery", "rLLM-Slippery", _RLLM, _HISTORY, range(2, 10)),
    Scale("rLLM, cookbook", "rLLM-Cookbook", _COOKBOOK, _HISTORY, range(2, 10)),
    Scale("Trinity-RFT, AgentScope", "rLLM", _TRINITY, _HISTORY, range(2, 6)),
)


def lakes() -> str:
    """Every published Frozen Lake, with what optimal and random play score on it."""
    rows = []
    for scale in SCALES:
        means, lake = _means(scale), scale.lakes[0]
        worth = [_with_error(means.optimal, means.optimal_error), _with_error(means.random, means.random_error)]
        rows.append([scale.name, _ids(scale), _map(lake), _slip(lake), _turns(scale), *worth])
    return markdown(["scale", "ids", "lake", "noise", "turns", "optimum", "random"], rows)


def lake_results() -> str:
    """Published results on their scales, with a flag where a number cannot be right on that scale."""
    scales = {scale.name: scale for scale in SCALES}
    rows = []
    for result in tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))["result"]:
        means, score = _means(scales[result["scale"]]), result["score"]
        share = (score - means.random) / (means.optimal - means.random)
        shown = [f"{means.random:.3f}", f"{score:.3f}", f"{means.optimal:.3f}"]
        rows.append([result["scale"], result["player"], *shown, f"{share:.2f}", _flag(result, means)])
    head = ["scale", "player", "random", "published", "optimum", "share", "flag"]
    return markdown(head, rows)


def _flag(result: dict[str, float], means: Means) -> str:
    """Whether a score lies outside its scale, by more than two standard errors of its episodes, if told, and of the scale."""
    score = result["score"]
    chance = score * (1 - score) / result["episodes"] if "episodes" in result else 0.0
    if score - means.optimal > 2 * np.sqrt(chance + means.optimal_error**2):
        return "**above the optimum**"
    return "**below random**" if means.random - score > 2 * np.sqrt(chance + means.random_error**2) else ""


@cache
def _means(scale: Scale) -> Means:
    return mean_of([lake_means(lake) for lake in scale.lakes])


def _with_error(value: float, error: float) -> str:
    return f"{value:.3f}" + (f" ± {error:.1g}" if error else "")


def _ids(scale: Scale) -> str:
    first, last = scale.lakes[0].id, scale.lakes[-1].id
    return f"`{first}`" + (f" to `{last}`" if first != last else "")


def _map(lake: FrozenLake) -> str:
    """Size, ice and ends of a lake in words; the size of a scale of several is in its ids."""
    if lake.maps.rows:
        return f"{lake.size}×{lake.size}, gymnasium's fixed map"
    if lake.maps.holes is not None:
        return f"{lake.size}×{lake.size}, {lake.maps.holes} holes, corner to corner"
    if lake.maps.ice:
        return f"ice {lake.maps.ice[0]}–{lake.maps.ice[1]}, random ends, search to depth {lake.maps.depth}"
    return f"{lake.size}×{lake.size}, ice {lake.frozen_probability}, random ends"


def _slip(lake: FrozenLake) -> str:
    if not lake.slippery:
        return "none"
    return "1/3 each way" if lake.success_rate is None else f"{1 - lake.success_rate:.1g} to a side"


def _turns(scale: Scale) -> str:
    turns = [lake.horizon for lake in scale.lakes]
    return str(turns[0]) if len(set(turns)) == 1 else f"{turns[0]}–{turns[-1]}"


TABLES: dict[str, Callable[[], str]] = {"lakes": lakes, "lake-results": lake_results}
"""Name of a table → its Markdown."""
