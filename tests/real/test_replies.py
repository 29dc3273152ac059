"""Sampling and scoring with a base: what transformers computes, by either engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from tests.real.cases import NEW_TOKENS, Case, Record, check_close, chosen, greedy, next_log_probs, some_prompts
from tests.real.models import SOURCES


@pytest.fixture(scope="module")
def policy(case: Case) -> LanguageModel:
    template = SOURCES[case.model].template
    return LanguageModel.from_pretrained(
        str(case.folder),
        dtype=case.dtype,
        engine=case.engine,
        chat_template=str(template) if template else None,
        temperature=0.0,
        max_new_tokens=NEW_TOKENS,
    )


def test_greedy_replies_are_those_of_generate_up_to_ties(case: Case, policy: LanguageModel, record_property: Record) -> None:
    rngs = [np.random.default_rng(0)] * 2
    expected = greedy(case.model, case.dtype)
    if not all(reply.finite for reply in expected):
        record_property("note", "NaN by transformers, refused")
        with pytest.raises(UserError, match="not finite"):
            policy.complete(some_prompts(case.model), rngs)
        return
    ours, theirs, ties = [], [], 0
    for mine, reply in zip(policy.complete(some_prompts(case.model), rngs), expected, strict=True):
        assert mine.prompt_ids == reply.prompt
        equal = [a == b for a, b in zip(mine.token_ids, reply.tokens, strict=False)]
        same = equal.index(False) if False in equal else len(equal)
        if same < len(equal):  # a tie: in 16 bits, both tokens are the most likely one to within the rounding there
            gap = reply.own[same, reply.tokens[same]] - reply.own[same, mine.token_ids[same]]
            assert case.dtype != "float32"
            assert abs(gap) <= reply.rounding(same)
            ties += 1
        elif len(mine.token_ids) < len(reply.tokens):
            assert mine.token_ids[-1] in policy.engine.end_ids
        ours.append(torch.tensor(mine.log_probs[:same]))
        theirs.append(chosen(reply.own, reply.tokens[:same]))
    record_property("ties", ties)
    check_close(case, ours, theirs, record_property)


def test_scores_are_the_log_probabilities_of_a_forward_pass(usable: Case, policy: LanguageModel, record_property: Record) -> None:
    """Of the replies that name an action, after the longer prompt; in 16 bits the sums of both sides err."""
    [*_, prompt], [*_, reply] = some_prompts(usable.model), greedy(usable.model, usable.dtype)
    tokenised = [policy.tokenizer(prompt.prompt_format.reply(name), add_special_tokens=False) for name in ("Left", "Down")]
    options = [tuple(tokens["input_ids"]) for tokens in tokenised]
    [scores] = policy.engine.score([reply.prompt], [options])
    theirs = [chosen(next_log_probs(policy.model, reply.prompt, tokens), tokens) for tokens in options]
    check_close(usable, [torch.tensor(of_option) for of_option in scores], theirs, record_property)
