"""Batches: a model rounds by the rows of its batch, and no failure may lose an episode that ended inside one."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import runner
from msgrpo_hub.evaluation.results import run_hash
from msgrpo_hub.evaluation.runner import missing_episodes, run_config, run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.players.registry import Player, PlayerSettings, identify
from tests.evaluation.played import LAKE, SLIPPERY, Talker, contents, talker
from tests.models.openai_server import OpenAIServer, chat_completion, send

FIRM = "FrozenLake-NotSlippery-v1"


@dataclass
class Rounding:
    """Replies depend on everything that was asked before in the batch, as rounding does; some call may be the last."""

    last: int = 0
    calls: int = 0
    checksum: int = 0

    @contextmanager
    def caching(self) -> Iterator[None]:
        self.checksum = 0
        yield

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.calls += 1
        if self.calls == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.checksum = zlib.crc32("".join(prompt.observation for prompt in prompts).encode(), self.checksum)
        moves = [(self.checksum + int(rng.integers(4))) % 4 for rng in rngs]
        return [
            Completion(text=f"<action>{prompt.game.actions[move]}</action>") for prompt, move in zip(prompts, moves, strict=True)
        ]


def rounding(last: int = 0) -> Player:
    return replace(talker(Rounding(last)), batched=True)


def killed_at(call: int, folder: Path) -> None:
    """Plays in another process, which gets a SIGKILL at a call of the player."""
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        run_task(rounding(call), LAKE, SLIPPERY, folder, 5)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_kill_9_inside_a_batch_then_resume_gives_the_same_bytes_though_the_batch_decides_the_replies(tmp_path: Path) -> None:
    """A resume that batched what was missing would round otherwise: 1 of 363 replies flipped at a rounding of 2e-5."""
    whole = run_task(rounding(), LAKE, SLIPPERY, tmp_path / "whole", 5)
    other = run_task(rounding(), LAKE, SLIPPERY, tmp_path / "whole", 4)
    assert other.folder != whole.folder
    assert other.episodes != whole.episodes
    kept = set()
    for call in (4, 9, 15):
        folder = tmp_path / str(call)
        killed_at(call, folder)
        missing = missing_episodes(rounding(), LAKE, SLIPPERY, folder, 5)
        kept.add(LAKE.episodes - len(missing))
        assert run_task(rounding(), LAKE, SLIPPERY, folder, 5) == replace(
            whole, folder=folder / whole.folder.relative_to(tmp_path / "whole")
        )
        assert {name: data for name, data in contents(tmp_path / "whole").items() if whole.folder.name in name} == contents(
            folder
        )
    assert len(kept) > 1
    assert any(number % 5 for number in kept)  # also in the middle of a batch


@pytest.mark.lowest
def test_the_built_in_base_stopped_inside_a_batch_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    suite = Suite(name="mine", tasks=(FIRM,), episodes=4)
    player = identify("pocket", PlayerSettings(max_new_tokens=32))
    run_task(player, suite, FIRM, tmp_path / "whole")

    class Stopped:
        """The built-in base, until somebody stops it."""

        calls = 0

        def caching(self) -> Any:
            return player.policy.caching()  # type: ignore[attr-defined]

        def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
            self.calls += 1
            if self.calls == 6:
                raise KeyboardInterrupt
            return player.policy.complete(prompts, rngs)

    with pytest.raises(KeyboardInterrupt):
        run_task(replace(player, policy=Stopped()), suite, FIRM, tmp_path / "part")
    assert 0 < len(missing_episodes(player, suite, FIRM, tmp_path / "part")) < 4
    run_task(player, suite, FIRM, tmp_path / "part")
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_the_batch_size_is_in_the_run_hash_of_a_model_and_of_no_player_whose_replies_come_one_by_one() -> None:
    players = [identify("random", PlayerSettings()), identify("endpoint:http://127.0.0.1:9/v1#m", PlayerSettings()), rounding()]
    hashes = [[run_hash(run_config(player, LAKE, SLIPPERY, size)) for size in (1, 50)] for player in players]
    assert [one == other for one, other in hashes] == [True, True, False]
    assert identify("pocket", PlayerSettings()).batched


def test_a_401_at_the_23rd_of_24_turns_leaves_the_finished_episode_on_the_disk(tmp_path: Path) -> None:
    """Three episodes of 8 turns in one batch: the 22nd turn ends the first episode, and the 23rd is refused.

    The first call asks what the server refuses.
    """
    suite, settings = Suite(name="mine", tasks=(FIRM,), episodes=3), PlayerSettings(concurrency=1)
    asked: list[Any] = []

    def fails(body: Any, before: int) -> Any:  # noqa: ARG001
        asked.append(body)
        return send(401, b"no such key") if len(asked) == 24 else None

    with OpenAIServer(lambda _body: chat_completion("I cannot tell"), fails) as server:
        player = identify(f"endpoint:{server.url}#m", settings)
        with pytest.raises(UserError, match="HTTP 401 no such key"):
            run_task(player, suite, FIRM, tmp_path)
        missing = missing_episodes(player, suite, FIRM, tmp_path)
        assert missing in ([1], [1, 2])  # the 24th turn may be on its way
        before = len(asked)
        assert run_task(player, suite, FIRM, tmp_path).complete
    late = 1  # the 24th turn may arrive after the error
    assert 0 <= len(asked) - before - 8 * len(missing) <= late


def test_the_bar_of_a_run_in_one_batch_does_not_stand_at_zero_to_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[float, str]] = []

    class Recorded(runner.tqdm):  # type: ignore[misc]
        def update(self, n: float = 1) -> Any:
            moved = super().update(n)
            seen.append((self.n, self.postfix))
            return moved

    monkeypatch.setattr(runner, "tqdm", Recorded)
    run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    finished = [int(text.partition("/")[0]) for _, text in seen]
    assert finished == sorted(finished)
    assert finished[-1] == LAKE.episodes
    assert len({number for number in finished if 0 < number < LAKE.episodes}) > 3
    assert 0 < seen[0][0] < 1
