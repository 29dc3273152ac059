"""Log-probabilities of replies by plain forwards, without the engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from msgrpo_hub.agent.policy import Policy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.models.attention import attention_of

TOLERANCE = 1e-5


def plain_log_probs(model: torch.nn.Module, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """log p of each token, from one forward pass of the prompt with its continuation."""
    with torch.no_grad(), attention_of(model, "eager"):  # some versions of transformers skip softcapping in other implementations
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.double(), -1).gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


# ---- the policy


def act(policy: Policy, prompts: Sequence[Prompt]) -> list[str]:
    return [reply.text for reply in policy.complete(prompts, [np.random.default_rng(0)] * len(prompts))]
