"""What `--json` prints of pushes and jobs, as types."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class MachinePrice(TypedDict):
    """What a machine of the Hub costs."""

    usd: float
    """Dollars for a unit of time."""
    unit: str
    """That unit, such as `minute`."""
    most_usd: float | None
    """The most that the job can cost; null if the unit of the price is unknown."""


class JobData(TypedDict):
    """A job of `msgrpo jobs`; with --dry-run, one that was not sent."""

    id: NotRequired[str]
    url: NotRequired[str]
    stage: NotRequired[str]
    """How it ended, in the Hub's word."""
    command: list[str]
    """What it runs."""
    state: str
    """The private repository of its run."""
    flavor: str
    """The machine."""
    timeout: int
    """Seconds after which an attempt is stopped."""
    attempts: int
    """How often it is started at most."""
    price: MachinePrice


class Staged(TypedDict):
    """What a push would send."""

    folder: str
    files: list[str]
    """Their names in the repository."""
