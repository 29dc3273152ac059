"""Families of models from a folder: sample, score, train, save, load by plain PEFT, evaluate and compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.evaluation.suites import hash_of
from msgrpo_hub.games import make_game, stream
from tests.families import tiny_config
from tests.tiny import tokenizer_of
from tests.training.runs import metrics

if TYPE_CHECKING:
    from tests.command import Command

pytestmark = pytest.mark.slow

KINDS = {
    "softmax attention": "llama",
    "windows": "gemma3_text",
    "windows and sinks": "gpt_oss",
    "convolution": "lfm2",
    "linear attention": "qwen3_5_text",
    "state space": "mamba2",
    "state space and attention": "granitemoehybrid",
    "state space beside attention": "falcon_h1",
    "latent attention and experts": "deepseek_v3",
    "per-layer inputs": "gemma4_text",
}
GAME = "FrozenLake-NotSlippery-v1"


def save(family: str, folder: Path) -> None:
    """Saves a random model of a family and a tokenizer that has a token for every action."""
    game = make_game(GAME)
    prompts = [build_prompt(game, game.initial_state(stream(seed, "initial_state"))) for seed in range(20)]
    tokenizer = tokenizer_of(prompts, 200)
    tokenizer.add_tokens([f"<action>{' ' * blanks}{action}</action>" for action in game.actions for blanks in range(20)])
    torch.manual_seed(0)
    names = {"vocab_size", "vocab_size_per_layer_input"} & set(tiny_config(family).to_dict())
    model = AutoModelForCausalLM.from_config(tiny_config(family, initializer_range=0.02, **dict.fromkeys(names, len(tokenizer))))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize("family", KINDS.values(), ids=KINDS)
def test_a_family_passes_the_whole_chain(family: str, msgrpo: Command, tmp_path: Path) -> None:
    save(family, tmp_path / "base")
    suite = f'episodes = 2\nsplit = "validation"\n[tasks]\n"{GAME}" = "{hash_of(GAME)}"\n'
    (tmp_path / "tiny.toml").write_text(suite, encoding="utf-8")
    small = "--updates 2 --groups 2 --group-size 6 --selected-per-group 3 --max-new-tokens 3 --lora-rank 2 --learning-rate 1e-2"
    for command in (
        f"train --game {GAME} --model base {small} --eval-every 0 --test-episodes 0 --output-dir run",
        "eval base run/adapter --suite tiny.toml --max-new-tokens 8 --output-dir results",
        "eval base --mode score --suite tiny.toml --max-new-tokens 8 --output-dir scored",
    ):
        done = msgrpo(*command.split(), folder=tmp_path)
        assert done.code == 0, done.err
    assert [0 < update["gradient_norm"] < 1e6 for update in metrics(tmp_path / "run")] == [True, True]

    plain, ids = AutoModelForCausalLM.from_pretrained(tmp_path / "base").eval(), torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        before = plain(ids, use_cache=False).logits
        after = PeftModel.from_pretrained(plain, str(tmp_path / "run" / "adapter")).eval()(ids, use_cache=False).logits
    assert (after - before).abs().max() > 1e-5

    results = tmp_path / "results"
    players = sorted({path.relative_to(results).parts[0] for path in results.rglob("config.lock.json")})
    assert len(players) == 2
    compared = msgrpo("compare", *[f"results/{player}" for player in players], folder=tmp_path)
    assert compared.code == 0, compared.err
