"""The adapter of a run: its layers and scale, the adapter that it starts from, and the prompt format stored with it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from msgrpo_hub.errors import UserError
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.models.language_model import probe_prompt
from msgrpo_hub.training import TrainConfig, train
from msgrpo_hub.training.adapter import learning_mode, new_lora, without_dropout
from msgrpo_hub.training.config import load_config
from tests.families import tiny_model as of_family
from tests.tiny import adapted as with_lora
from tests.training.runs import WEIGHTS, Stop, trained, trainer_of

if TYPE_CHECKING:
    from tests.command import Command


@pytest.fixture
def short(config: TrainConfig) -> TrainConfig:
    return replace(config, updates=1, eval_every=0, test_episodes=0)


# ---- layers


@pytest.mark.parametrize(
    ("family", "targets", "layers"),
    [
        ("llama", "all-linear", "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"),
        ("llama", "q_proj, v_proj", "q_proj v_proj"),
        ("llama", "layers.0.self_attn.q_proj,lm_head", "q_proj lm_head"),
        ("mamba2", "all-linear", "in_proj"),
        ("phimoe", "all-linear", "q_proj k_proj v_proj o_proj"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_lora_is_on_all_linear_layers_or_those_named_but_never_on_routers(family: str, targets: str, layers: str) -> None:
    model = new_lora(of_family(family), targets, r=2)
    found = {name.split(".lora_A")[0].rpartition(".")[2] for name, _ in model.named_parameters() if ".lora_A" in name}
    assert found >= {*layers.split()}
    assert found == {*layers.split()} or family == "phimoe"
    assert "router" not in found


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ("q,v", r"lora_targets = 'q,v': .* has no layer 'q'; expected all-linear, or some of .*k_proj.*q_p"),
        ("q_proj,v_porj", "has no layer 'v_porj'"),
        ("self_attn", r"does not fit .*expected all-linear"),
    ],
)
def test_a_name_that_no_layer_has_is_refused_with_the_names_of_the_layers(targets: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        new_lora(of_family("llama"), targets, r=2)


def test_without_dropout_an_update_leaves_torchs_generator_alone(config: TrainConfig) -> None:
    """Own credits, samplers and callbacks may use it, and every update would restart its stream."""
    trainer, before = trainer_of(config), torch.manual_seed(7).get_state()
    trainer.update(1)
    assert torch.equal(torch.get_rng_state(), before)


def test_training_uses_the_experts_that_sampling_uses() -> None:
    model, ids = of_family("phimoe"), torch.arange(3, 243).reshape(8, 30)
    model.config.attention_dropout = 0.0
    without_dropout(model)
    learning_mode(model.eval())
    assert model.training
    with torch.no_grad():
        learned, acting = [model(ids).logits for _ in range(2)], model.eval()(ids).logits
        assert not torch.equal(model.train()(ids).logits, acting), "routers in training mode sample experts"
    assert torch.equal(learned[0], acting)
    assert torch.equal(learned[1], acting)


def test_the_bases_own_dropout_is_off_while_training() -> None:
    model, ids = of_family("gpt2").train(), torch.tensor([[1, 2, 3]])
    assert not torch.equal(model(ids).logits, model(ids).logits)
    without_dropout(model)
    assert torch.equal(model(ids).logits, model(ids).logits)
    assert any(isinstance(layer, nn.Dropout) for layer in model.modules())


def test_loras_dropout_follows_from_the_seed_of_the_run(short: TrainConfig) -> None:
    half, same, none = (trained(replace(short, seed=1, lora_dropout=dropout)) for dropout in (0.5, 0.5, 0.0))
    assert all(half[name].equal(same[name]) for name in half)
    assert not all(half[name].equal(none[name]) for name in half)


# ---- the adapter that a run starts from


@pytest.mark.slow
def test_a_run_starts_with_the_adapter_that_it_is_given(short: TrainConfig, tmp_path: Path) -> None:
    train(replace(short, updates=2), tmp_path / "first", show_progress=False)
    given = tmp_path / "first" / "adapter"
    summary = train(replace(short, init_adapter=str(given), learning_rate=1e-12), tmp_path / "second", show_progress=False)
    before, after = (load_file(tmp_path / run / "adapter" / WEIGHTS) for run in ("first", "second"))
    assert before.keys() == after.keys()
    assert max((before[name] - after[name]).abs().max().item() for name in before) < 1e-9
    assert max(weight.abs().max().item() for weight in after.values()) > 1e-2
    assert len(summary["init_adapter_commit"]) == 64, "the hash of the folder's content"
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "second" / "adapter")
    assert loaded.peft_config["default"].base_model_name_or_path == short.model


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        *({"modules_to_save": ["lm_head", "embed_tokens"]}, {"trainable_token_indices": [5, 6]}, {"bias": "all"}),
        *({"use_dora": True}, {"target_modules": r".*\.(q_proj|up_proj)"}, {"more_tokens": 8}),
    ],
    ids=str,
)
def test_any_kind_of_adapter_can_be_trained_further_and_the_rest_of_it_stays(
    short: TrainConfig, tmp_path: Path, options: dict[str, Any]
) -> None:
    options, base = dict(options), AutoModelForCausalLM.from_pretrained(short.model)
    if more := options.pop("more_tokens", 0):
        base.resize_token_embeddings(len(base.get_input_embeddings().weight) + more)
    torch.manual_seed(0)
    with_lora(base, **options).save_pretrained(tmp_path / "given", save_embedding_layers="auto" if more else False)
    further = replace(short, init_adapter=str(tmp_path / "given"), lora_alpha=8, learning_rate=1e-12, temperature=2.0)
    train(further, tmp_path / "run", show_progress=False)
    models = [LanguageModel.from_pretrained(short.model, str(tmp_path / name)).model for name in ("given", "run/adapter")]
    first, second = (model(torch.arange(9)[None]).logits for model in models)
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_an_adapter_that_does_not_fit_the_run_is_refused_with_its_settings(short: TrainConfig, tmp_path: Path) -> None:
    short = replace(short, chat_template_kwargs={"a": False})
    train(short, tmp_path / "first", show_progress=False)
    given = str(tmp_path / "first" / "adapter")
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"lora_rank": 2}, "has lora_rank = 4: expected the same of the run"),
        ({"lora_dropout": 0.3, "rslora": True}, "has lora_dropout = 0.0, rslora = false: expected the same"),
        ({"chat_template_kwargs": {"x": 1}}, r"has chat_template_kwargs = \{\"a\": false\}: expected the same"),
        ({"prompt_format": "json"}, r"has prompt_format = \"think-action\": expected the same"),
        ({"lora_targets": "q_proj"}, r"lora_targets = 'q_proj', and init_adapter = .* has its own layers"),
        (
            {"init_adapter": "snake", "lora_rank": 16, "lora_alpha": 32, "chat_template_kwargs": {}},
            r"the adapter '.*snake' does not fit its base",
        ),
        ({"init_adapter": short.model}, "is not a LoRA adapter"),
        ({"init_adapter": "", "model": given}, f"give its base, and --init-adapter {given}"),
    ]
    for changes, message in refusals:
        with pytest.raises(UserError, match=message):
            train(replace(short, **{"init_adapter": given, **changes}), tmp_path / "refused", show_progress=False)
    assert not (tmp_path / "refused").exists()


# ---- the prompt format and the template
OTHER = (
    "{% for m in messages %}({{ m['role'] }}) {{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}(me){% if enable_thinking is not false %}<think>{% endif %}{% endif %}"
)


def stored_formats(run: Path) -> list[str]:
    return [json.loads((run / name / "msgrpo.json").read_text())["prompt_format"] for name in ("adapter", "best")]


@pytest.mark.slow
def test_a_run_stores_its_format_and_template_variables_with_both_adapters(
    msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    chosen = ["--prompt-format", "json", "--chat-template-kwargs", '{"enable_thinking": false}']
    done = msgrpo("train", *flags, "--updates", 2, *chosen, "--output-dir", tmp_path / "run")
    assert done.code == 0, done.err
    assert done.err.count("never reads 'enable_thinking'\n") == 1
    assert stored_formats(tmp_path / "run") == ["json", "json"]
    assert load_config(tmp_path / "run" / "config.toml").chat_template_kwargs == {"enable_thinking": False}
    agent = LanguageModel.from_pretrained(str(tmp_path / "run" / "adapter"))
    assert agent.prompt_format
    assert (agent.prompt_format.name, agent.chat_template_kwargs) == ("json", {"enable_thinking": False})


@pytest.mark.slow
def test_an_adapter_plays_with_the_template_of_its_training_and_the_next_command_works(
    msgrpo: Command, flags: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    """Also on a base without a template, and with a variable set automatically."""
    base = Path(shutil.copytree(tiny_model, tmp_path / "base"))
    (base / "chat_template.jinja").unlink()
    (tmp_path / "other.jinja").write_text(OTHER)
    flags = [str(base) if flag == str(tiny_model) else flag for flag in flags]
    done = msgrpo("train", *flags, "--updates", 2, "--chat-template", "other.jinja", "--output-dir", "run", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.err.count("own thinking is limited with") == 1
    (tmp_path / "other.jinja").unlink()
    for adapter in (tmp_path / "run" / "adapter", tmp_path / "run" / "best"):
        assert (adapter / "chat_template.jinja").read_text() == OTHER
        agent = LanguageModel.from_pretrained(str(adapter))
        assert agent.render([probe_prompt(agent)])[0].endswith("<|end|>(me)")
        assert agent.chat_template_kwargs == {"enable_thinking": False}
    [command] = re.findall(r"Next: msgrpo (.*)", done.err)
    assert msgrpo(*command.split(), folder=tmp_path).code == 0


@pytest.mark.slow
def test_a_run_that_starts_from_an_adapter_takes_its_template_and_tokenizer(short: TrainConfig, tmp_path: Path) -> None:
    train(short, tmp_path / "first", show_progress=False)
    given = tmp_path / "first" / "adapter"
    tokenizer = AutoTokenizer.from_pretrained(short.model, eos_token="<|user|>")
    tokenizer.chat_template = OTHER
    tokenizer.save_pretrained(given)
    train(replace(short, init_adapter=str(given)), tmp_path / "second", show_progress=False)
    agents = [LanguageModel.from_pretrained(str(adapter)) for adapter in (given, tmp_path / "second" / "adapter")]
    assert [(agent.tokenizer.eos_token, agent.tokenizer.chat_template) for agent in agents] == [("<|user|>", OTHER)] * 2
    assert agents[0].encode([probe_prompt(agents[0])]) == agents[1].encode([probe_prompt(agents[1])])


@pytest.mark.slow
def test_a_run_whose_chat_template_has_changed_does_not_resume(short: TrainConfig, tmp_path: Path) -> None:
    template, text = tmp_path / "template.jinja", (Path(short.model) / "chat_template.jinja").read_text()
    template.write_text(text)
    own = replace(short, updates=2, chat_template=str(template))
    with pytest.raises(KeyboardInterrupt):
        train(own, tmp_path / "run", show_progress=False, callbacks=[Stop(2)])
    template.write_text(text + "{# another #}")
    with pytest.raises(UserError, match=r"chat_template = .* has changed since the run began: put it back"):
        train(own, tmp_path / "run", resume=True, show_progress=False)
    template.write_text(text)
    assert train(own, tmp_path / "run", resume=True, show_progress=False)["adapter_update"] == 2


@pytest.mark.slow
def test_your_own_format_trains_and_plays_if_it_is_typed(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "own_format.py").write_text(Path("examples/own_prompt_format.py").read_text(encoding="utf-8"))
    own = ["--prompt-format", "own_format:Numbered"]
    done = msgrpo("train", *flags, "--updates", 1, *own, "--eval-every", 1, "--output-dir", "run", folder=tmp_path)
    assert done.code == 0, done.err
    assert stored_formats(tmp_path / "run") == ["own_format:Numbered"] * 2
    play = ["play", "FrozenLake-NotSlippery-v1", "--player", "run/adapter", "--max-new-tokens", 4]
    refused, typed = msgrpo(*play, folder=tmp_path), msgrpo(*play, *own, folder=tmp_path)
    assert (refused.code, "would import code" in refused.err) == (2, True)
    assert typed.code == 0, typed.err
