"""LoRA adapters: with their base they compute what PEFT computes, or are refused in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, TaggedFormat
from msgrpo_hub.downloads.fetching import Fetched, fetch, list_files
from msgrpo_hub.games import make_game
from msgrpo_hub.models import adapters
from msgrpo_hub.models.adapters import load_adapter
from msgrpo_hub.models.scoring import ScorePolicy
from msgrpo_hub.rollout import play_episodes
from tests.models.engines import plain_log_p
from tests.models.loading import edit, load, logits, published, refused, rngs, save_adapter
from tests.tiny import SIZE, MakeFolder, adapted, tiny_model

ALL = "all-linear"
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a head": {"modules_to_save": ["lm_head"]},
    "head, embedding and norms": {"modules_to_save": ["lm_head", "embed_tokens", "norm", "input_layernorm"]},
    "tokens": {"trainable_token_indices": [5, 6, 7]},
    "tokens in two layers": {"trainable_token_indices": {"embed_tokens": [5, 6], "lm_head": [7]}},
    "all biases": {"bias": "all"},
    "the biases of its layers": {"bias": "lora_only", "target_modules": ["q_proj", "k_proj"]},
    "DoRA": {"use_dora": True},
    "rsLoRA with patterns": {"use_rslora": True, "rank_pattern": {r".*layers\.1\.\w+\.q_proj": 2}, "alpha_pattern": {"^x": 3}},
    "a regular expression": {"target_modules": r"(?:.*?(?:self_attn|mlp).*?(?:q_proj|v_proj|up_proj).*?)"},
    "one for layers to leave out": {"target_modules": ALL, "exclude_modules": r".*\.0\..*"},
    "a LoRA on the embedding": {"target_modules": ["embed_tokens", "q_proj"]},
    "a LoRA on the head": {"target_modules": ["lm_head", "q_proj"]},
    "biases of LoRA": {"lora_bias": True},
    "some layers": {"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
    "another initialisation": {"init_lora_weights": "orthogonal"},
}


@pytest.mark.parametrize("tied", [False, True], ids=["", "tied"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_computes_what_peft_computes(
    make_folder: MakeFolder, tmp_path: Path, prompts: list[Prompt], kind: str, tied: bool
) -> None:
    base = make_folder("qwen2", tie_word_embeddings=tied)
    adapter = published(base, tmp_path, **KINDS[kind])
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
    agent = load(base, adapter=str(adapter), max_new_tokens=4, temperature=0.0, engine="fast")
    with agent.caching():
        replies = agent.complete(prompts[:3], rngs(3))
    for reply in replies:
        with torch.no_grad():
            log_p = plain_log_p(plain, reply.prompt_ids, reply.token_ids)
        assert list(reply.token_ids) == log_p.argmax(-1).tolist()
        assert reply.log_probs == pytest.approx(log_p.max(-1).values.tolist(), abs=2e-5)


# ---- adapters of other versions


def write_adapter(folder: Path, weights: dict[str, torch.Tensor], **settings: Any) -> Fetched:
    plain = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "org/base", "r": 2, "lora_alpha": 4}
    (folder / "adapter_config.json").write_text(json.dumps(plain | settings))
    save_file(weights, folder / "adapter_model.safetensors")
    return fetch(list_files(str(folder)))


def matrices(layer: str, outputs: int, inputs: int) -> dict[str, torch.Tensor]:
    """A and B of rank 2 for one linear layer."""
    name = f"base_model.model.{layer}.lora"
    return {f"{name}_A.weight": torch.randn(2, inputs) / 4, f"{name}_B.weight": torch.randn(outputs, 2) / 4}


def added(weights: dict[str, torch.Tensor], layer: str) -> torch.Tensor:
    """The change of the weight of one layer: B A · alpha / r."""
    return 2 * weights[f"base_model.model.{layer}.lora_B.weight"] @ weights[f"base_model.model.{layer}.lora_A.weight"]


def test_an_adapter_of_experts_from_before_they_were_fused_is_added_to_each_expert(tmp_path: Path) -> None:
    """Worked by hand: the weight of each expert plus its own B A · alpha / r, in the base's fused parameters."""
    options: dict[str, Any] = {"vocab_size": 64, "num_hidden_layers": 1, "num_local_experts": 3}
    base, weights, changed = tiny_model("mixtral", **options).eval(), {}, tiny_model("mixtral", **options).eval()
    torch.manual_seed(3)
    experts = changed.model.layers[0].mlp.experts
    for k in range(3):
        gate, up, down = (f"model.layers.0.block_sparse_moe.experts.{k}.{name}" for name in ("w1", "w3", "w2"))
        weights |= matrices(gate, 48, 32) | matrices(up, 48, 32) | matrices(down, 32, 48)
        with torch.no_grad():
            experts.gate_up_proj[k] += torch.cat([added(weights, gate), added(weights, up)])
            experts.down_proj[k] += added(weights, down)
    before = logits(base)
    model = load_adapter(base, write_adapter(tmp_path, weights, target_modules=["w1", "w2", "w3"]))
    torch.testing.assert_close(logits(model), logits(changed), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(logits(model), before, atol=0.1)
    weights.pop(next(iter(weights)))
    found = write_adapter(tmp_path, weights, target_modules=["w1", "w2", "w3"])
    assert "does not fit its base" in refused(load_adapter, tiny_model("mixtral", **options), found)


def test_an_adapter_of_a_vision_model_from_before_its_language_model_moved_is_loaded(tmp_path: Path) -> None:
    """The layers were `language_model.model.layers` until transformers 4.52, and are `model.language_model.layers`."""
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**SIZE, "head_dim": 8, "query_pre_attn_scalar": 16, "vocab_size": 64, "num_hidden_layers": 1}
    config = CONFIG_MAPPING["gemma3"](text_config=text, vision_config={**vision, "image_size": 28, "patch_size": 14})
    base, changed = (AutoModelForImageTextToText.from_config(config).eval() for _ in range(2))
    changed.load_state_dict(base.state_dict())
    old = "language_model.model.layers.0.self_attn.q_proj"
    weights = matrices(old, 32, 32)
    model = load_adapter(base, write_adapter(tmp_path, weights, target_modules=["q_proj"], exclude_modules=".*vision.*"))
    with torch.no_grad():
        changed.model.language_model.layers[0].self_attn.q_proj.weight += added(weights, old)
    torch.testing.assert_close(logits(model), logits(changed), atol=1e-4, rtol=1e-4)
    with model.disable_adapter():
        assert not torch.allclose(logits(model), logits(changed), atol=1e-2)


