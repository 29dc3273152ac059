"""Memory and time of an update on cards.

Computed, and not measured: one H100 was slower (results/README.md). Bytes and operations follow from the shape of a model
(`msgrpo_hub/training/sizing.py`). What share of a machine's rates an update reaches is fitted to updates measured on two cores of
a CPU (results/sizing.json).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msgrpo_hub.models.costs import CHUNK_BYTES, FLOAT32, PROGRAM_BYTES, QWEN, Shape
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.sizing import UpdateSize, memory, update_size, work

MEASURED = Path(__file__).parent / "results" / "sizing.json"
GB = 1e9
USABLE = 0.9
"""Share of a card's memory that an update may fill."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A card, as its vendor describes it: dense matrix rate in bfloat16."""

    name: str
    gigabytes: int
    operations: float
    """Per second."""
    bytes: float
    """Per second."""


CARDS = (
    Card(name="L4", gigabytes=24, operations=121e12, bytes=300e9),
    Card(name="A10G", gigabytes=24, operations=70e12, bytes=600e9),
    Card(name="RTX 4090", gigabytes=24, operations=165e12, bytes=1008e9),
    Card(name="L40S", gigabytes=48, operations=362e12, bytes=864e9),
    Card(name="A100", gigabytes=80, operations=312e12, bytes=2039e9),
    Card(name="H100", gigabytes=80, operations=989e12, bytes=3350e9),
    Card(name="H200", gigabytes=141, operations=989e12, bytes=4800e9),
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An update of the 0.5B shape in float32 on a CPU, and its least work."""

    label: str
    acting: float
    """Seconds, as the next."""
    training: float
    memory: float
    """Peak, in bytes."""
    acting_bytes: float
    acting_operations: float
    training_operations: float
    tokens: float
    """That the training pass has."""
    predicting: float
    """Of them, those that predict a token."""


@cache
def measured() -> tuple[tuple[Measured, ...], float, float]:
    """The updates, and the machine's matrix rate and bandwidth."""
    data = json.loads(MEASURED.read_text(encoding="utf-8"))
    sides = {tuple(row["key"][:2]): row for row in data["rows"]}
    found = []
    for label in dict.fromkeys(row["key"][0] for row in data["rows"] if "0.5B" in row["key"][0] and row["key"][1] == "limit"):
        ours, limit = sides[label, "ours"], sides[label, "limit"]
        reply = ours["tokens"] / ours["steps"]
        turns = ours["steps"] / ours["episodes"]
        found.append(
            Measured(
                label=label,
                acting=ours["seconds_acting"],
                training=ours["seconds_training"],
                memory=ours["memory_mb"] * 1e6,
                acting_bytes=limit["bytes_acting"],
                acting_operations=limit["operations_acting"],
                training_operations=limit["operations_training"],
                tokens=limit["operations_training"] / (3 * QWEN["0.5B"].forward(1, 0, 0.5)),
                predicting=2 * turns * reply,
            )
        )
    rates = data["ceilings"]
    return tuple(found), rates["operations_per_second"], rates["bytes_per_second"]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """How much slower than a machine's rates an update is: 1 would be the limit."""

    acting: float
    """Seconds of acting per second that reading weights and caches at full bandwidth, and then its operations, would take."""
    training: float
    """Seconds of training per second that its operations take at the full matrix rate."""
    start: float = 0.0
    """Seconds before acting, for the shape and the machine that were measured: weights are merged, and copied for few rows."""

    def seconds_acting(self, bytes_read: float, operations: float) -> float:
        """Of both, each in seconds at the full rate."""
        return self.acting * (bytes_read + operations) + self.start


@cache
def fitted() -> Shares:
    """By least squares of relative errors. Bytes and operations share a factor: their ratio hardly varies on one machine."""
    rows, operations, bandwidth = measured()
    times = np.array([[row.acting_bytes / bandwidth + row.acting_operations / operations, 1.0] for row in rows])
    acting, start = _relative(times, np.array([row.acting for row in rows]))
    least = np.array([[row.training_operations / operations] for row in rows])
    (training,) = _relative(least, np.array([row.training for row in rows]))
    return Shares(acting=acting, training=training, start=start)


def _relative(columns: NDArray[np.float64], seconds: NDArray[np.float64]) -> list[float]:
    found: list[float] = np.linalg.lstsq(columns / seconds[:, None], np.ones(len(seconds)), rcond=None)[0].tolist()
    assert min(found) > 0, found
    return found


def fitted_activations() -> float:
    """`costs.ACTIVATIONS` by least squares: what is in memory beside weights, their copies, adapter and logits."""
    shape = QWEN["0.5B"]
    rows, *_ = measured()
    left = np.array([row.memory - _fixed(shape) - _logits(shape, row.predicting) for row in rows])
    per = np.array([row.tokens * shape.layers * (shape.width + shape.inner) * FLOAT32 for row in rows])
    return float(per @ left / (per @ per))


def held(row: Measured) -> float:
    """The peak memory of a measured update, as the model computes it."""
    shape = QWEN["0.5B"]
    return _fixed(shape) + shape.training_bytes(row.tokens, row.predicting, FLOAT32, checkpointed=False)


def _fixed(shape: Shape) -> float:
    copies = 2 * shape.linear  # merged, and in the layout for few rows
    return PROGRAM_BYTES + FLOAT32 * (shape.weights + copies) + shape.adapter_bytes(16)


def _logits(shape: Shape, predicting: float) -> float:
    return 3 * min(CHUNK_BYTES, predicting * shape.vocabulary * FLOAT32)


# ---- an update on a card


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of an update."""

    acting: float
    training: float

    @property
    def all(self) -> float:
        return self.acting + self.training


def seconds(config: TrainConfig, shape: Shape, size: UpdateSize, card: Card, shares: Shares) -> Times:
    """The time of an update at shares of a card's rates, without `start`."""
    own = work(config, shape, size)
    acting = shares.acting * (own.acting_bytes / card.bytes + own.acting_operations / card.operations)
    return Times(acting=acting, training=shares.training * own.training_operations / card.operations)


LIMIT = Shares(acting=1.0, training=1.0)


def fits(needed: float, gigabytes: float) -> bool:
    """Whether an update leaves a tenth of a card's memory free."""
    return needed <= USABLE * gigabytes * GB


def needed(config: TrainConfig, shape: Shape) -> float:
    """The memory of an update, in bytes."""
    return sum(memory(config, shape, update_size(config)).values())


def smallest_card(config: TrainConfig, shape: Shape) -> Card:
    """The first card of the list that an update fits on."""
    return next(card for card in CARDS if fits(needed(config, shape), card.gigabytes))
