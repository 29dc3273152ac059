"""Models with unsupported attention are refused; a sliding window is respected or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import Sample
from msgrpo_hub.training.batch import StepSample, pack, signed_sums
from msgrpo_hub.models.log_probs import token_log_probs
from tests.models.engines import TOLERANCE, generators, plain_scores

# ---- architectures that need more than the attention interface provides


def refused_or_plain(folder: Path, prompts: list[Prompt]) -> bool:
    """Whether acting and training agree with a plain forward, or refuse the model with a `UserError`."""
    try:
        agent = LanguageModel.from_pretrained(str(folder), max_new_tokens=4)
        replies = agent.complete(prompts[:4], generators(4))
    except UserError:
        return True
    (packed,) = pack(
        [StepSample(reply, signed_sums(0.0, 1.0)) for reply in sorted(replies, key=lambda reply: reply.prompt_ids)], 10_000
    )
    trained = token_log_probs(agent.model, packed, 1.0).tolist()
    samples = [Sample(reply.prompt_ids, list(reply.token_ids)) for reply in replies]
    plain = [plain_scores(agent.model, sample, 1.0)[range(len(sample.token_ids)), sample.token_ids] for sample in samples]
    acted = [pytest.approx(scores.tolist(), abs=TOLERANCE) for scores in plain] == [reply.log_probs for reply in replies]
    return acted and sorted(trained) == pytest.approx(sorted(torch.cat(plain).tolist()), abs=TOLERANCE)


@pytest.mark.parametrize("model_type", ["gemma2", "gemma3_text", "mistral", "phi3", "qwen2"])
def test_a_sliding_window_shorter_than_the_prompt_is_respected_or_refused(
    make_folder: Callable[..., Path], prompts: list[Prompt], model_type: str
) -> None:
    """Gemma 3 has windows of 512 tokens, fewer than a Snake prompt with its reply."""
    options = {"use_sliding_window": True, "max_window_layers": 1} if model_type == "qwen2" else {}
    assert refused_or_plain(make_folder(model_type, sliding_window=6, **options), prompts)


@pytest.mark.parametrize(
    ("model_type", "options"),
    [
        ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}),  # attention sinks
        ("stablelm", {}),  # chooses its attention by class
        ("nemotron", {}),
        ("bloom", {"n_head": 4}),  # ALiBi, no attention interface
        ("mamba", {}),  # a state instead of keys and values
        ("minimax", {"num_local_experts": 2, "head_dim": 8}),  # a cache of its own
        ("qwen3_next", {"num_experts": 2, "num_experts_per_tok": 2, "head_dim": 8}),  # some layers with a state
    ],
)
def test_a_model_with_unsupported_attention_is_refused(
    make_folder: Callable[..., Path], prompts: list[Prompt], model_type: str, options: dict[str, object]
) -> None:
    assert refused_or_plain(make_folder(model_type, **options), prompts)
