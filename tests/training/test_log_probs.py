"""Log-probabilities of packs: those of each row alone, with the logits of a few tokens at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from msgrpo_hub.models import log_probs
from msgrpo_hub.models.log_probs import token_log_probs
from msgrpo_hub.training.batch import Pack, StepSample, pack, signed_sums
from tests.tiny import tiny_model
from tests.training.test_batch import VOCABULARY, Ids, plain_log_probs, random_model, slots_of, step_of
from tests.training.test_batch_gradient import gradient_of, random_rows

pytestmark = pytest.mark.lowest


@pytest.fixture(scope="module")
def model() -> PeftModel:
    return random_model(0)


def some_pack(seed: int = 0) -> tuple[list[tuple[Ids, Ids]], Pack]:
    """Distinct (prompt, reply) pairs in order, and their one pack."""
    pairs = sorted(set(random_rows(np.random.default_rng(seed), 12)), key=lambda pair: pair[0] + pair[1])
    (packed,) = pack([StepSample(step_of(prompt, reply).completion, signed_sums(0.0, 1.0)) for prompt, reply in pairs], 10_000)
    return pairs, packed


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("seed", range(4))
def test_log_probs_of_a_pack_are_those_of_each_row_alone(model: PeftModel, seed: int, temperature: float) -> None:
    pairs, packed = some_pack(seed)
    with torch.no_grad():
        ours = token_log_probs(model, packed, temperature)
        alone = [plain_log_probs(model, [pair], temperature)[0] for pair in pairs]
    where = dict(zip(zip(packed.slots.tolist(), packed.targets.tolist(), strict=True), ours.tolist(), strict=True))
    contexts = {prompt + reply[:k] + (reply[k],) for prompt, reply in pairs for k in range(len(reply))}
    assert len(where) == len(contexts) < sum(len(reply) for _, reply in pairs)
    for (prompt, reply), path, expected in zip(pairs, slots_of(packed), alone, strict=True):
        nodes = path[len(prompt) - 1 - len(packed.prefix) : -1]
        assert [where[pair] for pair in zip(nodes, reply, strict=True)] == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.fixture(params=[1, 3, 7])
def slots_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many tokens have logits at one time."""
    monkeypatch.setattr(log_probs, "CHUNK_BYTES", 4 * VOCABULARY * request.param)
    return int(request.param)


def scored(model: PeftModel, packed: Pack) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probabilities, and the gradient of a sum with weights of both signs."""
    scores = token_log_probs(model, packed, 0.7)
    (scores * torch.linspace(-1, 1, len(scores))).sum().backward()  # type: ignore[no-untyped-call]
    return scores.detach(), gradient_of(model)


@pytest.mark.usefixtures("slots_at_once")
def test_chunks_change_neither_log_probs_nor_gradient(model: PeftModel) -> None:
    _, packed = some_pack()
    ours, slopes = scored(model, packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_probs, "CHUNK_BYTES", 2**28)
        whole, expected = scored(model, packed)
    assert ours.tolist() == pytest.approx(whole.tolist(), abs=3e-6)  # they are near -7, where float32 has steps of 5e-7
    assert expected.abs().max() > 1e-3
    assert (slopes - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_dropout_on_the_head_is_the_same_in_the_gradient_as_in_the_log_probs(monkeypatch: pytest.MonkeyPatch) -> None:
    base = tiny_model(vocab_size=VOCABULARY, initializer_range=0.1)
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["lm_head"], lora_dropout=0.5)).train()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.linspace(-1, 1, weight.numel()).reshape(weight.shape))
    _, packed = some_pack()
    torch.manual_seed(5)
    ours, slopes = scored(model, packed)
    monkeypatch.setattr(log_probs, "checkpoint", lambda function, *given, **_: function(*given))
    torch.manual_seed(5)
    whole, expected = scored(model, packed)
    assert ours.tolist() == whole.tolist()
    assert (slopes - expected).abs().max() <= 1e-5 * expected.abs().max()


class Largest(TorchDispatchMode):
    """The most rows of logits that any tensor has; the head's own weights are none."""

    def __init__(self, head: torch.Tensor) -> None:
        super().__init__()
        self.head, self.rows = head.data_ptr(), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, torch.Tensor) and leaf.shape[-1:] == (VOCABULARY,) and leaf.data_ptr() != self.head:
                self.rows = max(self.rows, leaf.numel() // VOCABULARY)
        return made


def test_no_more_logits_are_there_at_once_than_a_chunk_has(model: PeftModel, slots_at_once: int) -> None:
    _, packed = some_pack()
    assert len(packed.slots.unique()) > 2 * slots_at_once
    with Largest(model.get_output_embeddings().weight) as largest:
        scored(model, packed)
    assert largest.rows == slots_at_once
