"""A model served by `transformers serve` plays as the loaded model."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.games import make_game
from msgrpo_hub.models.endpoint import make_endpoint
from msgrpo_hub.rollout import play_episodes
from tests.interop.serving import free_port

pytestmark = pytest.mark.long

POCKET = pocket_path()


@pytest.fixture(scope="module")
def served_pocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of `transformers serve`, in another process."""
    port, log = free_port(), tmp_path_factory.mktemp("serve") / "log"
    program = "from transformers.cli.transformers import main; main()"
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", str(POCKET), *options], env=environment, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 400  # seconds; about 10 on an idle machine
        while not is_healthy(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(20)


def is_healthy(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return bool(response.status == 200)
    except URLError:
        return False


@pytest.mark.parametrize("game_id", ["Snake-Short-v1", "FrozenLake-Slippery-v1"])
def test_a_served_model_plays_as_the_loaded_model(served_pocket: str, game_id: str) -> None:
    """Equal texts, tokens, actions and rewards; the server adds the end token's text and splits off the thinking."""
    from msgrpo_hub.models.language_model import LanguageModel

    game, episode_keys = make_game(game_id), [(seed, 0) for seed in range(4)]
    loaded = play_episodes(game, LanguageModel.from_pretrained("pocket", temperature=0.0, max_new_tokens=64), episode_keys)
    player = make_endpoint(f"endpoint:{served_pocket}#{POCKET}", temperature=0.0, max_new_tokens=64)
    served = play_episodes(game, player, episode_keys)
    assert len({step.action for episode in served for step in episode.steps}) > 2
    for ours, theirs in zip(loaded, served, strict=True):
        for name in ("reward", "terminated", "truncated", "success"):
            assert getattr(ours, name) == getattr(theirs, name)
        for mine, other in zip(ours.steps, theirs.steps, strict=True):
            assert (mine.observation, mine.action, mine.status) == (other.observation, other.action, other.status)
            assert mine.completion.text == other.completion.text.replace("<|end|>", "")
            assert mine.completion.tokens == other.completion.usage
