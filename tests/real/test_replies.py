"""Sampling and scoring with a base agree with transformers, by either engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from tests.real.cases import NEW_TOKENS, TAIL, Case, Record, check_close, chosen, greedy, own_rounding, some_prompts


@pytest.fixture(scope="module")
def policy(case: Case) -> LanguageModel:
    return case.policy(case.folder, temperature=0.0, max_new_tokens=NEW_TOKENS)


def test_greedy_replies_are_those_of_generate_up_to_ties(case: Case, policy: LanguageModel, record_property: Record) -> None:
    rngs = [np.random.default_rng(0)] * 2
    expected = greedy(case.model, case.dtype)
    if not all(reply.finite for reply in expected):
        record_property("note", "NaN by transformers, refused")
        with pytest.raises(UserError, match="overflows"):
            policy.complete(some_prompts(case.model), rngs)
        return
    ours, theirs, ties = [], [], 0
    for mine, reply in zip(policy.complete(some_prompts(case.model), rngs), expected, strict=True):
        assert mine.prompt_ids == reply.prompt
        equal = [a == b for a, b in zip(mine.token_ids, reply.tokens, strict=False)]
        same = equal.index(False) if False in equal else len(equal)
        if same < len(equal):  # a tie: in 16 bits, both tokens are the most likely one to within the rounding there
            own = reply.own[TAIL + same]
            gap = own[reply.tokens[same]] - own[mine.token_ids[same]]
            assert case.dtype != "float32"
            assert abs(gap) <= reply.rounding(same)
            ties += 1
        elif len(mine.token_ids) < len(reply.tokens):
            assert mine.token_ids[-1] in policy.engine.end_ids
        ours.append(torch.tensor(mine.log_probs[:same]))
        theirs.append(chosen(reply.own[TAIL:], reply.tokens[:same]))
    record_property("ties", ties)
    check_close(case, ours, theirs, own_rounding(case), record_property)


def test_scores_are_the_log_probabilities_of_a_forward_pass(usable: Case, policy: LanguageModel, record_property: Record) -> None:
    replies = greedy(usable.model, usable.dtype)
    pairs = [reply.scored for reply in replies]
    scores = policy.engine.score([prompt for prompt, _ in pairs], [[end[:TAIL], end] for _, end in pairs])
    theirs = [chosen(reply.own, tokens) for reply in replies for tokens in (reply.scored[1][:TAIL], reply.scored[1])]
    check_close(
        usable, [torch.tensor(one) for of_prompt in scores for one in of_prompt], theirs, own_rounding(usable), record_property
    )
