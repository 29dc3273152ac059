"""A small lake with short prompts and two turns, and a credit that also gives unparsed replies an advantage.

Processes import this before they run a command that needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from msgrpo_hub.cli import main
from msgrpo_hub.credit import CreditContext, StepAdvantages
from msgrpo_hub.episode import Group
from msgrpo_hub.games import registry, stream
from msgrpo_hub.games.frozen_lake import FrozenLake
from tests.hub_server.client import LOADS_MODELS


class ShortLake(FrozenLake):
    rules = ("The game ends after 2 turns.",)


LAKE = ShortLake("FrozenLake-TwoTurns-v1", size=2, horizon=2)
registry.FURTHER[LAKE.id] = LAKE

warm = LOADS_MODELS


def start(seed: int) -> Any:
    return LAKE.initial_state(stream(seed, "initial_state"))


def by_first_token(groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:  # noqa: ARG001
    """+1 for a step whose reply starts with an even token id, -1 for any other."""
    return [
        [torch.tensor([1.0 - 2 * (step.completion.token_ids[0] % 2) for step in episode.steps]) for episode in group.episodes]
        for group in groups
    ]


def msgrpo(*arguments: object) -> None:
    """The command line, in a client's process of the loopback Hub."""
    main([str(argument) for argument in arguments])
