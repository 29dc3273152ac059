"""Trains the built-in base `pocket` from scratch: `python -m benchmark.pocket.build OUTPUT_DIR`.

The same seed gives the same weights on the same machine. One training document is a token tree: one set of rules, several
states, and for each state several requests with their replies. Requests share their prefix and do not attend to each other.
Only the reply tokens enter the loss.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from benchmark.pocket.card import measure, render
from benchmark.pocket.tasks import PretrainingTask, pretraining_tasks, random_state, random_variant
from benchmark.pocket.tokenizer import build_tokenizer
from msgrpo_hub.agent.prompt_formats import USER_TEXT
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.token_tree import TokenTree, build_tree, tree_inputs


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """Settings of the build."""

    output_dir: Path
    """The folder for model, tokenizer and card."""
    steps: int = 6000
    """Optimiser steps."""
    lakes: float = 0.3
    """Share of the tasks on lakes; the rest is on Snake."""
    trees: int = 8
    """Documents per step."""
    states: int = 3
    """States per document."""
    learning_rate: float = 2e-3
    """Peak learning rate of AdamW, for embeddings and norms; decays linearly to a fiftieth."""
    muon_learning_rate: float = 3e-3
    """Peak learning rate of Muon, for the matrices, scaled to AdamW's updates. Muon needs about two thirds of the steps."""
    width: int = 128
    """Hidden size."""
    layers: int = 4
    """Number of layers."""
    vocabulary: int = 1024
    """Number of tokens."""
    precision: str = "bfloat16"
    """Type of the matrix products. On a processor without bfloat16, float32 is faster, and trains all parameters with AdamW: Muon
    multiplies in bfloat16."""
    threads: int = 2
    """CPU threads; the weights depend on their number in the last bits."""
    seed: int = 0
    """Seed of the tasks and of the initial weights."""


def make_tokenizer(config: BuildConfig) -> PreTrainedTokenizerFast:
    """A tokenizer built from a sample of the tasks."""

    def texts(rng: np.random.Generator) -> Iterator[str]:
        for _ in range(2000):
            variant = random_variant(rng)
            yield variant.system
            for _ in range(config.states):
                state = random_state(variant.game, rng)
                for task in pretraining_tasks(variant, state, rng):
                    yield USER_TEXT.format(variant.game.observe(state), task.request)
                    yield from task.replies

    return build_tokenizer(texts(np.random.default_rng((config.seed, 1))), config.vocabulary)


def make_model(config: BuildConfig, tokenizer: PreTrainedTokenizerBase) -> Qwen2ForCausalLM:
    """A small Qwen2, initialised at a scale for small widths (the usual 0.02 hardly learns here)."""
    torch.manual_seed(config.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=config.width,
            intermediate_size=2 * config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )
    for name, weight in model.named_parameters():
        if "embed_tokens" in name:
            nn.init.normal_(weight, std=0.1)
        elif name.endswith("proj.weight"):
            output = "o_proj" in name or "down_proj" in name
            nn.init.normal_(weight, std=(0.2 if output else 1.0) / weight.shape[1] ** 0.5)
    return model


def encoded(
    tokenizer: PreTrainedTokenizerFast, system: str, observation: str, tasks: Sequence[PretrainingTask]
) -> list[tuple[list[int], list[list[int]]]]:
    """Token ids of the prompt and the replies of each task, equal to the chat template's."""
    users = [f"<|user|>{USER_TEXT.format(observation, task.request)}<|end|><|assistant|>" for task in tasks]
    head, *tails = tokenizer([f"<|system|>{system}<|end|>", *users])["input_ids"]
    replies = [tokenizer([f"{reply}<|end|>" for reply in task.replies])["input_ids"] for task in tasks]
    return [(head + tail, of_task) for tail, of_task in zip(tails, replies, strict=True)]


@dataclass(frozen=True)
class Document:
    """A tree with its reply tokens: the predicting node, the token and its weight."""

    tree: TokenTree
    nodes: Tensor
    targets: Tensor
    weights: Tensor