UNSLOTH = {
    "auto_mapping": {
        "base_model_class": "LlamaForCausalLM",
        "parent_library": "transformers.models.llama.modeling_llama",
        "unsloth_fixed": True,
    },
    "base_model_name_or_path": "unsloth/Llama-3.2-1B-Instruct-bnb-4bit",
    "loftq_config": {"loftq_bits": 4, "loftq_iter": 1},
    "runtime_config": {"ephemeral_gpu_offload": False},
    "eva_config": None,
    "megatron_core": "megatron.core",
    "task_type": "SEQ_2_SEQ_LM",
    "unsloth_fixed": True,
    "target_modules": r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|v_proj).*?)|"
    r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|attention|attn|mlp)\.(?:(?:q_proj|v_proj)))",
}
"""Settings as Unsloth has written them, and some of a newer PEFT."""


def test_settings_as_unsloth_writes_them_are_loaded_and_the_unknown_ones_are_named(
    qwen2_folder: Path, tmp_path: Path, prompts: list[Prompt], caplog: pytest.LogCaptureFixture
) -> None:
    adapter = published(qwen2_folder, tmp_path, target_modules=["q_proj", "v_proj"])
    plain = logits(load(qwen2_folder, adapter=str(adapter)).model)
    edit(adapter / "adapter_config.json", **UNSLOTH, use_something_newer=7)
    loaded = load(qwen2_folder, adapter=str(adapter), max_new_tokens=2)
    assert torch.equal(logits(loaded.model), plain)
    assert loaded.complete(prompts[:2], rngs(2))
    [line] = [record.getMessage() for record in caplog.records if "unknown settings" in record.getMessage()]
    assert line.endswith("ignored: 'unsloth_fixed', 'use_something_newer'")


def test_an_adapter_with_more_tokens_than_its_base_is_loaded_with_all_of_them(
    qwen2_folder: Path, tmp_path: Path, prompts: list[Prompt]
) -> None:
    """As TRL saves it after adding tokens: embedding and head have more rows, and the tokenizer is beside them."""
    torch.manual_seed(1)
    larger, tokenizer = AutoModelForCausalLM.from_pretrained(qwen2_folder), AutoTokenizer.from_pretrained(qwen2_folder)
    rows = len(larger.get_input_embeddings().weight)
    tokenizer.add_tokens([f"<new {k}>" for k in range(rows - len(tokenizer) + 3)])
    larger.resize_token_embeddings(len(tokenizer))
    model = adapted(larger, modules_to_save=["embed_tokens", "lm_head"])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    agent = load(qwen2_folder, adapter=str(tmp_path), max_new_tokens=2)
    assert torch.equal(logits(agent.model), logits(model))
    assert agent.tokenizer("<new 0>")["input_ids"] == tokenizer("<new 0>")["input_ids"]
    assert agent.complete(prompts[:1], rngs(1))


