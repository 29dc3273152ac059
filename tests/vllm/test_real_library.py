"""vLLM as a library, side (d) of the benchmark of updates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from benchmark.throughput.cases import Case, make_trainer
from benchmark.throughput.naive import NaiveTrainer
from benchmark.throughput.with_vllm import VllmTrainer

CASE = Case(game="Snake-Solo-v1", groups=20, group_size=2, drawn=1, horizon=1)


def test_it_replies_with_the_adapter_of_each_update_as_generate_does_but_where_two_tokens_are_as_likely(tmp_path: Path) -> None:
    sides = [make_trainer(CASE, tmp_path, kind) for kind in (NaiveTrainer, VllmTrainer)]
    texts: list[list[str]] = []
    with sides[1].ready():
        for seed in range(3):
            for side, temperature in zip(sides, (1e-4, 0.0), strict=True):  # vLLM raises temperatures below 0.01, except 0
                side.agent.temperature = temperature
                generator = torch.Generator().manual_seed(seed)
                for name, parameter in side.parameters.items():
                    if "lora_B" in name:
                        parameter.data.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
                played = side.act(side.starts.of_update(1))
                texts.append([step.completion.text for group in played for episode in group.episodes for step in episode.steps])
    alike = [[same(ours, theirs) for theirs in texts[1::2]] for ours in texts[0::2]]
    assert min(alike[seed][seed] for seed in range(3)) >= 0.99, alike
    assert max(alike[ours][theirs] for ours in range(3) for theirs in range(3) if ours != theirs) < 0.7, alike


def same(some: Sequence[str], others: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(some, others, strict=True)) / len(some)
