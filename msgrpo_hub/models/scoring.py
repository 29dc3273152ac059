"""The second way to act: instead of sampling a reply, compare the log-probabilities of the replies that name an action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import TokenIds

TIE = 1e-9
"""Log-probabilities (in nats) no further apart than this are equal."""


@dataclass(frozen=True)
class ScorePolicy:
    """Answers with the legal action whose reply the model finds most likely. Every reply can be read.

    The candidates are the legal actions, or all actions where none is legal: what is measured is which move the model
    prefers, not whether it keeps to a format or knows a wall. So the player to compare it with is `random-legal`.

    The reply of an action is the one that the prompt's format writes: `<action>NAME</action>` by default.

    The score of an action is log p(its reply | prompt), the sum over the tokens of the reply at temperature 1: the
    log-probability that what the model writes right after the prompt, without thinking first, begins with these tokens.
    It is not divided by their number: the mean would be nobody's probability, and would favour long names whose later
    tokens follow from the first. Of equal scores the first in the game's order wins. Nothing is random.

    The completion holds the log-probabilities of its tokens at temperature 1, whatever the temperature of the model.
    """

    language_model: LanguageModel

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        """One reply per prompt; the generators are not used."""
        candidates = [candidate_replies(prompt) for prompt in prompts]
        tokens = self._tokenise({reply for replies in candidates for reply in replies})
        prompt_ids = self.language_model.encode(prompts)
        scores = self.language_model.engine.score(prompt_ids, [[tokens[reply] for reply in replies] for replies in candidates])
        completions = []
        for ids, replies, log_probs in zip(prompt_ids, candidates, scores, strict=True):
            best = first_best([sum(of_tokens) for of_tokens in log_probs])
            completions.append(
                Completion(
                    text=replies[best],
                    prompt_ids=ids,
                    token_ids=tokens[replies[best]],
                    log_probs=tuple(log_probs[best]),
                )
            )
        return completions

    @property
    def prompt_format(self) -> PromptFormat | None:
        """That of the model."""
        return self.language_model.prompt_format

    def _tokenise(self, replies: set[str]) -> dict[str, TokenIds]:
        """The tokens of each reply."""
        # A reply is tokenised alone and put after the tokens of the prompt: a model that writes cannot merge its first
        # characters with the last ones of the prompt either, as tokenising both together might.
        texts, limit = sorted(replies), self.language_model.max_new_tokens
        encoded = self.language_model.tokenizer(texts, add_special_tokens=False)["input_ids"]
        if (longest := max(map(len, encoded))) > limit:  # prompts are checked for room for the limit
            raise UserError(f"max_new_tokens = {limit}: expected at least {longest}, the tokens of a reply that names an action")
        return dict(zip(texts, map(tuple, encoded), strict=True))


def candidate_replies(prompt: Prompt) -> list[str]:
    """The replies that are compared: those that name the legal actions, or all actions if none is legal."""
    actions = prompt.game.legal_actions(prompt.state) or prompt.game.actions
    return [prompt.prompt_format.reply(action) for action in actions]


def first_best(scores: Sequence[float]) -> int:
    """The index of the highest score, and of equal ones the first.

    >>> first_best([-2.0, -1.0 - 1e-12, -1.0])
    1
    """
    return next(i for i, score in enumerate(scores) if score >= max(scores) - TIE)
