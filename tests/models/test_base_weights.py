"""Weights in other types and places, in 4 bits, and of multimodal models."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerFast, ViTConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import run_hash
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.players import PlayerSettings
from msgrpo_hub.players.registry import identify
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.trainer import Trainer
from tests.models.loading import load, refused, rngs
from tests.tiny import SIZE
from tests.training.runs import learn


def reply_alike(one: LanguageModel, other: LanguageModel, prompts: list[Prompt]) -> bool:
    """Whether their replies have the same tokens, and the same log-probabilities but for rounding."""
    both = zip(one.complete(prompts, rngs(len(prompts))), other.complete(prompts, rngs(len(prompts))), strict=True)
    return all(a.token_ids == b.token_ids and a.log_probs == pytest.approx(b.log_probs, abs=1e-5) for a, b in both)


@torch.no_grad()
def farthest_from_plain(model: LanguageModel, prompts: list[Prompt]) -> float:
    """The largest difference of log-probabilities to the model's own forward pass over each prompt and reply."""
    worst = 0.0
    for reply in model.complete(prompts, rngs(len(prompts))):
        ids = torch.tensor([reply.prompt_ids + reply.token_ids])
        log_p = torch.log_softmax(model.model(input_ids=ids).logits[0, len(reply.prompt_ids) - 1 : -1].float(), -1)
        plain = log_p.gather(1, torch.tensor(reply.token_ids)[:, None])[:, 0]
        worst = max(worst, (plain - torch.tensor(reply.log_probs)).abs().max().item())
    return worst


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


# ---- multimodal models

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


# ---- types and places


def test_half_precision_acts_and_is_another_run(qwen2_folder: Path, prompts: list[Prompt]) -> None:
    for dtype in ("float16", "bfloat16"):
        model = load(qwen2_folder, dtype=dtype, max_new_tokens=4)
        assert model.model.dtype == getattr(torch, dtype)
        assert farthest_from_plain(model, prompts) < 0.2
    players = [identify(str(qwen2_folder), PlayerSettings(dtype=dtype)) for dtype in ("auto", "float32", "float16")]
    identities = [player.identity for player in players]
    assert [identity["dtype"] for identity in identities] == ["float32", "float32", "float16"]
    assert identities[0] == identities[1]
    assert not {"quantization", "device_map"} & identities[0].keys()


def test_layers_spread_over_cpu_and_disk_act_as_on_one_device(qwen2_folder: Path, prompts: list[Prompt]) -> None:
    whole = load(qwen2_folder, max_new_tokens=4)
    with patch("transformers.integrations.accelerate.get_max_memory", lambda _=None: {"cpu": 130_000}):
        spread = load(qwen2_folder, max_new_tokens=4, device_map="auto")
        player = identify(str(qwen2_folder), PlayerSettings(device_map="auto"))
    assert set(spread.model.hf_device_map.values()) == {"cpu", "disk"}
    assert reply_alike(spread, whole, prompts)
    assert player.identity["device_map"] == "auto"
    with pytest.raises(UserError, match="device = 'cpu' with a device map"):
        load(qwen2_folder, device="cpu", device_map="auto")
    with (
        patch("transformers.integrations.accelerate.get_max_memory", lambda _=None: {"cpu": 1000}),
        pytest.raises(UserError, match=r"no layer of .* fits into memory"),
    ):
        load(qwen2_folder, device_map="auto")


# ---- 4 bits

needs_bitsandbytes = pytest.mark.skipif(not importlib.util.find_spec("bitsandbytes"), reason="bitsandbytes is not installed")


@pytest.mark.skipif(bool(importlib.util.find_spec("bitsandbytes")), reason="bitsandbytes is installed")
def test_4_bits_without_bitsandbytes_get_one_line(qwen2_folder: Path) -> None:
    assert "pip install 'msgrpo-hub[quantized]'" in refused(load, qwen2_folder, load_in_4bit=True)


@needs_bitsandbytes
def test_a_4_bit_model_acts_near_the_whole_one_and_is_another_run() -> None:
    settings = PlayerSettings(load_in_4bit=True, dtype="float32", max_new_tokens=4)
    four, whole = identify("pocket", settings), identify("pocket", replace(settings, load_in_4bit=False))
    linear = four.policy.model.model.layers[0].mlp.up_proj  # type: ignore[attr-defined]
    assert linear.weight.dtype == torch.uint8
    assert four.identity["quantization"] == "nf4"
    assert run_hash(four.identity) != run_hash(whole.identity)
    prompt = "the same text for both"
    ids = torch.tensor([four.policy.tokenizer(prompt)["input_ids"]])  # type: ignore[attr-defined]
    with torch.no_grad():
        near, exact = (torch.softmax(player.policy.model(ids).logits, -1) for player in (four, whole))  # type: ignore[attr-defined]
    assert 0 < (near - exact).abs().max() < 0.3


@needs_bitsandbytes
def test_an_adapter_trains_on_a_4_bit_base() -> None:
    """Acting must leave the 4 bits as training needs them."""
    check_two_updates("pocket", load_in_4bit=True, dtype="float32")
