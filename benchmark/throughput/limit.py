"""Side (c), the limit of the machine: the operations and bytes that an update requires, over measured rates.

The count is independent of the implementation. Every distinct context (the rules, a state, a reply so far) passes the
model once while acting. Every distinct context of the selected episodes passes it three times while training: forward,
backward to the activations, and the reference. Each sequential decoding step reads the weights once. Adapters, norms and
rotary embeddings are left out, so that the result is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmark.throughput.cases import Case, MeasuredTrainer, make_trainer
from benchmark.throughput.machine import clock
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
    """Counts over (prompt, reply) pairs: distinct contexts, the sum of their lengths, and those that predict a token."""
    distinct = list(dict.fromkeys(rows))
    tree = build_tree([prompt + reply[:-1] for prompt, reply in distinct])
    paths = zip(tree.paths, distinct, strict=True)
    predicting = {node for path, (prompt, _) in paths for node in path[len(prompt) - 1 :].tolist()}
    return len(tree), float((tree.depths + 1).sum()), len(predicting)


def forward_operations(model: Any, counted: tuple[int, float, int]) -> float:
    """Operations of one forward pass over contexts: linear layers, causal attention, and the output layer if it predicts."""
    tokens, lengths, predicting = counted
    config = model.config
    layers = [m for name, m in model.named_modules() if name.endswith("proj") and hasattr(m, "in_features")]
    linear = sum(layer.in_features * layer.out_features for layer in layers)
    width = config.num_attention_heads * getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    attention = 4.0 * config.num_hidden_layers * width * lengths
    return float(2.0 * linear * tokens + attention + 2.0 * config.vocab_size * config.hidden_size * predicting)


def decoding_steps(trainer: MeasuredTrainer) -> int:
    """Number of sequential forward calls: per turn, the number of tokens of the longest reply."""
    episodes = [episode for group in trainer.played for episode in group.episodes]
    turns = max(len(episode.steps) for episode in episodes)
    return sum(max(len(e.steps[t].completion.token_ids) for e in episodes if t < len(e.steps)) for t in range(turns))


def weight_bytes(model: Any) -> int:
    """Bytes that a decoding step reads: every weight of the base; the tied embedding counts once, as the output layer."""
    return sum(p.nbytes for name, p in model.named_parameters() if "lora" not in name)


def needed(trainer: MeasuredTrainer) -> dict[str, float]:
    """Operations and bytes that the last update of a trainer required."""
    steps = [step.completion for group in trainer.played for episode in group.episodes for step in episode.steps]
    acting = forward_operations(trainer.model, contexts((c.prompt_ids, c.token_ids) for c in steps))
    rows = list(learnt(trainer))
    passes = 3 if trainer.config.beta else 2
    training = passes * forward_operations(trainer.model, contexts(rows)) if rows else 0.0
    read = weight_bytes(trainer.model)
    return {
        "operations_acting": acting,
        "operations_training": training,
        "bytes_acting": float(read * decoding_steps(trainer)),
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
                slots = len(packed.prefix) + number * length + path
                first = next((k for k, slot in enumerate(slots.tolist()) if slot in predicting), len(path))
                tokens = packed.prefix + tuple(tree.token_ids[path].tolist())
                cut = len(packed.prefix) + first + 1
                yield tokens[:cut], tokens[cut:]


def bound(work: dict[str, float], rates: dict[str, float]) -> dict[str, float]:
    """Lower bound on the seconds per stage: the larger of operations and bytes over their rates."""
    return {
        stage: max(
            work[f"operations_{stage}"] / rates["operations_per_second"], work[f"bytes_{stage}"] / rates["bytes_per_second"]
        )
        for stage in ("acting", "training")
    }


def limits(case: Case, models: Path, rates: dict[str, float]) -> dict[str, Any]:
    """The bound on the first update of a case, the one that is timed, and the operations that our side performs in it."""
    trainer = make_trainer(case, models)
    with FlopCounterMode(display=False) as counter:
        trainer.update(1)
    work = needed(trainer)
    return {
        **{f"bound_seconds_{stage}": seconds for stage, seconds in bound(work, rates).items()},
        **work,
        "operations_done": float(counter.get_total_flops()),
    }
