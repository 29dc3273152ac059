"""Training acts on vLLM servers: what it asks them, what it learns from, and what it notices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.models.log_probs import token_batch, token_log_probs
from msgrpo_hub.msgrpo import SelectedEpisode, policy_loss
from msgrpo_hub.rollout import replayed_states
from msgrpo_hub.training import Callback, TrainConfig, train
from msgrpo_hub.training.acting import EngineActor
from msgrpo_hub.training.callbacks import Update
from msgrpo_hub.training.metrics import read_metrics
from msgrpo_hub.training.trainer import Trainer
from tests.models.vllm_loopback import VllmLoopback
from tests.training.trainers import farthest, weights
from tests.training.vllm_runs import acting_on, impatient, replies_of


@pytest.fixture(scope="module")
def config(tiny_model: Path) -> TrainConfig:
    small = {"groups": 1, "group_size": 6, "selected_per_group": 2, "max_new_tokens": 2, "lora_rank": 4, "learning_rate": 1e-2}
    return TrainConfig(model=str(tiny_model), updates=3, temperature=1.25, **small)  # type: ignore[arg-type]


@pytest.fixture
def server(config: TrainConfig) -> Iterator[VllmLoopback]:
    with VllmLoopback(config.model) as server:
        yield server


def log_probs_of(trainer: Trainer, prompt: tuple[int, ...], reply: tuple[int, ...]) -> list[float]:
    """By a plain forward of the trainer's model, without trees and caches."""
    with torch.no_grad():
        scores: list[float] = token_log_probs(
            trainer.model, token_batch([[(prompt, reply)]], 0)[0], 1.25, tree=False, split_head=False
        ).tolist()
    return scores


# ---- what is asked, and what is learned from


def test_an_update_is_played_by_the_server_with_the_weights_of_the_trainer(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path
) -> None:
    with acting_on([server], config, tmp_path) as trainer:
        trainer.update(1)
        before = weights(trainer)
        groups = trainer.act(trainer.starts.of_update(2))
        replies = replies_of(groups)
        for reply in replies[::3]:
            assert [*reply.log_probs] == pytest.approx(log_probs_of(trainer, reply.prompt_ids, reply.token_ids), abs=1e-4)
        assert farthest(before, weights(trainer)) == 0.0
        assert {reply.finish for reply in replies} <= {"stop", "length"}
        game = make_game(config.game)
        for group in groups:
            assert [episode.member for episode in group.episodes] == [*range(6)]
            for episode in group.episodes:
                replayed_states(game, episode)
        update = trainer.update(2)
        assert farthest(before, weights(trainer)) > 1e-3
    assert 0 <= update.metrics["sampler_k3"] < 1e-8
    assert update.metrics["entropy"] > 0
    assert "near_draws" not in update.metrics, "a server does not say how near its draws were"


def test_every_version_has_a_new_name_and_the_one_before_is_unloaded_and_deleted(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path
) -> None:
    loaded = []
    with acting_on([server], config, tmp_path / "versions") as trainer:
        for index in (1, 2, 3):
            trainer.update(index)
            loaded.append(server.loaded)
            assert [path.name for path in (tmp_path / "versions").iterdir()] == [f"v{index}"]
    assert [len(names) for names in loaded] == [1, 1, 1]
    assert len({name for [name] in loaded}) == 3
    assert server.loaded == []
    assert not (tmp_path / "versions").exists()


def test_a_whole_run_acts_on_a_server_and_records_it(server: VllmLoopback, config: TrainConfig, tmp_path: Path) -> None:
    """Its adapter differs from the base, its folder keeps no version, and a resume that acts otherwise is refused."""
    small = replace(config, updates=2, eval_every=0, test_episodes=0)
    callbacks = [StopAfter(1)]
    with pytest.raises(KeyboardInterrupt):
        train(small, tmp_path / "run", acting=f"vllm:{server.url}", show_progress=False, callbacks=callbacks)
    assert server.loaded == []
    with pytest.raises(UserError, match=r"began with acting = 'vllm' and would go on with 'engine'.*--accept-rounding"):
        train(small, tmp_path / "run", resume=True, show_progress=False)
    summary = train(small, tmp_path / "run", acting=f"vllm:{server.url}", resume=True, show_progress=False)
    assert summary["rounding"]["acting"] == "vllm"
    assert [line["sampler_k3"] < 1e-8 for line in read_metrics(tmp_path / "run" / "metrics.jsonl", 2)] == [True, True]
    assert not (tmp_path / "run" / ".acting.new").exists()
    assert server.url not in (tmp_path / "run" / "config.toml").read_text()


