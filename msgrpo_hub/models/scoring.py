"""A policy that compares the log-probabilities of the replies that name an action, instead of sampling a reply."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.episode import NEAR, Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import TokenIds

TIE = 1e-9
"""Log-probabilities that differ by at most this, in nats, count as equal."""


class ScorePolicy:
    """Replies with the legal action whose reply is most likely. Every reply parses.

    The candidates are the legal actions, or all actions if none is legal. The score measures which move the model prefers,
    not whether it follows a format or recognises a wall. The player to compare with is therefore `random-legal`.

    The score of an action is log p(its reply | prompt), summed over the tokens of the reply at temperature 1: the probability
    that the model's output starts so, without thinking first. The sum is not divided by the number of tokens: the mean is not
    the probability of any event, and favours long names whose later tokens follow from the first. Ties go to the action that
    comes first in the game's order. Nothing is random, and the model's temperature has no effect.
    """

    def __init__(self, language_model: LanguageModel) -> None:
        self.language_model, self.prompt_format = language_model, language_model.prompt_format
        self.caching = language_model.caching

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        """One reply per prompt; the generators are not used.

        Raises:
            UserError: the model's `max_new_tokens` is too small for a reply that names an action.
        """
        if not prompts:
            return []
        candidates = [candidate_replies(prompt) for prompt in prompts]
        # A reply is tokenised separately from its prompt, as a generating model does: no token crosses the boundary.
        texts = sorted({reply for replies in candidates for reply in replies})
        encoded = self.language_model.tokenizer(texts, add_special_tokens=False)["input_ids"]
        longest, limit = max(map(len, encoded)), self.language_model.max_new_tokens
        if longest > limit:  # the check of a prompt's length reserves `limit` tokens
            raise UserError(f"max_new_tokens = {limit}: expected at least {longest}, the tokens of a reply that names an action")
        tokens: dict[str, TokenIds] = dict(zip(texts, map(tuple, encoded), strict=True))
        prompt_ids = self.language_model.encode(prompts)
        scores = self.language_model.engine.score(prompt_ids, [[tokens[reply] for reply in replies] for replies in candidates])
        completions = []
        for ids, replies, log_probs in zip(prompt_ids, candidates, scores, strict=True):
            sums = [sum(token_log_probs) for token_log_probs in log_probs]
            highest = max(sums)
            best = next(i for i, score in enumerate(sums) if score >= highest - TIE)
            is_close = sum(score > highest - NEAR for score in sums) > 1  # another rounding may choose another
            completions.append(
                Completion(
                    text=replies[best],
                    prompt_ids=ids,
                    token_ids=tokens[replies[best]],
                    log_probs=tuple(log_probs[best]),
                    near_draws=int(is_close),
                )
            )
        return completions


def candidate_replies(prompt: Prompt) -> list[str]:
    """The replies to compare: one per legal action, or one per action if none is legal."""
    actions = prompt.game.legal_actions(prompt.state) or prompt.game.actions
    return [prompt.prompt_format.reply(action) for action in actions]
