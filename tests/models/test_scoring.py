"""Log-probabilities of replies against plain forwards of each prompt with each reply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import PeftModel

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.language_model import LanguageModel
from tests.examples import examples
from tests.models.plain_forwards import TOLERANCE, plain_log_probs
from tests.tiny import adapted, tiny_model

Ids = tuple[int, ...]
MakeFolder = Callable[..., Path]
VOCABULARY = 300


def random_ids(rng: np.random.Generator, length: int) -> Ids:
    return tuple(rng.integers(0, 250, length).tolist())


def some_pairs() -> tuple[list[Ids], list[list[Ids]]]:
    """Prompts of unequal length with a common prefix, two of them equal, with continuations of all kinds.

    The continuations differ in length. Some share a prefix, one is a prefix of another, and one occurs twice. One prompt
    has a single continuation and one has no continuation.
    """
    rng = np.random.default_rng(0)
    rules = random_ids(rng, 6)
    prompts = [rules + random_ids(rng, length) for length in (3, 9, 5, 1, 2)]
    tag = random_ids(rng, 2)
    tagged = [tag + random_ids(rng, length) for length in (1, 4, 2, 1)]
    return [*prompts, prompts[0]], [
        tagged,
        [*tagged, random_ids(rng, 1), tagged[1][:3], tagged[0]],
        [random_ids(rng, 3)],
        [random_ids(rng, length) for length in (2, 1, 6)],
        [],
        [tagged[2], random_ids(rng, 5)],
    ]


def assert_plain(model: torch.nn.Module, engine: Engine) -> None:
    prompts, continuations = some_pairs()
    scores = engine.score(prompts, continuations)
    assert [len(row) for row in scores] == [4, 7, 1, 3, 0, 2]
    for prompt, given_tokens, row in zip(prompts, continuations, scores, strict=True):
        for tokens, log_probs in zip(given_tokens, row, strict=True):
            assert log_probs == pytest.approx(plain_log_probs(model, prompt, tokens), abs=TOLERANCE)


def adapted_model() -> PeftModel:
    """A random adapter on a random base."""
    return adapted(tiny_model(vocab_size=VOCABULARY))


@pytest.fixture(scope="module")
def model() -> PeftModel:
    return adapted_model()


def engine_of(model: PeftModel, max_rows: int = 512) -> Engine:
    return Engine(model, frozenset(), max_rows)


# ---- against plain forwards


@pytest.mark.lowest
@pytest.mark.parametrize("max_rows", [512, 5, 1])
def test_scores_are_those_of_a_plain_forward(family: LanguageModel, max_rows: int) -> None:
    assert_plain(family.model, Engine(family.model, frozenset(), max_rows))


def test_scores_follow_the_adapter_on_and_off(model: PeftModel) -> None:
    engine = engine_of(model)
    assert_plain(model, engine)
    with model.disable_adapter():
        assert_plain(model, engine)
    assert_plain(model, engine)
    with model.disable_adapter():
        base = engine.score([(1, 2, 3)], [[(4, 5)]])
    assert base != engine.score([(1, 2, 3)], [[(4, 5)]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_probabilities_of_all_single_tokens_add_up_to_one(dtype: torch.dtype) -> None:
    """Probabilities are computed in float32 for bfloat16 models too, because a bfloat16 log-softmax is off by per cents."""
    engine = engine_of(adapted_model().to(dtype))
    (scores,) = engine.score([(7, 8, 9)], [[(token,) for token in range(VOCABULARY)]])
    assert sum(np.exp(log_p) for (log_p,) in scores) == pytest.approx(1, abs=1e-5)


# ---- sharing changes no result


@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple),
            st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), max_size=3),
        ),
        min_size=1,
        max_size=5,
    ),
    max_rows=st.sampled_from([1, 2, 3, 512]),
)
@examples(6)
def test_batch_order_duplicates_and_max_rows_change_no_score(
    model: PeftModel, rows: list[tuple[Ids, list[Ids]]], max_rows: int
) -> None:
    """Few tokens, so that equal prompts, common prefixes and equal continuations are frequent."""
    engine, alone = engine_of(model, max_rows), engine_of(model)
    scores = engine.score([prompt for prompt, _ in rows], [given_tokens for _, given_tokens in rows])
    for (prompt, given_tokens), row in zip(rows, scores, strict=True):
        for tokens, log_probs in zip(given_tokens, row, strict=True):
            assert log_probs == pytest.approx(alone.score([prompt], [[tokens]])[0][0], abs=TOLERANCE)


# ---- counting work


def test_a_distinct_prompt_is_one_row_and_a_distinct_continuation_another(model: PeftModel) -> None:
    engine = engine_of(model)
    prompts = [(1, 2, 3), (1, 2, 4), (1, 2, 3), (1, 2, 3)]
    candidates: list[Ids] = [(9, 5, 6), (9, 7, 6), (9, 8, 6)]
    engine.score(prompts, [candidates, candidates, candidates, [*candidates, *candidates]])
    assert engine.forward_rows == 1 + 2 + 2 * 3  # 1 for the shared prefix


# ---- models that cannot be scored


def test_weights_that_become_non_finite_after_the_check_are_refused() -> None:
    model = adapted_model()
    engine = engine_of(model)
    engine.score([(1, 2)], [[(3,)]])
    with torch.no_grad():
        model.get_base_model().lm_head.weight[5, 0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        engine.score([(1, 2)], [[(3,)]])
