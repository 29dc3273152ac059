"""Sampling on vLLM servers: what training asks them and learns from, and servers that fail, restart or drop the adapter."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from msgrpo_hub.episode import Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.models.log_probs import token_batch, token_log_probs
from msgrpo_hub.models.vllm_server import VllmServer
from msgrpo_hub.msgrpo import SelectedEpisode, policy_loss
from msgrpo_hub.rollout import play_episodes, replayed_states
from msgrpo_hub.training import TrainConfig, train
from msgrpo_hub.training.acting import EngineActor, VllmActor
from msgrpo_hub.training.batch import Pack
from msgrpo_hub.training.dry_run import dry_run
from msgrpo_hub.training.summary import read_metrics
from msgrpo_hub.training.trainer import Trainer
from tests.models.vllm_loopback import Answered, VllmLoopback, error
from tests.training.runs import Stop, farthest, replies_of, updates_safe, weights


@pytest.fixture(scope="module")
def config(config: TrainConfig) -> TrainConfig:
    return replace(config, groups=1, group_size=6, selected_per_group=2, max_new_tokens=2, updates=3, temperature=1.25)


@pytest.fixture
def server(config: TrainConfig) -> Iterator[VllmLoopback]:
    with VllmLoopback(config.model) as server:
        yield server


@contextmanager
def acting_on(servers: Sequence[VllmLoopback], config: TrainConfig, folder: Path, timeout: float = 20.0) -> Iterator[Trainer]:
    """A trainer whose episodes these servers play. It retries a failed server after milliseconds."""
    given = [VllmServer(url=server.url, timeout=timeout) for server in servers]
    trainer = Trainer(config, Accelerator(cpu=True), lambda agent: VllmActor(agent, given, folder, pause=0.01))
    try:
        yield trainer
    finally:
        if isinstance(trainer.actor, VllmActor):
            trainer.actor.close()


def log_probs_of(trainer: Trainer, prompt: tuple[int, ...], reply: tuple[int, ...]) -> list[float]:
    """The trainer's, by a plain forward without trees and caches."""
    with torch.no_grad():
        return [*token_log_probs(trainer.model, token_batch([[(prompt, reply)]], 0)[0], 1.25, tree=False).tolist()]


def assert_all_of_this_version(trainer: Trainer, groups: Sequence[Group]) -> None:
    for reply in replies_of(groups):
        assert [*reply.log_probs] == pytest.approx(log_probs_of(trainer, reply.prompt_ids, reply.token_ids), abs=1e-4)


def play_update(trainer: Trainer, index: int) -> list[Group]:
    return trainer.act(trainer.starts.of_update(index))


def test_an_update_is_played_by_the_server_with_the_weights_of_the_trainer(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path
) -> None:
    with acting_on([server], config, tmp_path) as trainer:
        trainer.update(1)
        before, groups = weights(trainer), play_update(trainer, 2)
        assert_all_of_this_version(trainer, groups)
        assert farthest(before, weights(trainer)) == 0.0
        assert {reply.finish for reply in replies_of(groups)} <= {"stop", "length"}
        for group in groups:
            assert [episode.member for episode in group.episodes] == [*range(6)]
            for episode in group.episodes:
                replayed_states(make_game(config.game), episode)
        update = trainer.update(2)
        assert farthest(before, weights(trainer)) > 1e-3
    assert 0 <= update.metrics["sampler_k3"] < 1e-8
    assert update.metrics["entropy"] > 0
    assert "near_draws" not in update.metrics, "servers do not report it"


def test_every_version_has_a_new_name_and_the_one_before_is_unloaded_and_deleted(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path
) -> None:
    loaded, versions = [], tmp_path / "versions"
    with acting_on([server], config, versions) as trainer:
        for index in (1, 2, 3):
            trainer.update(index)
            loaded += server.loaded
            assert len({*loaded}) == len(loaded) == index
            assert [path.name for path in versions.iterdir()] == [f"v{index}"]
    assert (server.loaded, versions.exists()) == ([], False)


