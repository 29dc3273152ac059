"""Weights in other types and places, in 4 bits, and of multimodal models."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerFast, ViTConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.evaluation.results import run_hash
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.players import PlayerSettings
from msgrpo_hub.players.registry import identify
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.trainer import Trainer
from tests.models.engines import plain_log_probs
from tests.models.loading import load, refused, rngs
from tests.tiny import SIZE
from tests.training.runs import learn


@torch.no_grad()
def farthest_from_plain(model: LanguageModel, prompts: list[Prompt]) -> float:
    """The largest difference of log-probabilities to the model's own forward pass over each prompt and reply."""
    replies = model.complete(prompts, rngs(len(prompts)))
    plain = [plain_log_probs(model.model, reply.prompt_ids, reply.token_ids) for reply in replies]
    return max(float((a - torch.tensor(b.log_probs)).abs().max()) for a, b in zip(plain, replies, strict=True))


def check_two_updates(model: str, **options: Any) -> None:
    """Two updates. With advantages of 1 and ½ and one step the loss is −¾ exactly if both see the same weights."""
    sizes: dict[str, Any] = {"groups": 1, "group_size": 2, "selected_per_group": 2, "max_new_tokens": 4, "beta": 0.0}
    config = TrainConfig(model=model, learning_rate=1e-2, loss_normalisation="episode-mean", **sizes, **options)
    trainer = Trainer(config, Accelerator(cpu=True))
    before = {name: parameter.detach().clone() for name, parameter in trainer.parameters.items()}
    for index in (1, 2):
        [group] = trainer.act([(config.game, 7)])
        shares = zip(group.episodes, (1.0, 0.5), strict=True)
        metrics = learn(trainer, [SelectedEpisode(e, (share,) * len(e.steps)) for e, share in shares], index)
        assert metrics["loss"] == pytest.approx(-0.75, abs=1e-4)
        assert metrics["gradient_norm"] > 0
    assert {parameter.dtype for parameter in trainer.parameters.values()} == {torch.float32}
    assert any(not torch.equal(parameter, before[name]) for name, parameter in trainer.parameters.items())


EYES: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
QWEN_EYES: dict[str, Any] = {"depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "out_hidden_size": 32}
ROPE = {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}}
SEEING: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gemma3": (
        {"head_dim": 8, "layer_types": ["full_attention"] * 2},
        {**EYES, "image_size": 28, "patch_size": 14},
        {"mm_tokens_per_image": 4, "image_token_index": 5},
    ),
    "qwen2_5_vl": (ROPE, {**QWEN_EYES, "fullatt_block_indexes": [0]}, {"image_token_id": 5, "video_token_id": 6}),
    "qwen3_vl": ({**ROPE, "head_dim": 8}, {**QWEN_EYES, "deepstack_visual_indexes": [0]}, {"image_token_id": 5}),
    "mistral3": (
        {"model_type": "mistral", "head_dim": 8, "sliding_window": None},
        {**EYES, "model_type": "pixtral", "image_size": 28, "patch_size": 14},
        {"image_token_index": 5},
    ),
}
"""Model type → settings of its text part, of its vision part, and of the whole."""


def save_seeing(folder: Path, kind: str, tokenizer: PreTrainedTokenizerFast) -> Path:
    text, eyes, whole = SEEING[kind]
    ends = {"vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0}
    config = CONFIG_MAPPING[kind](text_config={**SIZE, **ends, **text}, vision_config=eyes, **whole)
    torch.manual_seed(0)
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)](config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", SEEING)
def test_the_text_part_of_a_multimodal_checkpoint_plays(
    kind: str, tokenizer: PreTrainedTokenizerFast, prompts: list[Prompt], tmp_path: Path
) -> None:
    model = load(save_seeing(tmp_path, kind, tokenizer), max_new_tokens=4)
    assert farthest_from_plain(model, prompts) < 1e-5


def test_an_adapter_trains_on_a_multimodal_checkpoint(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    check_two_updates(str(save_seeing(tmp_path, "qwen2_5_vl", tokenizer)), lora_rank=4)


def test_a_model_that_writes_no_text_gets_one_line(folder: Path) -> None:
    ViTConfig(**EYES).save_pretrained(folder)
    assert "transformers knows no language model of type 'vit'" in refused(load, folder)


def test_half_precision_acts_and_is_another_run(qwen2_folder: Path, prompts: list[Prompt]) -> None:
    for dtype in ("float16", "bfloat16"):
        model = load(qwen2_folder, dtype=dtype, max_new_tokens=4)
        assert model.model.dtype == getattr(torch, dtype)
        assert farthest_from_plain(model, prompts) < 0.2
    players = [identify(str(qwen2_folder), PlayerSettings(dtype=dtype)) for dtype in ("auto", "float32", "float16")]
    identities = [player.identity for player in players]
    assert [identity["dtype"] for identity in identities] == ["float32", "float32", "float16"]
    assert identities[0] == identities[1]
    assert "quantization" not in identities[0]


needs_bitsandbytes = pytest.mark.skipif(not importlib.util.find_spec("bitsandbytes"), reason="bitsandbytes is not installed")


@pytest.mark.skipif(bool(importlib.util.find_spec("bitsandbytes")), reason="bitsandbytes is installed")
def test_4_bits_without_bitsandbytes_get_one_line(qwen2_folder: Path) -> None:
    assert "pip install 'msgrpo-hub[quantized]'" in refused(load, qwen2_folder, load_in_4bit=True)


@needs_bitsandbytes
def test_a_4_bit_model_acts_near_the_whole_one_and_is_another_run() -> None:
    settings = PlayerSettings(load_in_4bit=True, dtype="float32", max_new_tokens=4)
    four, whole = identify("pocket", settings), identify("pocket", replace(settings, load_in_4bit=False))
    assert four.identity["quantization"] == "nf4"
    assert run_hash(four.identity) != run_hash(whole.identity)
    prompt = "the same text for both"
    ids = torch.tensor([four.policy.tokenizer(prompt)["input_ids"]])  # type: ignore[attr-defined]
    with torch.no_grad():
        near, exact = (torch.softmax(player.policy.model(ids).logits, -1) for player in (four, whole))  # type: ignore[attr-defined]
    assert 0 < (near - exact).abs().max() < 0.3


@needs_bitsandbytes
def test_an_adapter_trains_on_a_4_bit_base() -> None:
    check_two_updates("pocket", load_in_4bit=True, dtype="float32")
