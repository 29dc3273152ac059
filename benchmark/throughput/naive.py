"""The other side (a): MS-GRPO as a competent user would write it with transformers and peft, and checks that it does our work.

Sampling: `model.generate` over all live episodes in lockstep, prompts padded on the left, finished episodes removed.
Training: one row per step of the selected episodes, prompts padded on the left and replies on the right, logits of the
replies only, sorted by length into micro-batches, the same loss. Old log-probs need no separate pass: with one optimiser
step they equal the log-probs of the training pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor

from benchmark.throughput.cases import Case, ForcedReply, MeasuredTrainer, make_trainer
from msgrpo_hub.agent.policy import Policy, Prompt, build_prompt
from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.games import stream
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.weights import merged
from msgrpo_hub.msgrpo import LOSS_NORMALISATIONS, SelectedEpisode
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training.batch import Pack, pack, to_samples
from msgrpo_hub.training.callbacks import Update
from msgrpo_hub.training.machine import token_budget
from msgrpo_hub.training.summary import Metrics
from msgrpo_hub.training.trainer import Start

# Shapes: R rows, C longest reply.

MICRO_BATCH = 32
"""Rows per forward and backward pass: the fastest of 8, 16 and 32 with the built-in base on a CPU."""


@dataclass
class GeneratePolicy:
    """Answers prompts with `model.generate`, in one padded batch."""

    agent: LanguageModel

    def __post_init__(self) -> None:
        self.prompt_format = self.agent.prompt_format

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        inputs = self.padded(prompts)
        output = self.generate(inputs)
        starts = inputs["attention_mask"].argmax(1).tolist()
        given = [ids[start:] for ids, start in zip(inputs["input_ids"].tolist(), starts, strict=True)]
        return self.completions(given, [self.cut(row) for row in output[:, inputs["input_ids"].shape[1] :].tolist()])

    def completions(self, given: Sequence[Sequence[int]], replies: list[list[int]]) -> list[Completion]:
        """Completions from the token ids of prompts and replies."""
        agent = self.agent
        texts = agent.tokenizer.batch_decode(replies, skip_special_tokens=True)
        return [
            Completion(
                text=text,
                prompt_ids=tuple(ids),
                token_ids=tuple(reply),
                finish="stop" if len(reply) < agent.max_new_tokens else "length",
            )
            for text, ids, reply in zip(texts, given, replies, strict=True)
        ]

    def padded(self, prompts: Sequence[Prompt]) -> Any:
        """The prompts as one batch, padded on the left."""
        texts = self.agent.render(prompts)
        inputs = self.agent.tokenizer(texts, add_special_tokens=False, padding=True, padding_side="left", return_tensors="pt")
        return inputs.to(self.agent.model.device)

    @torch.no_grad()
    def generate(self, inputs: Any, **options: Any) -> Any:
        """Plain sampling: no top-k and no top-p."""
        agent = self.agent
        return cast(Any, agent.model).generate(
            **inputs,
            do_sample=True,
            temperature=agent.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=agent.max_new_tokens,
            pad_token_id=agent.tokenizer.pad_token_id,
            **options,
        )

    def cut(self, reply: list[int]) -> list[int]:
        """The reply up to the first end token, if the model has one."""
        if self.agent.model.generation_config.eos_token_id is None:
            return reply
        ends = self.agent.engine.end_ids
        return reply[: next((k + 1 for k, token in enumerate(reply) if token in ends), len(reply))]


class NaiveTrainer(MeasuredTrainer):
    """Samples with `model.generate` and trains on padded rows."""

    def play(self, starts: Sequence[Start]) -> list[Group]:
        self.model.eval()
        if isinstance(self.agent, ForcedReply):
            policy: Any = ForcedReply(self.policy_of(cast(LanguageModel, self.agent.policy)), self.agent.actions)
        else:
            policy = self.policy_of(self.agent)
        return play_groups(self.game, policy, [seed for _, seed in starts], self.config.group_size)

    def policy_of(self, agent: LanguageModel) -> Policy:
        """The sampler with the weights and settings of an agent."""
        return GeneratePolicy(agent)

    def update(self, index: int) -> Update:
        torch.manual_seed(index)
        return super().update(index)

    def packed(self, selected: Sequence[SelectedEpisode]) -> list[Pack]:
        self.selected = selected
        return []

    def gradient(self, packs: Sequence[Pack], taught: bool = False) -> Metrics:  # noqa: ARG002
        self.optimizer.zero_grad()
        return {"loss": self.backward_padded(self.selected)}

    def backward_padded(self, selected: Sequence[SelectedEpisode]) -> float:
        """Adds the gradient of the loss, a mean over all generated tokens, by micro-batches. Returns the loss."""
        rows = [
            (step.completion, advantage)
            for item in selected
            for step, advantage in zip(item.episode.steps, item.advantages, strict=True)
        ]
        rows.sort(key=lambda row: len(row[0].prompt_ids) + len(row[0].token_ids))
        total = sum(len(completion.token_ids) for completion, _ in rows)
        longest = max(len(completion.prompt_ids) + len(completion.token_ids) for completion, _ in rows)
        # On a GPU, as many rows as fit into the token budget of our side: more would not fit into memory
        size = MICRO_BATCH if self.model.device.type == "cpu" else max(1, token_budget(self.config, self.model) // longest)
        self.model.train()
        losses = 0.0
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            completions = [completion for completion, _ in part]
            advantages = torch.tensor([advantage for _, advantage in part], device=self.model.device)[:, None]
            log_probs, mask = padded_log_probs(self.model, completions, self.temperature)
            loss = (self._per_token(log_probs, advantages, completions) * mask).sum() / total
            loss.backward()
            losses += loss.item()
        self.model.eval()
        return losses

    def _per_token(self, log_probs: Tensor, advantages: Tensor, completions: Sequence[Completion]) -> Tensor:
        """(R, C) −[min(w·A, clip(w)·A) − β·KL], with the k3 estimate of the KL to the base."""
        config = self.config
        ratio = torch.exp(log_probs - log_probs.detach())
        clipped = ratio.clamp(1 - config.epsilon_low, 1 + config.epsilon_up)
        loss = -torch.minimum(ratio * advantages, clipped * advantages)
        if config.beta:
            with torch.no_grad(), self.model.disable_adapter():
                reference, _ = padded_log_probs(self.model, completions, self.temperature)
            difference = reference - log_probs
            loss = loss + config.beta * (torch.exp(difference) - difference - 1)
        return loss


class MergedNaiveTrainer(NaiveTrainer):
    """Samples with LoRA merged into the base, as a user might who has measured the cost of LoRA."""

    def play(self, starts: Sequence[Start]) -> list[Group]:
        with merged(self.model):
            return super().play(starts)


def padded_log_probs(model: PeftModel, completions: Sequence[Completion], temperature: float) -> tuple[Tensor, Tensor]:
    """log p of the reply tokens (R, C), and the mask of real tokens."""
    longest_prompt = max(len(completion.prompt_ids) for completion in completions)
    longest_reply = max(len(completion.token_ids) for completion in completions)
    ids = torch.zeros(len(completions), longest_prompt + longest_reply, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, completion in enumerate(completions):
        tokens = completion.prompt_ids + completion.token_ids
        first = longest_prompt - len(completion.prompt_ids)
        ids[row, first : first + len(tokens)] = torch.tensor(tokens)
        mask[row, first : first + len(tokens)] = 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    output = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, logits_to_keep=longest_reply + 1)
    log_p = torch.log_softmax(output.logits[:, :-1].float() / temperature, -1)
    targets = ids[:, longest_prompt:]
    return log_p.gather(2, targets[..., None])[..., 0], mask[:, longest_prompt:]


# ---- checks that both sides do the same work


def loss_and_gradient_difference(case: Case, models: Path, **changes: Any) -> dict[str, float]:
    """Ours against the padded batch on the selected episodes of the first update that has any, which the engine plays.

    Returns:
        `loss` and `gradient`: differences relative to the loss and to the `largest_gradient`; `kl`.
    """
    trainer = make_trainer(case, models, NaiveTrainer, **changes)
    assert isinstance(trainer, NaiveTrainer)
    torch.manual_seed(0)
    for name, parameter in trainer.parameters.items():
        if "lora_B" in name:  # zeros would make half of the gradient and the KL vanish
            torch.nn.init.normal_(parameter, std=0.02)
    plays = {index: trainer.starts.of_update(index) for index in range(1, 20)}
    groups = ((index, MeasuredTrainer.play(trainer, starts)) for index, starts in plays.items())
    selected = next(found for index, played in groups if (found := trainer.select(played, index).selected))

    def gradients() -> dict[str, Tensor]:
        return {name: parameter.grad.clone() for name, parameter in trainer.parameters.items() if parameter.grad is not None}

    padded, theirs = trainer.backward_padded(selected), gradients()
    trainer.optimizer.zero_grad()
    samples = to_samples(selected, LOSS_NORMALISATIONS["token-mean"])
    terms = MeasuredTrainer.gradient(trainer, pack(samples, token_budget(trainer.config, trainer.model)))
    ours = gradients()
    scale = max(gradient.abs().max().item() for gradient in ours.values())
    return {
        "loss": abs(padded - terms["loss"]) / max(abs(terms["loss"]), 1e-3),
        "gradient": max((ours[name] - theirs[name]).abs().max().item() for name in ours) / scale,
        "largest_gradient": scale,
        "kl": terms["kl"],
    }


def log_prob_difference(case: Case, models: Path, prompts: int = 4, **changes: Any) -> float:
    """The largest difference in a token's log-probability between `model.generate` and the engine, in nats."""
    trainer = make_trainer(case, models, **changes)
    agent = getattr(trainer.agent, "policy", trainer.agent)
    starts = [trainer.game.initial_state(stream(seed, "initial_state")) for seed in range(prompts)]
    rendered = [build_prompt(trainer.game, start) for start in starts]
    policy = GeneratePolicy(agent)
    inputs = policy.padded(rendered)
    torch.manual_seed(0)
    output = policy.generate(inputs, return_dict_in_generate=True, output_logits=True)
    log_p = torch.log_softmax(torch.stack(output.logits, 1).float(), -1)
    replies = [tuple(policy.cut(reply)) for reply in output.sequences[:, inputs["input_ids"].shape[1] :].tolist()]
    scores = agent.engine.score(agent.encode(rendered), [[reply] for reply in replies])
    differences = [
        abs(score - log_p[row, k, token].item())
        for row, (reply, (ours,)) in enumerate(zip(replies, scores, strict=True))
        for k, (token, score) in enumerate(zip(reply, ours, strict=True))
    ]
    return float(max(differences))