def test_a_run_on_a_server_is_recorded_and_resumes_on_one_only(server: VllmLoopback, config: TrainConfig, tmp_path: Path) -> None:
    small, run, acting = replace(config, updates=2, eval_every=0, test_episodes=0), tmp_path / "run", f"vllm:{server.url}"
    with pytest.raises(KeyboardInterrupt):
        train(small, run, acting=acting, show_progress=False, callbacks=[Stop(2)])
    assert server.loaded == []
    with pytest.raises(UserError, match=r"started with acting = 'vllm' and would continue with 'engine'.*--accept-rounding"):
        train(small, run, resume=True, show_progress=False)
    summary = train(small, run, acting=acting, resume=True, show_progress=False)
    assert summary["rounding"]["acting"] == "vllm"
    assert [line["sampler_k3"] < 1e-8 for line in read_metrics(run / "metrics.jsonl", 2)] == [True, True]
    assert not (run / ".acting.new").exists()
    assert server.url not in (run / "config.toml").read_text()


# ---- wrong weights


@pytest.mark.parametrize(("fault", "told"), [("ignores_adapters", "base alone"), ("stays", "(base alone|version before)")])
def test_an_adapter_that_loads_and_is_not_applied_is_noticed(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path, fault: str, told: str
) -> None:
    with acting_on([server], config, tmp_path) as trainer:
        trainer.update(1)
        with torch.no_grad():  # because equal rewards change nothing
            for weight in trainer.parameters.values():
                weight += 0.1
        setattr(server, fault, True)
        asked = len(server.asked)
        with pytest.raises(UserError, match=f"answers with the {told}, not with the version 'msgrpo-.*-v2' that it was given"):
            trainer.update(2)
    assert not [body for path, body in server.asked[asked:] if is_play(path, body)]


def test_replies_of_another_distribution_are_not_learned_from(server: VllmLoopback, config: TrainConfig, tmp_path: Path) -> None:
    with acting_on([server], config, tmp_path) as trainer:
        selected = trainer.select(play_update(trainer, 1), 1).selected
        with torch.no_grad():  # the replies are now of an older version
            for name, parameter in trainer.parameters.items():
                if "lora_B" in name:
                    parameter.normal_(std=0.5)
        before = weights(trainer)
        with pytest.raises(UserError, match=r"another distribution .* in update 1; expected at most 0.05"):
            trainer.sampler_distance([trainer.packed(selected)], 1)
        assert farthest(before, weights(trainer)) == 0.0


def test_a_truncated_ratio_weighs_as_much_as_its_limit_and_keeps_its_direction() -> None:
    """Ratios 4 and 1.1 with A = −1: the first counts 2 and has the gradient of weight 2; the second is not truncated."""
    log_probs = torch.tensor([math.log(0.4), math.log(0.11)], requires_grad=True)
    old, ones = torch.tensor([0.1, 0.1]).log(), torch.ones(2)
    terms = policy_loss(log_probs, old, None, -ones, ones, largest_ratio=2.0)
    terms.loss.backward()
    assert terms.loss.item() == pytest.approx(2.0 + 1.1)
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == pytest.approx([2.0, 1.1])


def test_only_replies_of_servers_have_their_ratio_truncated(server: VllmLoopback, config: TrainConfig, tmp_path: Path) -> None:
    """All ratios are e² and all advantages −1: our own replies weigh e² each, and replies of servers 2."""
    with acting_on([server], replace(config, beta=0.0), tmp_path) as trainer:
        played = [episode for group in play_update(trainer, 1) for episode in group.episodes]
        packed = trainer.packed([SelectedEpisode(episode, (-1.0,) * len(episode.steps)) for episode in played])[0]
        unlikely = replace(packed, old_log_probs=packed.old_log_probs - 2.0)
        served = trainer.gradient([unlikely])["loss"]
        trainer.actor = EngineActor(trainer.agent)
        own = trainer.gradient([unlikely])["loss"]
    assert served == pytest.approx(2.0 * packed.weights.sum().item())
    assert own == pytest.approx(math.exp(2.0) * packed.weights.sum().item(), rel=1e-3)


# ---- staleness


