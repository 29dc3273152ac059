"""Families of models from a folder: act, score, train, save, load by plain PEFT, evaluate and compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.evaluation.suites import task_hash
from msgrpo_hub.games import make_game, stream
from tests.command import Command
from tests.families import tiny_config
from tests.tiny import tokenizer_of

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


def saved(family: str, folder: Path) -> Path:
    """A random model of a family with a tokenizer of its own."""
    game = make_game(GAME)
    prompts = [build_prompt(game, game.initial_state(stream(seed, "initial_state"))) for seed in range(20)]
    tokenizer = tokenizer_of(prompts, 200)
    tokenizer.add_tokens([f"<action>{' ' * blanks}{action}</action>" for action in game.actions for blanks in range(20)])
    torch.manual_seed(0)
    names = {"vocab_size", "vocab_size_per_layer_input"} & set(tiny_config(family).to_dict())
    config = tiny_config(family, initializer_range=0.02, **dict.fromkeys(names, len(tokenizer)))
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", KINDS.values(), ids=KINDS)
def test_a_family_passes_the_whole_chain(family: str, msgrpo: Command, tmp_path: Path) -> None:
    base, run = saved(family, tmp_path / "base"), tmp_path / "run"
    flags = "--updates 2 --groups 2 --group-size 6 --selected-per-group 3 --max-new-tokens 3 --lora-rank 2 --learning-rate 1e-2 "
    flags += "--eval-every 0 --test-episodes 0"
    trained = msgrpo("train", "--game", GAME, "--model", base, *flags.split(), "--output-dir", run)
    assert trained.code == 0, trained.err
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [0 < update["gradient_norm"] < 1e6 for update in metrics] == [True, True]

    plain = AutoModelForCausalLM.from_pretrained(base).eval()
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        before = plain(ids, use_cache=False).logits
        after = PeftModel.from_pretrained(plain, str(run / "adapter")).eval()(ids, use_cache=False).logits
    assert (after - before).abs().max() > 1e-5

    suite = f'episodes = 2\nsplit = "validation"\n[tasks]\n"{GAME}" = "{task_hash(make_game(GAME))}"\n'
    (tmp_path / "tiny.toml").write_text(suite, encoding="utf-8")
    common = ["--suite", "tiny.toml", "--max-new-tokens", "8", "--output-dir"]
    for options in (["base", "run/adapter", *common, "results"], ["base", "--mode", "score", *common, "scored"]):
        played = msgrpo("eval", *options, folder=tmp_path)
        assert played.code == 0, played.err
    players = sorted(
        {path.relative_to(tmp_path / "results").parts[0] for path in (tmp_path / "results").rglob("config.lock.json")}
    )
    compared = msgrpo("compare", *[f"results/{player}" for player in players], folder=tmp_path)
    assert compared.code == 0, compared.err
