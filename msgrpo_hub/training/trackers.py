"""Sends metrics to the trackers of accelerate, and to Trackio a sample of episodes as traces: the callback of `report_to`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from accelerate import Accelerator

from msgrpo_hub.agent.prompt_formats import find_format
from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.storage.traces import conversation
from msgrpo_hub.training.callbacks import Callback, Run, Update


class TrackerLog(Callback):
    """Sends the metrics of each update, and to Trackio its best and its worst episode."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    def on_start(self, run: Run) -> None:
        self.prompt_format = find_format(run.config.prompt_format, may_import=True)
        self.accelerator.init_trackers("msgrpo", config={k: str(v) for k, v in asdict(run.config).items()})

    def on_update(self, update: Update) -> None:
        metrics = {name: value for name, value in update.metrics.items() if name != "update"}
        self.accelerator.log(metrics, step=update.index)
        for tracker in self.accelerator.trackers:
            if tracker.name == "trackio":
                tracker.log(self.traces(update), step=update.index)

    def traces(self, update: Update) -> dict[str, Any]:
        """`trackio.Trace`s of the best and the worst episode of an update, by their names on the dashboard."""
        from trackio import Trace

        return {
            f"episode/{name}": Trace(
                messages=[dict(message) for message in conversation(episode, self.prompt_format)],
                metadata=facts_of(episode, update.index, advantage),
            )
            for name, (episode, advantage) in best_and_worst(update.groups, update.advantages).items()
        }


def best_and_worst(groups: Sequence[Group], advantages: Sequence[Any]) -> Mapping[str, tuple[Episode, float]]:
    """The episodes of the largest and of the smallest reward, each with its advantage, which decides between equal rewards."""
    pairs = [
        (episode, float(advantage))
        for group, of_group in zip(groups, advantages, strict=True)
        for episode, advantage in zip(group.episodes, of_group, strict=True)
    ]
    return {"best": max(pairs, key=_outcome), "worst": min(pairs, key=_outcome)}


def _outcome(pair: tuple[Episode, float]) -> tuple[float, float]:
    episode, advantage = pair
    return episode.reward, advantage


def facts_of(episode: Episode, update: int, advantage: float) -> dict[str, Any]:
    """What is said of an episode beside its messages."""
    facts = {"game": episode.game_id, "seed": episode.seed, "member": episode.member, "update": update}
    return facts | {"reward": episode.reward, "advantage": advantage, "success": episode.success, "turns": len(episode.steps)}