def test_servers_play_an_update_while_the_one_before_is_learned_with_the_weights_from_before_it(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of each update waits for the first reply to the next one."""
    with acting_on([server], replace(config, groups=2, staleness=1), tmp_path) as trainer:
        gradient, replied, history = trainer.gradient, [threading.Event() for _ in range(4)], [weights(trainer)]
        server.before = lambda path, body: replied[int(body["model"][-1])].set() if is_play(path, body) else None

        def learn(packs: Sequence[Pack], taught: bool) -> dict[str, float]:
            assert trainer.index == 3 or replied[trainer.index + 1].wait(20)
            return gradient(packs, taught)

        monkeypatch.setattr(trainer, "gradient", learn)
        for index in (1, 2, 3):
            update = trainer.update(index)
            with trainer.with_weights(history[max(index - 2, 0)]):
                assert_all_of_this_version(trainer, update.groups)
            assert update.metrics["sampler_k3"] < 1e-8
            assert (update.metrics["ratio_q99"] > 1.001) == (index > 1), "the weights that learn are newer"
            history.append(weights(trainer))


def test_a_stale_update_has_the_gradient_of_the_ratio_to_the_weights_that_played(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path
) -> None:
    with acting_on([server], replace(config, groups=2, staleness=1, beta=0.0, gradient_clip=1e9), tmp_path) as trainer:
        trainer.update(1)
        before, update = weights(trainer), trainer.update(2)
        learned = {name: parameter.grad.clone() for name, parameter in trainer.parameters.items()}  # type: ignore[union-attr]
        trainer.optimizer.zero_grad()
        with trainer.with_weights(before):
            terms = []
            for item in update.selection.selected:
                for step, advantage in zip(item.episode.steps, item.advantages, strict=True):
                    batch, _ = token_batch([[(step.completion.prompt_ids, step.completion.token_ids)]], 0)
                    old = torch.tensor(step.completion.log_probs)
                    ratio = (token_log_probs(trainer.model, batch, 1.25, tree=False) - old).exp()
                    ratio = ratio * (2 / ratio.detach()).clamp(max=1)
                    terms.append(torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage))
            (-torch.cat(terms).mean()).backward()
    expected = {name: parameter.grad.clone() for name, parameter in trainer.parameters.items()}  # type: ignore[union-attr]
    assert farthest(learned, expected) < 1e-6 < 1e-3 < max(part.abs().max().item() for part in expected.values())


def test_staleness_without_servers_is_refused_before_anything_is_loaded(config: TrainConfig, tmp_path: Path) -> None:
    for start in (train, dry_run):
        with pytest.raises(UserError, match=r"^staleness = 1 with acting = 'engine': expected vLLM .* add --acting vllm:URL"):
            start(replace(config, model="no/such", staleness=1), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_failure_of_episodes_played_ahead_ends_the_run_after_this_update_and_it_resumes(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path
) -> None:
    stale, run = replace(config, staleness=1, eval_every=0, test_episodes=0), tmp_path / "run"
    server.before = lambda path, body: error(400, "No.", "E") if is_play(path, body) and body["model"][-1] == "3" else None
    with pytest.raises(UserError, match=r"refuses a request \(HTTP 400: No"):
        train(stale, run, acting=f"vllm:{server.url}", show_progress=False)
    assert (updates_safe(run), server.loaded) == (2, [])
    server.before = lambda _path, _body: None
    train(stale, run, acting=f"vllm:{server.url}", resume=True, show_progress=False)
    assert [line["sampler_k3"] < 1e-8 for line in read_metrics(run / "metrics.jsonl", 3)] == [True] * 3


def test_validation_waits_for_episodes_that_are_played_ahead(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They use the tokenizer too."""
    held, ended = threading.Event(), list[bool]()
    server.before = lambda path, body: held.wait(20 * (is_play(path, body) and body["model"][-1] == "2")) and None
    with acting_on([server], replace(config, staleness=1), tmp_path) as trainer:
        trainer.update(1)
        validate = lambda *given: ended.append(trainer.ahead.done()) or play_episodes(*given)  # noqa: E731
        monkeypatch.setattr("msgrpo_hub.training.trainer.play_episodes", validate)
        threading.Timer(0.2, held.set).start()
        trainer.evaluate()
    assert ended == [True]


def test_servers_that_are_closed_while_they_play_ahead_get_no_further_version(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path
) -> None:
    closed = threading.Event()

    def before(path: str, body: dict[str, Any]) -> Answered | None:
        return (503, str(closed.wait(20))) if is_play(path, body) and body["model"][-1] == "2" else None

    server.before = before
    with acting_on([server], replace(config, staleness=1), tmp_path) as trainer:
        trainer.update(1)
    closed.set()
    assert trainer.ahead is not None
    with pytest.raises(UserError, match="the run has ended"):
        trainer.ahead.result(timeout=20)
    assert server.loaded == []


# ---- faults

Fault = Callable[[VllmLoopback], Answered | None]
"""Happens to a server at a request for a reply; the answer, if any, is sent."""


def is_play(path: str, body: dict[str, Any]) -> bool:
    return path == "/v1/completions" and bool(body["max_tokens"] == 2)


def at_request(server: VllmLoopback, number: int, fault: Fault) -> threading.Event:
    """Makes a fault happen at one of the next requests for a reply (from 1). The event is set when it happens."""
    happened, lock, count = threading.Event(), threading.Lock(), [0]

    def before(path: str, body: dict[str, Any]) -> Answered | None:
        if not is_play(path, body):
            return None
        with lock:
            count[0] += 1
            if count[0] != number:
                return None
        happened.set()
        return fault(server)

    server.before = before
    return happened


def writes_nonsense(_: VllmLoopback) -> Answered:
    return 200, {"choices": [{"text": "Right", "finish_reason": "stop"}]}


def hangs_longer_than_the_timeout(server: VllmLoopback) -> None:
    server.hangs.set()
    threading.Timer(6, server.hangs.clear).start()


def restarts(server: VllmLoopback) -> None:
    def restart() -> None:
        server.__exit__()
        threading.Timer(0.3, server.__enter__).start()

    threading.Thread(target=restart).start()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [VllmLoopback.forget, hangs_longer_than_the_timeout, restarts, writes_nonsense])
