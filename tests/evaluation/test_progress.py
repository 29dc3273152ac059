"""The progress bar tells the time left by episode, also inside a batch."""

from __future__ import annotations

from typing import Any

import pytest

from msgrpo_hub.evaluation import progress
from msgrpo_hub.evaluation.progress import Progress
from msgrpo_hub.games import make_game
from msgrpo_hub.rollout import play_episodes
from tests.evaluation.played import SLIPPERY, Talker

GAME = make_game(SLIPPERY)


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The bars that are made."""
    made: list[Any] = []

    class Recorded(progress.tqdm):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options, mininterval=0)
            made.append(self)

    monkeypatch.setattr(progress, "tqdm", Recorded)
    return made


def test_an_episode_that_ends_is_told_with_its_position_in_the_turn_of_its_end() -> None:
    turn, ends = [0], {}

    def on_turn(live: int) -> None:  # noqa: ARG001
        turn[0] += 1

    def on_episode(position: int, episode: Any) -> None:
        ends[position] = (episode, turn[0] + 1)

    episodes = play_episodes(GAME, Talker(down=True), [(seed, 0) for seed in range(20)], on_turn, on_episode=on_episode)
    assert [ends[position][0] for position in range(20)] == episodes
    assert {bool(episode.error) for episode in episodes} == {True, False}
    assert all(end == len(episode.steps) + bool(episode.error) for episode, end in ends.values())


def test_the_bar_moves_with_every_turn_and_ends_at_the_finished_episodes(bars: list[Any]) -> None:
    seen = []
    with Progress("a player", 40, GAME.horizon, []) as bar:
        for first in (0, 20):
            bar.on_batch()

            def on_turn(live: int) -> None:
                bar.on_turn(live)
                seen.append(bars[0].n)

            keys = [(seed, 0) for seed in range(first, first + 20)]
            play_episodes(GAME, Talker(), keys, on_turn, on_episode=lambda _, episode: bar.on_episode(episode))
    assert 0 < seen[0] < 20
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(40)


def test_failed_episodes_are_counted_apart(bars: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("a player", 20, GAME.horizon, []) as bar:
        bar.on_batch()
        keys = [(seed, 0) for seed in range(20)]
        played = play_episodes(GAME, Talker(down=True), keys, bar.on_turn, on_episode=lambda _, episode: bar.on_episode(episode))
    failed = sum(bool(episode.error) for episode in played)
    assert failed
    assert bars[0].n == pytest.approx(20 - failed)
    assert f"{20 - failed}/20 finished" in (shown := capsys.readouterr().err)
    assert f"failed {failed}]" in shown


def test_the_time_left_is_shown_from_the_first_turn_of_the_only_batch(bars: list[Any]) -> None:
    shown = []
    with Progress("a player", 20, GAME.horizon, []) as bar:
        bar.on_batch()

        def on_turn(live: int) -> None:
            bar.on_turn(live)
            shown.append(str(bars[0]))

        play_episodes(GAME, Talker(), [(seed, 0) for seed in range(20)], on_turn)
    assert "<?" not in shown[0]
