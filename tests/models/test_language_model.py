"""Loading and prompting: templates, adapters and revisions, end tokens, limits, and code that must not run."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.downloads.names import split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel

MakeFolder = Callable[..., Path]

GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}<start_of_turn>{{ message['role'] }}\n{{ message['content'] | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
SILENT = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "[INST] {{ message['content'] }} [/INST]{% endif %}{% endfor %}"
)
ALTERNATING = (
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "[INST] {{ message['content'] }} [/INST]{% endfor %}"
)

pytestmark = pytest.mark.lowest


def load(folder: Path, **options: Any) -> LanguageModel:
    return LanguageModel.from_pretrained(str(folder), **options)


def rngs(count: int) -> list[np.random.Generator]:
    return [np.random.default_rng(i) for i in range(count)]


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def folder(qwen2_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny Qwen2, to be changed."""
    return Path(shutil.copytree(qwen2_folder, tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# ---- chat templates


@pytest.mark.parametrize("template", [GEMMA, SILENT, ALTERNATING], ids=["raises", "drops", "alternates"])
def test_a_template_without_a_system_role_still_shows_the_rules_once(folder: Path, prompts: list[Prompt], template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    agent = load(folder, max_new_tokens=2)
    for prompt in prompts:
        text = agent.render(prompt)
        for part in (prompt.user, *prompt.game.rules, prompt.game.instructions, ", ".join(prompt.game.actions)):
            assert text.count(part) == 1
        assert text.index(prompt.game.rules[-1]) < text.index(prompt.user)
    replies = agent.complete(prompts, rngs(len(prompts)))
    assert [agent.tokenizer.decode(reply.prompt_ids) for reply in replies] == [agent.render(prompt) for prompt in prompts]


def test_a_template_with_a_system_role_keeps_the_two_messages_apart(qwen2_folder: Path, prompts: list[Prompt]) -> None:
    expected = f"<|system|>{prompts[0].system}<|end|><|user|>{prompts[0].user}<|end|><|assistant|>"
    assert load(qwen2_folder).render(prompts[0]) == expected


def test_prompts_are_encoded_as_the_template_renders_them_with_nothing_added(
    qwen2_folder: Path, prompts: list[Prompt], tokenizer: PreTrainedTokenizerFast
) -> None:
    agent = load(qwen2_folder)
    bos = TemplateProcessing(single="<|pad|> $A", special_tokens=[("<|pad|>", tokenizer.pad_token_id)])
    agent.tokenizer.backend_tokenizer.post_processor = bos  # as Llama's: a template brings its own
    assert agent.tokenizer("Up")["input_ids"][0] == tokenizer.pad_token_id
    expected = [tuple(tokenizer.apply_chat_template(p.messages, add_generation_prompt=True)["input_ids"]) for p in prompts]
    assert agent.encode(prompts) == expected
    assert agent.encode(prompts[::-1]) == expected[::-1]


def test_a_model_without_a_template_names_the_option_that_supplies_one(folder: Path, tmp_path: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="--chat-template") as error:
        load(folder)
    assert str(folder) in one_line(error)
    (tmp_path / "mine.jinja").write_text(SILENT)
    agent = load(folder, chat_template=str(tmp_path / "mine.jinja"))
    assert agent.tokenizer.chat_template == SILENT


def test_a_missing_template_file_is_named(qwen2_folder: Path) -> None:
    with pytest.raises(UserError, match="no-such-file") as error:
        load(qwen2_folder, chat_template="no-such-file.jinja")
    one_line(error)


def test_a_template_that_is_not_jinja_is_refused(qwen2_folder: Path, tmp_path: Path, prompts: list[Prompt]) -> None:
    (tmp_path / "broken.jinja").write_text("{% for message in %}")
    with pytest.raises(UserError, match="template") as error:
        load(qwen2_folder, chat_template=str(tmp_path / "broken.jinja")).complete(prompts[:1], rngs(1))
    one_line(error)


# ---- replies


def test_the_end_tokens_are_those_of_tokenizer_and_generation_config(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    edit(folder / "generation_config.json", eos_token_id=[3, 5])
    assert load(folder).engine.end_ids == {3, 5, tokenizer.eos_token_id}
    edit(folder / "generation_config.json", eos_token_id=7)
    assert load(folder).engine.end_ids == {7, tokenizer.eos_token_id}


def test_a_reply_ends_at_any_end_token_and_its_text_hides_special_ones(folder: Path, prompts: list[Prompt]) -> None:
    ends = list(range(250, 290))
    edit(folder / "generation_config.json", eos_token_id=ends)
    agent = load(folder, max_new_tokens=8)
    replies = agent.complete(prompts * 10, rngs(10 * len(prompts)))
    assert {reply.finish for reply in replies} == {"stop", "length"}
    assert {reply.token_ids[-1] for reply in replies} & set(agent.tokenizer.all_special_ids)
    for reply in replies:
        assert [token in ends for token in reply.token_ids] == [False] * (len(reply.token_ids) - 1) + [reply.finish == "stop"]
        assert len(reply.token_ids) == len(reply.log_probs) == len(reply.entropies)
        assert reply.text == agent.tokenizer.decode(reply.token_ids, skip_special_tokens=True)


def test_a_prompt_that_does_not_fit_is_refused_every_time(make_folder: MakeFolder, prompts: list[Prompt]) -> None:
    agent = load(make_folder("qwen2", max_position_embeddings=150), max_new_tokens=8)
    for _ in range(2):
        with pytest.raises(UserError, match="150 positions") as error:
            agent.complete(prompts[:1], rngs(1))
        assert "--max-new-tokens" in one_line(error)


def test_a_prompt_that_just_fits_is_answered(make_folder: MakeFolder, prompts: list[Prompt]) -> None:
    length = max(map(len, load(make_folder("qwen2")).encode(prompts)))
    folder = make_folder("qwen2", max_position_embeddings=length + 3)
    assert len(load(folder, max_new_tokens=3).complete(prompts, rngs(len(prompts)))) == len(prompts)
    with pytest.raises(UserError, match=f"{length} tokens"):
        load(folder, max_new_tokens=4).complete(prompts, rngs(len(prompts)))


ACTIONS = ("Left", "Down", "Right", "Up")
thoughts = st.text().map(lambda text: text.replace("</think>", ""))


@given(thought=thoughts, action=st.sampled_from(ACTIONS), decoy=st.sampled_from(ACTIONS))
@settings(deadline=None)
def test_a_reply_that_thinks_is_read_after_the_thinking(thought: str, action: str, decoy: str) -> None:
    thinking = f"{thought}<action>{decoy}</action>"
    for opening in ("<think>", ""):  # some templates put the opening tag at the end of the prompt
        assert parse_action(f"{opening}{thinking}</think>\n\n<action>{action}</action>", ACTIONS) == action
        assert parse_action(f"{opening}{thinking}</think> I am done.", ACTIONS) is None
    assert parse_action(f"<think>{thinking}", ACTIONS) is None


# ---- adapters


def save_adapter(base: Path, folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A LoRA adapter with random weights in all its matrices, as `peft` saves it."""
    torch.manual_seed(seed)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    edit(folder / "adapter_config.json", **changes)
    return folder


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(torch.tensor([[5, 6, 7]])).logits
    return output


def test_an_adapter_alone_and_an_adapter_on_its_base_are_the_same_model(qwen2_folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    alone, together = load(adapter), load(qwen2_folder, adapter=str(adapter))
    assert isinstance(alone.model, PeftModel)
    assert torch.equal(logits(alone.model), logits(together.model))
    assert not torch.allclose(logits(alone.model), logits(load(qwen2_folder).model))
    with alone.model.disable_adapter():
        assert torch.equal(logits(alone.model), logits(load(qwen2_folder).model))
    assert not alone.model.training


def test_the_adapter_acts_and_not_its_base_alone(qwen2_folder: Path, tmp_path: Path, prompts: list[Prompt]) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    agent = load(adapter, max_new_tokens=1, temperature=0.0)
    (reply,) = agent.complete(prompts[:1], rngs(1))
    with torch.no_grad():
        expected = agent.model(torch.tensor([reply.prompt_ids])).logits[0, -1].log_softmax(-1)
    assert reply.log_probs == (pytest.approx(expected.max().item(), abs=1e-5),)


@pytest.mark.parametrize("other", [{"hidden_size": 64}, {"num_hidden_layers": 1}, {"model_type": "phi3"}], ids=str)
def test_an_adapter_that_does_not_fit_its_base_is_refused(
    make_folder: MakeFolder, qwen2_folder: Path, tmp_path: Path, other: dict[str, Any]
) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    base = make_folder(**{"model_type": "qwen2", **other})
    with pytest.raises(UserError, match="does not fit") as error:
        load(base, adapter=str(adapter))
    assert str(adapter) in one_line(error)


def test_an_adapter_on_an_adapter_is_refused(qwen2_folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter")
    with pytest.raises(UserError, match="is a LoRA adapter, not a base"):
        load(adapter, adapter=str(adapter))


def test_an_adapter_that_names_no_base_is_refused(qwen2_folder: Path, tmp_path: Path) -> None:
    adapter = save_adapter(qwen2_folder, tmp_path / "adapter", base_model_name_or_path=None)
    with pytest.raises(UserError, match="does not name its base"):
        load(adapter)
    assert isinstance(load(qwen2_folder, adapter=str(adapter)).model, PeftModel)


# ---- what cannot be loaded


@pytest.mark.parametrize("kind", ["missing", "empty", "no weights", "no tokenizer", "no model type", "broken config"])
def test_a_folder_that_holds_no_model_is_a_users_error(folder: Path, kind: str) -> None:
    if kind in ("missing", "empty"):
        shutil.rmtree(folder)
    if kind == "empty":
        folder.mkdir()
    if kind == "no weights":
        (folder / "model.safetensors").unlink()
    if kind == "no tokenizer":
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).unlink()
    if kind == "no model type":
        (folder / "config.json").write_text("{}")
    if kind == "broken config":
        (folder / "config.json").write_text("{")
    with pytest.raises(UserError) as error:
        load(folder)
    assert str(folder) in one_line(error)


def test_a_missing_adapter_is_a_users_error(qwen2_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load(qwen2_folder, adapter=str(tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere") in one_line(error)


CODE = """
from pathlib import Path
from transformers import Qwen2Config, Qwen2ForCausalLM
Path({marker!r}).touch()
class MyConfig(Qwen2Config):
    model_type = {model_type!r}
class MyModel(Qwen2ForCausalLM):
    config_class = MyConfig
"""


@pytest.mark.parametrize("model_type", ["qwen2", "unheard_of"])
def test_code_that_comes_with_a_model_is_never_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    """Not even where somebody would say yes: the library asks at the terminal unless it is told that the answer is no."""
    marker = tmp_path / "it ran"
    (folder / "mine.py").write_text(CODE.format(marker=str(marker), model_type=model_type))
    classes = {"AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel"}
    edit(folder / "config.json", model_type=model_type, auto_map=classes)
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "mine.MyTokenizer"]})
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    if model_type == "qwen2":  # the library's own code serves
        assert type(load(folder).model).__module__.startswith("transformers.")
    else:
        with pytest.raises(UserError) as error:
            load(folder)
        assert str(folder) in one_line(error)
    assert not marker.exists()


# ---- revisions


@given(
    name=st.from_regex(r"[a-z]{1,8}(/[a-z.]{1,8})?", fullmatch=True), revision=st.from_regex(r"[a-z0-9./]{1,9}", fullmatch=True)
)
def test_a_revision_after_the_name_is_the_same_as_one_given_apart(name: str, revision: str) -> None:
    assert split_revision(f"{name}@{revision}", None) == split_revision(name, revision) == (name, revision)


def test_a_path_with_an_at_sign_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "me@home").mkdir()
    assert split_revision(str(tmp_path / "me@home"), None) == (str(tmp_path / "me@home"), None)


def put_in_cache(cache: Path, repo: str, commits: dict[str, Path]) -> None:
    """Lays a repository out as `huggingface_hub` caches it: revision name → the folder it stands for."""
    root = cache / "hub" / f"models--{repo.replace('/', '--')}"
    for number, (revision, folder) in enumerate(commits.items()):
        commit = f"{number:040x}"
        shutil.copytree(folder, root / "snapshots" / commit)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / revision).write_text(commit)


def test_revisions_of_base_and_adapter_are_kept_without_a_network(make_folder: MakeFolder, tmp_path: Path) -> None:
    """A model's sum of weights tells which one was loaded. A process of its own: the cache is found through the environment."""
    bases = {"main": make_folder("qwen2", seed=1), "v1": make_folder("qwen2", seed=2)}
    named = {"base_model_name_or_path": "org/base"}
    adapters = {
        "main": save_adapter(bases["main"], tmp_path / "a", seed=3, **named, revision="v1"),
        "old": save_adapter(bases["main"], tmp_path / "b", seed=4, **named, revision=None),
    }
    put_in_cache(tmp_path / "home", "org/base", bases)
    put_in_cache(tmp_path / "home", "org/adapter", adapters)
    asked = [
        *(["org/base", None], ["org/base@v1", None], ["org/adapter", None], ["org/adapter@old", None]),
        *(["org/base", "org/adapter"], ["org/base@v1", "org/adapter@old"], [str(tmp_path / "a"), None]),
    ]
    code = f"""
import json
from msgrpo_hub.agent import LanguageModel
def total(part, model):
    return sum(p.double().abs().sum().item() for n, p in model.named_parameters() if ("lora" in n) == (part == "adapter"))
models = [LanguageModel.from_pretrained(name, adapter).model for name, adapter in {asked!r}]
sums = [[total(part, model) for part in ("base", "adapter")] for model in models]
try:
    LanguageModel.from_pretrained("org/base@v9")
except ValueError as error:
    sums.append(str(error))
print(json.dumps(sums))
"""
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *found, refusal = json.loads(done.stdout)

    def weights(folder: Path) -> float:
        (file,) = folder.glob("*.safetensors")
        return sum(tensor.double().abs().sum().item() for tensor in load_file(file).values())

    main, v1, now, old = (weights(folder) for folder in (*bases.values(), *adapters.values()))
    expected = [(main, 0), (v1, 0), (v1, now), (main, old), (main, now), (v1, old), (v1, now)]
    assert [pytest.approx(pair) for pair in expected] == [tuple(pair) for pair in found]
    assert "org/base" in refusal
    assert "v9" in refusal
