"""A pushed environment package with the real openenv: it validates, serves 50 sessions at once, and plays our episodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.agent import build_prompt
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.interop.openenv_package import stage_env
from msgrpo_hub.rollout import play_groups
from tests.interop.replies import Mixed
from tests.interop.serving import Served

openenv = pytest.importorskip("openenv.core", reason="needs the extra openenv: make test-interop")

GAME = "Snake-Standard-v1"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, serve: Callable[[str, Path], Served]) -> Served:
    folder = tmp_path_factory.mktemp("environment")
    stage_env("you/snake", folder, game=GAME)
    return serve("server.app:app", folder)


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with openenv.GenericEnvClient(base_url=served.url).sync() as client:
        yield client


def validate(*arguments: object) -> str:
    command = [Path(sys.executable).with_name("openenv"), "validate", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_folder_and_the_running_server_pass_the_validation(served: Served) -> None:
    validate(served.folder, "--level", "static", "--skip-build")
    assert json.loads(validate("--url", served.url, "--json"))["passed"] is True


def test_fifty_sessions_at_once_play_the_episodes_of_play_groups(served: Served) -> None:
    game = make_game(GAME)
    groups = play_groups(game, Mixed(), [episode_seed(GAME, "train", index) for index in range(5)], 10)
    episodes = [episode for group in groups for episode in group.episodes]
    with ExitStack() as stack:
        clients = [stack.enter_context(openenv.GenericEnvClient(base_url=served.url).sync()) for _ in episodes]
        results = [c.reset(seed=e.seed, member=e.member) for c, e in zip(clients, episodes, strict=True)]
        start = game.initial_state(stream(episodes[0].seed, "initial_state"))
        assert results[0].observation["messages"] == build_prompt(game, start).messages
        for turn in range(game.horizon):
            for i, episode in enumerate(episodes):
                if turn < len(episode.steps):
                    assert (results[i].observation["text"], results[i].done) == (episode.steps[turn].observation, False)
                    results[i] = clients[i].step({"reply": episode.steps[turn].completion.text})
                    step, status = episode.steps[turn], results[i].observation["metadata"]
                    assert results[i].reward == step.reward
                    assert (status["action"], status["unparsed"]) == (step.action, step.action is None)
                    assert status["illegal"] == (step.action is not None and not step.legal)
        for result, episode, client in zip(results, episodes, clients, strict=True):
            ends = {name: getattr(episode, name) for name in ("terminated", "truncated", "success", "seed", "member")}
            assert result.done
            assert result.observation["messages"] == []
            assert {name: result.observation["metadata"][name] for name in ends} == ends
            state = client.state()
            assert (state["game"], state["step_count"]) == (GAME, len(episode.steps))


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_reported_seed_split_and_member_give_the_episode_again(client: Any, split: str) -> None:
    def played(**start: Any) -> tuple[dict[str, Any], list[str]]:
        result, seen = client.reset(**start), []
        state = client.state()
        told = {name: state[name] for name in ("seed", "split", "member")}
        while not result.done:
            assert {name: result.observation["metadata"][name] for name in told} == told
            seen.append(result.observation["text"])
            result = client.step({"reply": "<action>Up</action>"})
        return told, seen

    for seed in (1, 2, None):
        told, seen = played(seed=seed, split=split)
        assert told["split"] == split
        assert played(**told) == (told, seen)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda client: client.step({"reply": "x"}), "call reset first"),
        (lambda client: client.reset(seed=-1), "seed = -1: expected at least 0"),
        (lambda client: client.reset() and client.step({"action": "Left"}), "reply"),
        (lambda client: client.reset() and client.step({"reply": 3}), "reply"),
    ],
)
def test_a_wrong_call_gets_an_error_and_the_session_goes_on(client: Any, call: Callable[[Any], object], words: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        call(client)
    assert words in str(caught.value) or "VALIDATION_ERROR" in str(caught.value)
    client.reset(seed=1)
    assert client.step({"reply": "<action>Up</action>"}).observation["metadata"]["action"] == "Up"
