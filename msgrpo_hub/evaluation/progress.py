"""The progress bar of a task: episodes finished and failed, their mean reward, and the time left."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import TracebackType

from tqdm import tqdm

from msgrpo_hub.episode import Episode

_FORMAT = "{l_bar}{bar}| [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


class Progress:
    """Counts a finished episode as 1 and a live one by the share of its horizon, so the first turn gives a time left."""

    def __init__(self, title: str, total: int, horizon: int, finished: Iterable[Episode]) -> None:
        self._rewards = [episode.reward for episode in finished]
        self._total, self._horizon, self._turn, self._failed = total, horizon, 0, 0
        self._errors: set[str] = set()
        self._bar = tqdm(desc=title, unit="episode", total=total, initial=len(self._rewards), bar_format=_FORMAT)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.close()

    def on_batch(self) -> None:
        """A batch begins."""
        self._turn = self._failed = 0

    def on_episode(self, episode: Episode) -> None:
        """An episode ended, perhaps with an error; such an episode is not finished. Each error is printed once, at once."""
        if episode.error:
            self._failed += 1
            if episode.error not in self._errors:
                self._bar.write(f"failed: {episode.error}", file=sys.stderr)
            self._errors.add(episode.error)
        else:
            self._rewards.append(episode.reward)

    def on_turn(self, live: int) -> None:
        """All live episodes of the batch have played one more turn."""
        self._turn += 1
        finished = len(self._rewards)
        mean = f"{sum(self._rewards) / finished:.3f}" if finished else "–"
        self._bar.set_postfix_str(f"{finished}/{self._total} finished, reward {mean}, failed {self._failed}", refresh=False)
        self._bar.update(finished + live * self._turn / self._horizon - self._bar.n)