class Documents(Dataset[Document]):
    """Document i depends only on the seed and i."""

    def __init__(self, config: BuildConfig, tokenizer: PreTrainedTokenizerFast) -> None:
        self.config, self.tokenizer = config, tokenizer

    def __len__(self) -> int:
        return self.config.steps * self.config.trees

    def __getitem__(self, index: int) -> Document:
        rng = np.random.default_rng((self.config.seed, 2, index))
        variant = random_variant(rng, self.config.lakes)
        rows: list[list[int]] = []
        starts: list[int] = []
        row_weights: list[float] = []
        for _ in range(self.config.states):
            state = random_state(variant.game, rng)
            tasks = pretraining_tasks(variant, state, rng)
            for prompt, replies in encoded(self.tokenizer, variant.system, variant.game.observe(state), tasks):
                for reply in replies:
                    rows.append(prompt + reply)
                    starts.append(len(prompt))
                    row_weights.append(1.0 / len(replies))
        tree = build_tree(rows)
        nodes = np.concatenate([path[start - 1 : -1] for path, start in zip(tree.paths, starts, strict=True)])
        targets = np.concatenate([row[start:] for row, start in zip(rows, starts, strict=True)])
        weights = np.repeat(row_weights, [len(row) - start for row, start in zip(rows, starts, strict=True)])
        return Document(tree, torch.from_numpy(nodes), torch.from_numpy(targets), torch.from_numpy(weights).float())


def reply_loss(model: Qwen2ForCausalLM, documents: Sequence[Document]) -> Tensor:
    """Mean cross-entropy over reply tokens, in nats."""
    inputs = tree_inputs([document.tree for document in documents])
    hidden = model.model(**inputs, use_cache=False).last_hidden_state
    replies = torch.cat([hidden[row, document.nodes] for row, document in enumerate(documents)])
    losses = nn.functional.cross_entropy(
        model.lm_head(replies).float(), torch.cat([document.targets for document in documents]), reduction="none"
    )
    weights = torch.cat([document.weights for document in documents])
    return (losses * weights).sum() / weights.sum()


def make_optimizers(config: BuildConfig, model: Qwen2ForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the other parameters; in float32 AdamW for all."""
    adamw = partial(torch.optim.AdamW, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    if config.precision == "float32":
        return [adamw(model.parameters())]
    matrices = [weight for name, weight in model.named_parameters() if name.endswith("proj.weight")]
    others = [weight for name, weight in model.named_parameters() if not name.endswith("proj.weight")]
    muon = torch.optim.Muon(matrices, lr=config.muon_learning_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    return [muon, adamw(others)]


def train(config: BuildConfig, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Trains the model in place; resumes from `building.pt` if an interrupted build left one."""
    optimizers = make_optimizers(config, model)
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    checkpoint = config.output_dir / "building.pt"
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        first = int(saved["step"])
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
    indices = range(first * config.trees, config.steps * config.trees)
    loader = DataLoader(Documents(config, tokenizer), batch_size=config.trees, sampler=indices, collate_fn=list, num_workers=1)
    recent: deque[float] = deque(maxlen=50)
    progress = tqdm(loader, desc="pretraining", unit="step", initial=first, total=config.steps, mininterval=1)
    for step, documents in enumerate(progress, start=first):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bfloat16"):
            loss = reply_loss(model, documents)
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            # Linear warm-up over 100 steps, then linear decay to a fiftieth
            optimizer.param_groups[0]["lr"] = peak * (min((step + 1) / 100, 1.0) * (1.0 - 0.98 * step / config.steps))
            optimizer.step()
        recent.append(loss.item())
        progress.set_postfix(loss=f"{np.mean(recent):.4f}", refresh=False)
        if (step + 1) % 100 == 0:
            states = [optimizer.state_dict() for optimizer in optimizers]
            torch.save({"model": model.state_dict(), "optimizers": states, "step": step + 1}, checkpoint)
    checkpoint.unlink(missing_ok=True)


def make_base(config: BuildConfig) -> None:
    """Builds tokenizer and weights if none exist."""
    torch.set_num_threads(config.threads)
    if not (config.output_dir / "model.safetensors").exists():
        tokenizer = make_tokenizer(config)
        model = make_model(config, tokenizer)
        config.output_dir.mkdir(parents=True, exist_ok=True)
        train(config, model, tokenizer)
        tokenizer.save_pretrained(config.output_dir)
        model.save_pretrained(config.output_dir)


def main() -> None:
    """Makes a base, measures it and writes its card."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.pocket.build", description=__doc__)
    parser.add_argument("output_dir", type=Path)
    for setting in fields(BuildConfig)[1:]:
        choices = ("bfloat16", "float32") if setting.name == "precision" else None
        flag = f"--{setting.name.replace('_', '-')}"
        parser.add_argument(flag, type=type(setting.default), default=setting.default, choices=choices)
    config = BuildConfig(**vars(parser.parse_args()))
    make_base(config)
    measured = measure(replace(LanguageModel.from_pretrained(str(config.output_dir)), threads=config.threads))
    (config.output_dir / "scores.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    card = render(measured, "python -m benchmark.pocket.build OUTPUT_DIR")
    (config.output_dir / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
