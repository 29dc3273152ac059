"""Side (c), the limit of the machine: the operations and bytes that an update requires, over measured rates.

The count does not depend on the implementation. Every distinct context (the rules, a state, a reply so far) passes the model
once in sampling. Every distinct context of the selected episodes passes it three times in training: forward, backward to the
activations, and the reference. Each sequential decoding step reads the weights once. Adapters, norms and rotary embeddings are
left out, so that the result is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmark.throughput.cases import Case, MeasuredTrainer, make_trainer
from benchmark.throughput.rows import clock
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.token_tree import build_tree


def best_seconds(work: Callable[[], object], repeats: int = 20) -> float:
    """The shortest of some runs after a warm-up: other processes only make runs longer."""
    spent = []
    for _ in range(repeats + 1):
        began = clock()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        spent.append(clock() - began)
    return min(spent[1:])


def ceilings(device: str = "cpu", dtype: torch.dtype = torch.float32, size: int = 1024, megabytes: int = 256) -> dict[str, float]:
    """The machine's matrix rate (operations/s) and memory bandwidth (bytes/s, reads and writes together)."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    source = torch.ones(megabytes * 2**20 // 4, device=device)
    target = torch.empty_like(source)
    return {
        "operations_per_second": 2 * size**3 / best_seconds(lambda: a @ b),
        "bytes_per_second": 2 * source.nbytes / best_seconds(lambda: target.copy_(source)),
    }


def contexts(rows: Iterable[tuple[TokenIds, TokenIds]]) -> tuple[int, float, int]:
    """Counts over (prompt, reply) pairs: distinct contexts, the sum of their lengths, and how many predict a token."""
    distinct = list(dict.fromkeys(rows))
    tree = build_tree([prompt + reply[:-1] for prompt, reply in distinct])
    paths = zip(tree.paths, distinct, strict=True)
    predicting = {node for path, (prompt, _) in paths for node in path[len(prompt) - 1 :].tolist()}
    return len(tree), float((tree.depths + 1).sum()), len(predicting)


def forward_operations(model: Any, counted: tuple[int, float, int]) -> float:
    """Operations of a forward pass over contexts: linear layers, causal attention, and the output layer where it predicts."""
    tokens, lengths, predicting = counted
    config = model.config
    layers = [m for name, m in model.named_modules() if name.endswith("proj") and hasattr(m, "in_features")]
    linear = sum(layer.in_features * layer.out_features for layer in layers)
    width = config.num_attention_heads * getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    attention = 4.0 * config.num_hidden_layers * width * lengths
    return float(2.0 * linear * tokens + attention + 2.0 * config.vocab_size * config.hidden_size * predicting)


def needed(trainer: MeasuredTrainer) -> dict[str, float]:
    """Operations and bytes that the last update of a trainer required.

    A turn has as many sequential decoding steps as its longest reply has tokens. Each reads every weight of the base; a tied
    embedding counts once, as the output layer.
    """
    episodes = [episode for group in trainer.played for episode in group.episodes]
    longest = max(len(episode.steps) for episode in episodes)
    turns = [[e.steps[turn].completion for e in episodes if turn < len(e.steps)] for turn in range(longest)]
    acting = forward_operations(trainer.model, contexts((c.prompt_ids, c.token_ids) for turn in turns for c in turn))
    rows = list(learnt(trainer))
    passes = 3 if trainer.config.beta else 2
    read = sum(p.nbytes for name, p in trainer.model.named_parameters() if "lora" not in name)
    return {
        "operations_acting": acting,
        "operations_training": passes * forward_operations(trainer.model, contexts(rows)) if rows else 0.0,
        "bytes_acting": float(read * sum(max(len(c.token_ids) for c in turn) for turn in turns)),
        "bytes_training": float(read * passes if rows else 0),
    }


def learnt(trainer: MeasuredTrainer) -> Iterable[tuple[TokenIds, TokenIds]]:
    """The rows of the last update as (context, reply), as far as the trees distinguish them."""
    for item in trainer.selected:
        yield from ((step.completion.prompt_ids, step.completion.token_ids) for step in item.episode.steps)
    for packed in trainer.packs:
        predicting = set(packed.slots.tolist())
        length = max(map(len, packed.trees))
        for number, tree in enumerate(packed.trees):
            for path in tree.paths:
                slots = number * length + path
                first = next((k for k, slot in enumerate(slots.tolist()) if slot in predicting), len(path))
                tokens = packed.prefix + tuple(tree.token_ids[path].tolist())
                cut = len(packed.prefix) + first + 1
                yield tokens[:cut], tokens[cut:]


def limits(case: Case, models: Path, rates: dict[str, float]) -> dict[str, Any]:
    """Bounds on the seconds of a case's first update, the timed one, and the operations that our side performs in it.

    A bound is the larger of operations and bytes over their rates.
    """
    trainer = make_trainer(case, models)
    with FlopCounterMode(display=False) as counter:
        trainer.update(1)
    work = needed(trainer)
    bounds = {
        f"bound_seconds_{stage}": max(work[f"{what}_{stage}"] / rates[f"{what}_per_second"] for what in ("operations", "bytes"))
        for stage in ("acting", "training")
    }
    return {**bounds, **work, "operations_done": float(counter.get_total_flops())}
