"""The other side (a): MS-GRPO as a competent user would write it with transformers and peft.

Acting: `model.generate` over all live episodes in lockstep, prompts padded on the left, finished episodes removed.
Training: one row per step of the selected episodes, prompts padded on the left and replies on the right, logits of the
replies only, sorted by length into micro-batches, the same loss. Old log-probs need no separate pass: with one optimiser
step they equal those of the training pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor

from benchmark.throughput.cases import ForcedReply, MeasuredTrainer
from msgrpo_hub.agent.policy import Policy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.weights import merged
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training.batch import Pack
from msgrpo_hub.training.callbacks import Update
from msgrpo_hub.training.metrics import Metrics
from msgrpo_hub.training.trainer import Start

# Shapes: R rows, C longest reply of them.

MICRO_BATCH = 32
"""Rows of a forward and backward pass: the fastest of 8, 16 and 32 with the built-in base on a CPU."""


@dataclass
class GeneratePolicy:
    """Answers prompts with `model.generate`, in one padded batch."""

    agent: LanguageModel

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        inputs = self.padded(prompts)
        output = self.generate(inputs)
        starts = inputs["attention_mask"].argmax(1).tolist()
        given = [ids[start:] for ids, start in zip(inputs["input_ids"].tolist(), starts, strict=True)]
        return self.completions(given, [self.cut(row) for row in output[:, inputs["input_ids"].shape[1] :].tolist()])

    def completions(self, given: Sequence[Sequence[int]], replies: list[list[int]]) -> list[Completion]:
        """The replies to prompts, token ids both."""
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
        pad = agent.tokenizer.pad_token_id
        return cast(Any, agent.model).generate(
            **inputs,
            do_sample=True,
            temperature=agent.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=agent.max_new_tokens,
            pad_token_id=pad,
            **options,
        )

    def cut(self, reply: list[int]) -> list[int]:
        """The reply up to the first end token, if the model has one."""
        if self.agent.model.generation_config.eos_token_id is None:
            return reply
        ends = self.agent.engine.end_ids
        return reply[: next((k + 1 for k, token in enumerate(reply) if token in ends), len(reply))]


class NaiveTrainer(MeasuredTrainer):
    """Acts with `model.generate` and trains on padded rows."""

    def play(self, starts: Sequence[Start]) -> list[Group]:
        self.model.eval()
        if isinstance(self.agent, ForcedReply):
            policy: Any = ForcedReply(self.policy_of(cast(LanguageModel, self.agent.policy)), self.agent.actions)
        else:
            policy = self.policy_of(self.agent)
        return play_groups(self.game, policy, [seed for _, seed in starts], self.config.group_size)

    def policy_of(self, agent: LanguageModel) -> Policy:
        """What acts with the weights and settings of an agent."""
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

    def micro_batch(self, longest: int) -> int:
        """Rows of a pass; on a GPU as many as fit into the token budget of our side, where more would not fit into memory."""
        return MICRO_BATCH if self.model.device.type == "cpu" else max(1, self.config.token_budget // longest)

    def backward_padded(self, selected: Sequence[SelectedEpisode]) -> float:
        """Adds the gradient of the loss, micro-batch by micro-batch; returns the loss. Mean over all generated tokens."""
        rows = [
            (step.completion, advantage)
            for item in selected
            for step, advantage in zip(item.episode.steps, item.advantages, strict=True)
        ]
        rows.sort(key=lambda row: len(row[0].prompt_ids) + len(row[0].token_ids))
        total = sum(len(completion.token_ids) for completion, _ in rows)
        self.model.train()
        losses = 0.0
        longest = max(len(completion.prompt_ids) + len(completion.token_ids) for completion, _ in rows)
        size = self.micro_batch(longest)
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
        """(R, C) −[min(w·A, clip(w)·A) − β·KL], with the k3 estimate towards the base."""
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
    """The same with LoRA merged into the base while acting, as a user might who has measured the cost of LoRA."""

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