class StopAfter(Callback):
    """Interrupts a run in the update after this one."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def on_update(self, update: Update) -> None:
        if update.index > self.updates:
            raise KeyboardInterrupt


# ---- what is noticed


def test_a_server_of_another_base_is_refused(config: TrainConfig, tmp_path: Path, tiny_model: Path) -> None:
    other = tmp_path / "other"
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1.5)
    model.save_pretrained(other)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(other)
    with VllmLoopback(str(other)) as server, acting_on([server], config, tmp_path / "versions") as trainer:
        with pytest.raises(UserError, match=r"computes other log-probabilities than the base with the adapter: .* nats apart"):
            trainer.update(1)
        assert not [body for body in server.of("/v1/completions") if body["max_tokens"] == 2]


@pytest.mark.parametrize("fault", ["ignores_adapters", "stays"])
def test_an_adapter_that_loads_and_is_not_applied_is_noticed(
    server: VllmLoopback, config: TrainConfig, tmp_path: Path, fault: str
) -> None:
    what = {"ignores_adapters": "the base alone", "stays": "the (base alone|version before)"}[fault]
    with acting_on([server], config, tmp_path) as trainer:
        trainer.update(1)
        with torch.no_grad():  # an update of equal rewards would leave the version as it was
            for weight in trainer.parameters.values():
                weight += 0.1
        setattr(server, fault, True)
        asked = len(server.asked)
        with pytest.raises(UserError, match=f"answers with {what}, not with the version 'msgrpo-.*-v2' that it was given"):
            trainer.update(2)
    assert not [body for path, body in server.asked[asked:] if path == "/v1/completions" and body["max_tokens"] == 2]


def test_replies_of_another_distribution_are_not_learned_from(server: VllmLoopback, config: TrainConfig, tmp_path: Path) -> None:
    """The weights change under the replies, as if they were of an older version."""
    with acting_on([server], config, tmp_path) as trainer:
        chosen = trainer.select(trainer.act(trainer.starts.of_update(1)), 1)
        with torch.no_grad():
            for name, parameter in trainer.parameters.items():
                if "lora_B" in name:
                    parameter.normal_(std=0.5)
        before = weights(trainer)
        with pytest.raises(UserError, match=r"another distribution .* in update 1; expected at most 0.05"):
            trainer.sampler_distance([trainer.packed(chosen.selected)], 1)
        assert farthest(before, weights(trainer)) == 0.0


def test_a_truncated_ratio_weighs_as_much_as_its_limit_and_keeps_its_direction() -> None:
    """Ratios 4 and 1.1 with A = −1: the first counts 2 and has the gradient of weight 2, the second is as ever."""
    log_probs = torch.tensor([math.log(0.4), math.log(0.11)], requires_grad=True)
    old, ones = torch.tensor([0.1, 0.1]).log(), torch.ones(2)
    terms = policy_loss(log_probs, old, None, -ones, ones, largest_ratio=2.0)
    terms.loss.backward()
    assert terms.loss.item() == pytest.approx(2.0 + 1.1)
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == pytest.approx([2.0, 1.1])


def test_only_replies_of_servers_have_their_ratio_truncated(server: VllmLoopback, config: TrainConfig, tmp_path: Path) -> None:
    """Every ratio is e², every advantage −1: our own replies weigh e² each, and those of servers 2."""
    with acting_on([server], replace(config, beta=0.0), tmp_path) as trainer:
        played = [episode for group in trainer.act(trainer.starts.of_update(1)) for episode in group.episodes]
        packed = trainer.packed([SelectedEpisode(episode, (-1.0,) * len(episode.steps)) for episode in played])[0]
        unlikely = replace(packed, old_log_probs=packed.old_log_probs - 2.0)
        served = trainer.gradient([unlikely])["loss"]
        trainer.actor = EngineActor(trainer.agent)
        own = trainer.gradient([unlikely])["loss"]
    assert served == pytest.approx(2.0 * packed.weights.sum().item())
    assert own == pytest.approx(math.exp(2.0) * packed.weights.sum().item(), rel=1e-3)


# ---- episodes at their own pace


def test_a_run_waits_for_a_server_only_so_long(server: VllmLoopback, config: TrainConfig, tmp_path: Path) -> None:
    with acting_on([server], config, tmp_path) as trainer:
        trainer.update(1)
        impatient(trainer, 0.3)
        server.before = lambda _path, _body: (503, "overloaded")
        with pytest.raises(UserError, match=r"no vLLM server was ready for 0 s \(http://.*: HTTP 503: overloaded\)"):
            trainer.update(2)