def test_a_failed_server_gets_the_adapter_again_and_its_turns_are_repeated(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    with acting_on([server], config, tmp_path, timeout=3) as trainer:  # longer than a reply takes on a busy machine
        trainer.update(1)
        happened = at_request(server, 5, fault)
        groups = play_update(trainer, 2)
        assert happened.is_set()
        assert f"{server.url} does not respond" in caplog.text
        assert [episode.error for group in groups for episode in group.episodes] == [""] * 6
        assert_all_of_this_version(trainer, groups)
        assert trainer.update(3).metrics["sampler_k3"] < 1e-8


@pytest.mark.slow
def test_an_adapter_that_is_dropped_in_silence_is_noticed_and_its_episodes_are_played_again(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server answers under the name of the version, with the base, until an adapter is loaded again."""

    def drops_until_loaded(server: VllmLoopback) -> None:
        server.ignores_adapters = True
        counting = server.before

        def before(path: str, body: dict[str, Any]) -> Answered | None:
            if path == "/v1/load_lora_adapter":
                server.ignores_adapters = False
            return counting(path, body)

        server.before = before

    with acting_on([server], config, tmp_path) as trainer:
        trainer.update(1)
        happened = at_request(server, 5, drops_until_loaded)
        groups = play_update(trainer, 2)
        assert happened.is_set()
        assert "6 episodes are played again" in caplog.text
        assert_all_of_this_version(trainer, groups)


@pytest.mark.slow
def test_one_of_many_servers_may_be_gone_join_later_or_be_lost(server: VllmLoopback, config: TrainConfig, tmp_path: Path) -> None:
    with VllmLoopback(config.model) as gone:
        gone.__exit__()
        with acting_on([gone, server], config, tmp_path) as trainer:
            trainer.update(1)
            assert not gone.of("/v1/completions")
            gone.__enter__()
            assert_all_of_this_version(trainer, play_update(trainer, 2))
            assert gone.loaded == server.loaded
            happened = at_request(gone, 2, lambda server: threading.Thread(target=server.__exit__).start())
            groups = play_update(trainer, 3)
            assert happened.is_set()
            assert [episode.error for group in groups for episode in group.episodes] == [""] * 6
            assert_all_of_this_version(trainer, groups)
