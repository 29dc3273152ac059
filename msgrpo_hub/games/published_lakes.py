"""Frozen Lake with the settings of other projects, each with the public code that states them.

`make_game` knows these ids, and `msgrpo games` names them below its list. They belong to no suite, and to no table but those of
the guide's page on lakes. Only the game is theirs: prompts and parser are ours, and a reply names one action.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.lake_maps import CountedHoles, GivenMap, RandomEnds, RllmMaps


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A published Frozen Lake: one game, or games of several sizes in equal shares."""

    name: str
    lakes: tuple[FrozenLake, ...]
    source: str
    """Repository, commit and files that state the settings."""
    differs: str = ""
    """What their game has that these ids lack."""


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
_WALLS = (
    "a move off the board is invalid and takes no turn, and the second in a row ends the game; "
    "a hole or the last turn gives the share of the way, at most 0.95"
)


def _rllm(name: str, size: int, *, slippery: bool = False, horizon: int = 10, depth: int = 8) -> FrozenLake:
    maps = RllmMaps(depth=depth)
    return FrozenLake(f"FrozenLake-{name}-{size}x{size}-v1", size=size, slippery=slippery, horizon=horizon, maps=maps)


_RLLM_LAKES = tuple(_rllm("rLLM", size) for size in range(2, 10))

SCALES = (
    Scale(
        name="gymnasium 4×4",
        lakes=(
            FrozenLake(
                "FrozenLake-Gymnasium-4x4-v1", slippery=True, horizon=100, maps=GivenMap(("SFFF", "FHFH", "FFFH", "HFFG"))
            ),
        ),
        source=_GYMNASIUM,
    ),
    Scale(
        name="gymnasium 8×8",
        lakes=(
            FrozenLake(
                "FrozenLake-Gymnasium-8x8-v1",
                size=8,
                slippery=True,
                horizon=200,
                maps=GivenMap(
                    ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"),
                ),
            ),
        ),
        source=_GYMNASIUM,
    ),
    Scale(
        name="RAGEN 1",
        lakes=(FrozenLake("FrozenLake-RAGEN1-v1", slippery=True, horizon=10, maps=RandomEnds()),),
        source=_RAGEN_1,
        differs=_ACTIONS.format(5),
    ),
    Scale(
        name="RAGEN 2",
        lakes=(FrozenLake("FrozenLake-RAGEN2-v1", frozen_probability=0.9, horizon=10, maps=RandomEnds()),),
        source=_RAGEN_2,
        differs=_ACTIONS.format(2),
    ),
    Scale(
        name="RAGEN 2, slippery",
        lakes=(
            FrozenLake(
                "FrozenLake-RAGEN2-Slippery-v1",
                frozen_probability=0.9,
                slippery=True,
                success_rate=0.8,
                horizon=10,
                maps=RandomEnds(),
            ),
        ),
        source=_RAGEN_2,
        differs=_ACTIONS.format(2),
    ),
    Scale(
        name="ROLL",
        lakes=(FrozenLake("FrozenLake-ROLL-v1", horizon=10, maps=RandomEnds()),),
        source=_ROLL,
        differs="the instructions call the ice slippery, which it is not",
    ),
    Scale(
        name="VAGEN",
        lakes=(FrozenLake("FrozenLake-VAGEN-v1", horizon=25, maps=RandomEnds()),),
        source=_VAGEN,
        differs="25 actions in 5 replies of up to 5; 0.02 for each readable reply",
    ),
    Scale(
        name="TextArena v0",
        lakes=(FrozenLake("FrozenLake-TextArena-v1", horizon=100, maps=CountedHoles(3)),),
        source=_TEXT_ARENA,
        differs=_WALLS,
    ),
    Scale(
        name="TextArena v0-hardcore",
        lakes=(FrozenLake("FrozenLake-TextArena-Hardcore-v1", size=5, horizon=100, maps=CountedHoles(6)),),
        source=_TEXT_ARENA,
        differs=_WALLS,
    ),
    Scale(name="rLLM, examples", lakes=_RLLM_LAKES, source=_RLLM, differs="the whole history in the prompt"),
    Scale(
        name="rLLM, examples, slippery",
        lakes=tuple(_rllm("rLLM-Slippery", size, slippery=True) for size in range(2, 10)),
        source=_RLLM,
        differs="the whole history in the prompt",
    ),
    Scale(
        name="rLLM, cookbook",
        lakes=tuple(_rllm("rLLM-Cookbook", size, horizon=2 * size, depth=50) for size in range(2, 10)),
        source=_COOKBOOK,
        differs="the whole history in the prompt",
    ),
    Scale(name="Trinity-RFT, AgentScope", lakes=_RLLM_LAKES[:4], source=_TRINITY, differs="the whole history in the prompt"),
)

LAKES: dict[str, FrozenLake] = {lake.id: lake for scale in SCALES for lake in scale.lakes}
"""Id → game, for all scales."""
