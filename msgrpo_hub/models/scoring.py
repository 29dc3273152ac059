"""The second way to act: instead of sampling a reply, compare the log-probabilities of the replies that name an action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import TokenIds

TIE = 1e-9
"""Log-probabilities (in nats) no further apart than this are equal."""


@dataclass(frozen=True)
class ScorePolicy:
    """Answers `<action>NAME</action>` with the legal action whose reply the model finds most likely, and never unreadably.

    The candidates are the legal actions, or all actions where none is legal: what is measured is which move the model
    prefers, not whether it keeps to a format or knows a wall. So the player to compare it with is `random-legal`.

    The score of an action is log p(its reply | prompt), the sum over the tokens of the reply at temperature 1: the
    log-probability that what the model writes right after the prompt, without thinking first, begins with these tokens.
    It is not divided by their number: the mean would be nobody's probability, and would favour long names whose later
    tokens follow from the first. Of equal scores the first in the game's order wins. Nothing is random.

    The completion holds the log-probabilities of its tokens at temperature 1, whatever the temperature of the model.
    """

    language_model: LanguageModel

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        """One reply per prompt; the generators are not used."""
        candidates = [prompt.game.legal_actions(prompt.state) or prompt.game.actions for prompt in prompts]
        tokens = self._tokenise({action for actions in candidates for action in actions})
        prompt_ids = self.language_model.encode(prompts)
        scores = self.language_model.engine.score(prompt_ids, [[tokens[action] for action in actions] for actions in candidates])
        completions = []
        for ids, actions, log_probs in zip(prompt_ids, candidates, scores, strict=True):
            best = first_best([sum(of_tokens) for of_tokens in log_probs])
            completions.append(
                Completion(
                    text=reply_text(actions[best]),
                    prompt_ids=ids,
                    token_ids=tokens[actions[best]],
                    log_probs=tuple(log_probs[best]),
                )
            )
        return completions

    def _tokenise(self, actions: set[str]) -> dict[str, TokenIds]:
        """The tokens of each action's reply."""
        # A reply is tokenised alone and put after the tokens of the prompt: a model that writes cannot merge its first
        # characters with the last ones of the prompt either, as tokenising both together might.
        names, limit = sorted(actions), self.language_model.max_new_tokens
        encoded = self.language_model.tokenizer([reply_text(name) for name in names], add_special_tokens=False)["input_ids"]
        if (longest := max(map(len, encoded))) > limit:  # prompts are checked for room for the limit
            raise UserError(f"max_new_tokens = {limit}: expected at least {longest}, the tokens of a reply that names an action")
        return dict(zip(names, map(tuple, encoded), strict=True))


def reply_text(action: str) -> str:
    """The shortest reply that names an action."""
    return f"<action>{action}</action>"


def first_best(scores: Sequence[float]) -> int:
    """The index of the highest score, and of equal ones the first.

    >>> first_best([-2.0, -1.0 - 1e-12, -1.0])
    1
    """
    return next(i for i, score in enumerate(scores) if score >= max(scores) - TIE)
