"""Checkpoints as people publish them act: without a padding or a bos token, with sharded weights, with tied embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from msgrpo_hub.agent.prompt import Prompt
from tests.models.loading import load, rngs
from tests.tiny import MakeFolder


def forget_padding(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder).pad_token is None


def write_missing_bos(folder: Path) -> None:
    """The template writes a bos token, as Qwen's and others' copied templates do, and the tokenizer has none."""
    assert AutoTokenizer.from_pretrained(folder).bos_token is None
    template = folder / "chat_template.jinja"
    template.write_text("{{ bos_token }}" + template.read_text())


def shard(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


KINDS = {"no padding token": forget_padding, "no bos token": write_missing_bos, "sharded weights": shard}


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_acts_as_its_plain_twin(folder: Path, qwen2_folder: Path, prompts: list[Prompt], kind: str) -> None:
    KINDS[kind](folder)
    ours, plain = (load(one, max_new_tokens=4).complete(prompts, rngs(len(prompts))) for one in (folder, qwen2_folder))
    assert [(reply.prompt_ids, reply.token_ids) for reply in ours] == [(reply.prompt_ids, reply.token_ids) for reply in plain]
    for one, other in zip(ours, plain, strict=True):  # equal up to rounding: weights of another file are aligned differently
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_a_checkpoint_with_tied_embeddings_acts(make_folder: MakeFolder, prompts: list[Prompt]) -> None:
    folder = make_folder("qwen2", tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    agent = load(folder, max_new_tokens=4)
    assert agent.model.get_output_embeddings().weight is agent.model.get_input_embeddings().weight
    replies = agent.complete(prompts, rngs(len(prompts)))
    assert all(reply.token_ids for reply in replies)
    assert replies != load(make_folder("qwen2"), max_new_tokens=4).complete(prompts, rngs(len(prompts)))
