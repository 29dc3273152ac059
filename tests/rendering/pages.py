"""One result among several."""

from __future__ import annotations

from msgrpo_hub.evaluation.results import Result
from tests.rendering.reported import LAKE


def of(results: list[Result], player: str, task: str = LAKE) -> Result:
    return next(result for result in results if result.player == player and result.task == task)
