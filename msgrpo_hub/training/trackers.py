"""Sends metrics to the trackers of accelerate: the callback of `report_to`."""

from __future__ import annotations

from dataclasses import asdict

from accelerate import Accelerator

from msgrpo_hub.training.callbacks import Callback, Run, Update


class TrackerLog(Callback):
    """Sends the metrics of each update."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    def on_start(self, run: Run) -> None:
        self.accelerator.init_trackers("msgrpo", config={k: str(v) for k, v in asdict(run.config).items()})

    def on_update(self, update: Update) -> None:
        metrics = {name: value for name, value in update.metrics.items() if name != "update"}
        self.accelerator.log(metrics, step=update.index)
