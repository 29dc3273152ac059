"""Checks that the sides do the same work: equal loss and gradient on the same episodes, equal distribution of replies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmark.throughput.cases import Case, MeasuredTrainer, make_trainer
from benchmark.throughput.naive import GeneratePolicy, NaiveTrainer
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.games import stream
from msgrpo_hub.msgrpo import SelectedEpisode, token_mean
from msgrpo_hub.training.batch import pack, to_samples


def loss_and_gradient_difference(case: Case, models: Path, **changes: Any) -> dict[str, float]:
    """Ours against the padded batch on the same selected episodes: differences relative to the loss and the largest gradient."""
    trainer = make_trainer(case, models, NaiveTrainer, **changes)
    assert isinstance(trainer, NaiveTrainer)
    stir(trainer)
    selected = first_selected(trainer)
    padded, theirs = trainer.backward_padded(selected), gradients(trainer)
    trainer.optimizer.zero_grad()
    terms = MeasuredTrainer.gradient(trainer, pack(to_samples(selected, token_mean), trainer.config.token_budget))
    loss, kl = terms["loss"], terms["kl"]
    ours = gradients(trainer)
    scale = max(gradient.abs().max().item() for gradient in ours.values())
    return {
        "loss": abs(padded - loss) / max(abs(loss), 1e-3),
        "gradient": max((ours[name] - theirs[name]).abs().max().item() for name in ours) / scale,
        "largest_gradient": scale,
        "kl": kl,
    }


def first_selected(trainer: MeasuredTrainer) -> Sequence[SelectedEpisode]:
    """The selected episodes of the first update that has any; the engine plays them."""
    for index in range(1, 20):
        groups = MeasuredTrainer.play(trainer, trainer.starts.of_update(index))
        if selected := trainer.select(groups, index).selected:
            return selected
    raise RuntimeError("no group had two different returns in 20 updates")


def stir(trainer: MeasuredTrainer) -> None:
    """Fills LoRA's second matrices: zeros would make half of the gradient and the KL vanish."""
    torch.manual_seed(0)
    for name, parameter in trainer.parameters.items():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)


def gradients(trainer: MeasuredTrainer) -> dict[str, Tensor]:
    """A copy of the gradient of each parameter that has one."""
    return {name: parameter.grad.clone() for name, parameter in trainer.parameters.items() if parameter.grad is not None}


def log_prob_difference(case: Case, models: Path, prompts: int = 4, **changes: Any) -> float:
    """The largest difference in a token's log-probability between `model.generate` and the engine, in nats."""
    trainer = make_trainer(case, models, **changes)
    agent = getattr(trainer.agent, "policy", trainer.agent)
    asked = [build_prompt(trainer.game, trainer.game.initial_state(stream(seed, "initial_state"))) for seed in range(prompts)]
    policy = GeneratePolicy(agent)
    inputs = policy.padded(asked)
    torch.manual_seed(0)
    output = policy.generate(inputs, return_dict_in_generate=True, output_logits=True)
    log_p = torch.log_softmax(torch.stack(output.logits, 1).float(), -1)
    replies = [tuple(policy.cut(reply)) for reply in output.sequences[:, inputs["input_ids"].shape[1] :].tolist()]
    scores = agent.engine.score(agent.encode(asked), [[reply] for reply in replies])
    differences = [
        abs(score - log_p[row, k, token].item())
        for row, (reply, (ours,)) in enumerate(zip(replies, scores, strict=True))
        for k, (token, score) in enumerate(zip(reply, ours, strict=True))
    ]
    return float(max(differences))
