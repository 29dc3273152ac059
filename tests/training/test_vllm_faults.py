"""vLLM servers that start anew, hang, fail or drop the adapter: noticed, their turns repeated, nothing stale learned from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.trainer import Trainer
from tests.models.vllm_loopback import Answered, VllmLoopback
from tests.training.test_acting_on_vllm import log_probs_of
from tests.training.vllm_runs import acting_on, replies_of

pytestmark = pytest.mark.slow

Fault = Callable[[VllmLoopback], Answered | None]
"""What happens to a server at one request for a reply; its answer, if it gives one, is sent."""


@pytest.fixture(scope="module")
def config(tiny_model: Path) -> TrainConfig:
    small = {"groups": 1, "group_size": 6, "selected_per_group": 2, "max_new_tokens": 2, "lora_rank": 4, "learning_rate": 1e-2}
    return TrainConfig(model=str(tiny_model), updates=3, temperature=1.25, **small)  # type: ignore[arg-type]


@pytest.fixture
def servers(config: TrainConfig) -> Iterator[list[VllmLoopback]]:
    with ExitStack() as stack:
        yield [stack.enter_context(VllmLoopback(config.model)) for _ in range(2)]


def is_play(path: str, body: dict[str, Any]) -> bool:
    """Whether a reply is asked for, and not a probe."""
    return path == "/v1/completions" and bool(body["max_tokens"] == 2)


def at_request(server: VllmLoopback, number: int, fault: Fault) -> threading.Event:
    """Lets a fault happen at one of the coming requests for a reply (from 1). Returns when it happened."""
    happened, lock, count = threading.Event(), threading.Lock(), [0]

    def before(path: str, body: dict[str, Any]) -> Answered | None:
        if not is_play(path, body):
            return None
        with lock:
            count[0] += 1
            now = count[0] == number
        if not now:
            return None
        happened.set()
        return fault(server)

    server.before = before
    return happened


def fails(server: VllmLoopback) -> Answered:  # noqa: ARG001
    return 500, "Internal Server Error"


def forgets(server: VllmLoopback) -> None:
    server.forget()


def drops(server: VllmLoopback) -> None:
    """The adapter, in silence."""
    server.ignores_adapters = True


def hangs(server: VllmLoopback) -> None:
    """For longer than a request may take."""
    server.hangs.set()
    threading.Timer(1.5, server.hangs.clear).start()


def starts_anew(server: VllmLoopback) -> None:
    """The port is closed for a while."""

    def restart() -> None:
        server.__exit__()
        threading.Timer(0.3, server.__enter__).start()

    threading.Thread(target=restart).start()


def writes_nonsense(server: VllmLoopback) -> Answered:  # noqa: ARG001
    return 200, {"choices": [{"text": "Right", "finish_reason": "stop"}]}


def assert_all_of_this_version(trainer: Trainer, groups: Any) -> None:
    """Every reply has the probabilities that the trainer's own weights give it."""
    for reply in replies_of(groups):
        assert [*reply.log_probs] == pytest.approx(log_probs_of(trainer, reply.prompt_ids, reply.token_ids), abs=1e-4)


@pytest.mark.parametrize("fault", [fails, forgets, hangs, starts_anew, writes_nonsense])
def test_a_lost_server_is_given_the_adapter_anew_and_its_turns_are_repeated(
    servers: list[VllmLoopback], config: TrainConfig, tmp_path: Path, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    server = servers[0]
    with acting_on([server], config, tmp_path, timeout=0.5) as trainer:
        trainer.update(1)
        happened = at_request(server, 5, fault)
        groups = trainer.act(trainer.starts.of_update(2))
        assert happened.is_set()
        assert f"{server.url} does not respond" in caplog.text
        assert sum(len(group.episodes) for group in groups) == 6
        assert not [episode.error for group in groups for episode in group.episodes if episode.error]
        assert_all_of_this_version(trainer, groups)
        assert trainer.update(3).metrics["sampler_k3"] < 1e-8


def test_an_adapter_that_is_dropped_in_silence_is_noticed_and_its_episodes_are_played_again(
    servers: list[VllmLoopback], config: TrainConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server goes on answering under the name of the version, with the base, until an adapter is loaded again."""
    server = servers[0]

    def drops_until_loaded(server: VllmLoopback) -> None:
        drops(server)
        counting = server.before

        def before(path: str, body: dict[str, Any]) -> Answered | None:
            if path == "/v1/load_lora_adapter":
                server.ignores_adapters = False
            return counting(path, body)

        server.before = before

    with acting_on([server], config, tmp_path) as trainer:
        trainer.update(1)
        happened = at_request(server, 5, drops_until_loaded)
        groups = trainer.act(trainer.starts.of_update(2))
        assert happened.is_set()
        assert "6 episodes are played again" in caplog.text
        assert_all_of_this_version(trainer, groups)


def test_an_adapter_that_stays_dropped_ends_the_run_before_it_learns(
    servers: list[VllmLoopback], config: TrainConfig, tmp_path: Path
) -> None:
    server = servers[0]

    with acting_on([server], config, tmp_path) as trainer:
        trainer.update(1)
        at_request(server, 5, drops)
        with pytest.raises(UserError, match="answers with the base alone"):
            trainer.update(2)


def test_one_of_several_servers_may_be_gone_and_join_later(
    servers: list[VllmLoopback], config: TrainConfig, tmp_path: Path
) -> None:
    gone, there = servers
    gone.__exit__()
    with acting_on(servers, config, tmp_path) as trainer:
        trainer.update(1)
        assert not gone.of("/v1/completions")
        gone.__enter__()
        for index in range(2, 10):
            groups = trainer.act(trainer.starts.of_update(index))
            assert_all_of_this_version(trainer, groups)
            if gone.loaded:
                break
        assert gone.loaded == there.loaded
