"""A language model restricted to a fixed list of replies: its exact probabilities, and the gradient of each of them.

The replies are those that name an action of the game in the prompt's format, and one without an action (⊥), each with its end
token. The model's probabilities of the replies are renormalised over the list, as under decoding constrained to it. The mass
outside the list is measured as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from benchmark.experiments.exact_gradient.exact import Floats
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.token_tree import TokenTree, build_tree, common_prefix

# Shapes: N prompts, O replies of the list, P parameters of the adapter.

NO_ACTION = "<action>wall</action>"
"""The reply without an action."""


@dataclass(frozen=True, kw_only=True)
class ReplyBatch:
    """The replies of some prompts as token trees, one per prompt; see `models.log_probs.TokenBatch`."""

    prefix: tuple[int, ...]
    trees: Sequence[TokenTree]
    slots: Tensor
    targets: Tensor


@dataclass(frozen=True)
class FixedReplies:
    """A language model that chooses among a fixed list of replies, at temperature 1.

    Args:
        agent: the model.
        prompts: the distinct prompts, all of one game and of a format without past turns.
    """

    agent: LanguageModel
    prompts: Sequence[Prompt]

    @cached_property
    def texts(self) -> list[str]:
        """The replies: one per action of the game in its order, then the one without an action."""
        game, prompt_format = self.prompts[0].game, self.prompts[0].prompt_format
        texts = [*map(prompt_format.reply, game.actions), NO_ACTION]
        assert [prompt_format.parse(text, game.actions) for text in texts] == [*game.actions, None]
        return texts

    @cached_property
    def replies(self) -> list[Completion]:
        """The replies as completions, without a prompt."""
        end = self.agent.tokenizer.eos_token_id
        encoded = self.agent.tokenizer(self.texts, add_special_tokens=False)["input_ids"]
        return [Completion(text=text, token_ids=(*ids, end)) for text, ids in zip(self.texts, encoded, strict=True)]

    @cached_property
    def prompt_ids(self) -> list[tuple[int, ...]]:
        """The tokens of each prompt."""
        return self.agent.encode(self.prompts)

    def log_likelihoods(self, row: int) -> Tensor:
        """(O,) log p(reply | prompt) of the model without restriction, with a gradient, in the type of the model."""
        return torch.stack([self._log_likelihood(self.prompt_ids[row], reply.token_ids) for reply in self.replies])

    def _log_likelihood(self, prompt: tuple[int, ...], reply: tuple[int, ...]) -> Tensor:
        ids = torch.tensor([prompt + reply])
        logits = self.agent.model(input_ids=ids[:, :-1], use_cache=False).logits[0, len(prompt) - 1 :]
        return torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None]).sum()

    def log_probabilities(self) -> Tensor:
        """(N, O) log π(reply | prompt) of the restricted policy, with a gradient."""
        return torch.stack([torch.log_softmax(self.log_likelihoods(row), 0) for row in range(len(self.prompts))])

    def shared_log_probabilities(self, rows: Sequence[int]) -> Tensor:
        """(rows, O) log π(reply | prompt) of some prompts, in float32 with a gradient; each distinct prefix is computed once."""
        sequences = [[self.prompt_ids[row] + reply.token_ids for reply in self.replies] for row in rows]
        prefix = common_prefix(min(self.prompt_ids), max(self.prompt_ids))
        trees = [build_tree([sequence[prefix:] for sequence in of_prompt]) for of_prompt in sequences]
        length = max(map(len, trees))
        lengths = [len(reply.token_ids) for reply in self.replies]
        predicting = [
            prefix + number * length + path[-1 - count : -1]
            for number, tree in enumerate(trees)
            for path, count in zip(tree.paths, lengths, strict=True)
        ]
        batch = ReplyBatch(
            prefix=self.prompt_ids[rows[0]][:prefix],
            trees=trees,
            slots=torch.from_numpy(np.concatenate(predicting)),
            targets=torch.tensor([token for _ in rows for reply in self.replies for token in reply.token_ids]),
        )
        assert self.agent.engine.shares_prefixes(self.prompt_ids[0], max(lengths))
        log_probs = self.agent.engine.log_probs(batch, 1.0).split(lengths * len(rows))
        return torch.log_softmax(torch.stack([part.sum() for part in log_probs]).reshape(len(rows), -1), 1)

    def gradients(self, parameters: Sequence[nn.Parameter]) -> ExactPolicy:
        """The probabilities and all gradients ∇log π(reply | prompt): N · O backward passes.

        ∇log π(a | s) = ∇ℓ(a) − Σ_b π(b | s) ∇ℓ(b), where ℓ are the log-likelihoods without restriction.
        """
        likelihoods = torch.empty(len(self.prompts), len(self.replies), dtype=torch.float64)
        rows = []
        for n, prompt in enumerate(self.prompt_ids):
            gradients = []
            for k, reply in enumerate(self.replies):
                value = self._log_likelihood(prompt, reply.token_ids)
                likelihoods[n, k] = value.detach()
                gradients.append(torch.cat([part.flatten() for part in torch.autograd.grad(value, parameters)]))
            stacked = torch.stack(gradients)
            rows.append(stacked - torch.softmax(likelihoods[n], 0).to(stacked.dtype) @ stacked)
        return ExactPolicy(
            probabilities=torch.softmax(likelihoods, 1).numpy(),
            outside=(1 - likelihoods.exp().sum(1)).numpy(),
            scores=torch.cat(rows),
        )


@dataclass(frozen=True, kw_only=True)
class ExactPolicy:
    """What is known of a policy at one checkpoint."""

    probabilities: Floats
    """(N, O) π(reply | prompt)."""
    outside: Floats
    """(N,) the probability that the model without restriction gives to all other replies."""
    scores: Tensor
    """(N · O, P) the gradients ∇log π(reply | prompt)."""

    def gram(self) -> Floats:
        """(N · O, N · O) the inner products of the gradients: lengths and angles of all their weighted sums follow from them."""
        total = torch.zeros(len(self.scores), len(self.scores), dtype=torch.float64)
        for part in self.scores.split(4096, dim=1):
            total += part.double() @ part.double().T
        product: Floats = np.asarray(total.numpy(), np.float64)
        return product