# ---- adapters that do not fit

LAYER = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("options", "changes", "words"),
    [
        ({}, {f"{LAYER}.lora_A.weight": None}, "1 of its 28 layers have no weights, 0 weights match no layer"),
        ({}, {"model.layers.7.mlp.lora_A.weight": torch.ones(4, 32)}, "0 of its 28 layers have no weights, 1 weights match"),
        ({}, {f"{LAYER}.base_layer.weight": torch.ones(32, 32)}, "0 of its 28 layers have no weights, 1 weights match"),
        ({"bias": "all"}, {f"{LAYER}.base_layer.bias": None}, "1 of its 34 layers have no weights"),
        ({"modules_to_save": ["lm_head"]}, {"lm_head.weight": None}, "lm_head"),
        ({"trainable_token_indices": [1]}, {"model.embed_tokens.token_adapter.trainable_tokens_delta": None}, "embed_tokens"),
        ({}, {f"{LAYER}.lora_A.weight": torch.ones(3, 32)}, "size mismatch"),
    ],
    ids=str,
)
def test_an_adapter_with_missing_or_other_weights_is_refused(
    qwen2_folder: Path, tmp_path: Path, options: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    """A weight of the base does not belong in an adapter: it would change the base silently."""
    path = published(qwen2_folder, tmp_path, **options) / "adapter_model.safetensors"
    weights: dict[str, Any] = load_file(path) | {f"base_model.model.{name}": value for name, value in changes.items()}
    save_file({name: value for name, value in weights.items() if value is not None}, path)
    said = refused(load, qwen2_folder, adapter=str(tmp_path))
    assert "does not fit its base" in said
    assert words in said


@pytest.mark.lowest
def test_a_missing_adapter_and_an_adapter_in_place_of_a_base_are_refused(qwen2_folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    assert "is a LoRA adapter, not a base" in refused(load, adapter, adapter=str(adapter))
    assert str(tmp_path / "nowhere") in refused(load, qwen2_folder, adapter=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target_modules": r"(?:\w+\.?)+!"}, "more than 1 s"),
        ({"alpha_pattern": {r"(?=(\w*\.?)*!)": 4}}, "more than 1 s"),
        ({"target_modules": "("}, "missing )"),
    ],
    ids=str,
)
def test_a_regular_expression_that_never_ends_is_stopped(
    qwen2_folder: Path, tmp_path: Path, settings: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "SECONDS", 1)
    edit(published(qwen2_folder, tmp_path) / "adapter_config.json", **settings)
    said = refused(load, qwen2_folder, adapter=str(tmp_path))
    assert "its regular expressions of layers are refused" in said
    assert words in said


# ---- the prompt format stored with an adapter


LAKE = make_game("FrozenLake-NotSlippery-v1")


def with_format(base: Path, folder: Path, name: str) -> Path:
    adapter = save_adapter(base, folder)
    (adapter / "msgrpo.json").write_text(json.dumps({"prompt_format": name}))
    return adapter


@pytest.mark.parametrize("name", PROMPT_FORMATS)
def test_an_adapter_is_prompted_in_the_format_stored_with_it(qwen2_folder: Path, tmp_path: Path, name: str) -> None:
    agent, chosen = load(with_format(qwen2_folder, tmp_path, name), max_new_tokens=32), PROMPT_FORMATS[name]
    assert agent.prompt_format == chosen
    [episode] = play_episodes(LAKE, ScorePolicy(agent), [(0, 0)])
    assert [step.completion.text for step in episode.steps] == [chosen.reply(str(step.action)) for step in episode.steps]
    request = chosen.render(LAKE, "", ())[-1]["content"].removeprefix("Current Observation:\n\n")
    assert request in agent.tokenizer.decode(episode.steps[0].completion.prompt_ids)


def test_a_stored_name_never_imports_and_a_given_format_overrides_it(
    qwen2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stored_format.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    adapter = with_format(qwen2_folder, tmp_path / "adapter", "stored_format:FORMAT")
    assert "would import code: expected one of think-action" in refused(load, adapter)
    own = TaggedFormat(name="mine", request="Act!")
    assert load(adapter, prompt_format=own).prompt_format == own
    assert "stored_format" not in sys.modules
