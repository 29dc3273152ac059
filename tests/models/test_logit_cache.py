"""Caching logits while episodes are played saves work and changes no reply."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.episode import Episode
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import Sample
from msgrpo_hub.rollout import play_episodes
from tests.examples import examples
from tests.models.engines import END, LIMIT, adapted_model, assert_same, distinct_contexts, generators, sampled, some_prompts

pytestmark = pytest.mark.slow

MODEL = adapted_model()
ROW = 4 * 300
"""Bytes of the logits at one node."""


@cache
def uncached(prompts: int, rngs: int, temperature: float, limit: int) -> list[Sample]:
    return Engine(MODEL, END).sample(some_prompts(prompts), generators(8, rngs), temperature, limit)


CALLS = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([1, 4, LIMIT]))


@given(
    calls=st.lists(CALLS, min_size=1, max_size=5),
    capacity=st.sampled_from([0, ROW, 7 * ROW, 40 * ROW, 2**20]),
    max_rows=st.sampled_from([1, 3, 512]),
)
@examples(8)
def test_no_reply_depends_on_the_cache(calls: list[tuple[int, int, float, int]], capacity: int, max_rows: int) -> None:
    """Each call has a seed of its prompts, a seed of its generators, a temperature and a limit."""
    engine = Engine(MODEL, END, max_rows=max_rows)
    with engine.caching(capacity):
        for prompts, rngs, temperature, limit in calls:
            ours = engine.sample(some_prompts(prompts), generators(8, rngs), temperature, limit)
            assert_same(ours, uncached(prompts, rngs, temperature, limit))


def test_a_reply_that_leaves_the_cache_costs_its_prefix_once_and_then_its_new_tokens() -> None:
    engine, prompts = Engine(MODEL, END), some_prompts()
    with engine.caching():
        cached = sampled(engine, prompts, 1.0)
        rows = engine.forward_rows
        new = engine.sample(prompts, generators(8, seed=1), 1.0, LIMIT)
    contexts = {(s.prompt_ids, s.token_ids[:k]) for s in cached for k in range(len(s.token_ids))}
    left = [s for s in new if (s.prompt_ids, s.token_ids[:-1]) not in contexts]
    assert 0 < len(left) < len(new)
    assert engine.forward_rows - rows == distinct_contexts(left)


def test_the_cache_is_dropped_when_play_ends() -> None:
    engine = Engine(MODEL, END)
    with engine.caching():
        first = sampled(engine, some_prompts(), 1.0)
    rows = engine.forward_rows
    assert_same(sampled(engine, some_prompts(), 1.0), first)
    assert engine.forward_rows == rows + distinct_contexts(first)


class Uncached:
    """The same model as a policy without a cache."""

    def __init__(self, agent: LanguageModel) -> None:
        self.complete = agent.complete


@pytest.mark.parametrize(("game_id", "least"), [("FrozenLake-NotSlippery-v1", 2.0), ("Snake-Solo-v1", 1.2)])
def test_episodes_are_played_with_fewer_rows(game_id: str, least: float) -> None:
    game = make_game(game_id)
    episode_keys = [(episode_seed(game_id, "train", index), member) for index in range(2) for member in range(12)]

    def play(cached: bool) -> tuple[list[Episode], int]:
        agent = LanguageModel.from_pretrained("pocket", max_new_tokens=32)
        return play_episodes(game, agent if cached else Uncached(agent), episode_keys), agent.engine.forward_rows

    (ours, rows), (theirs, plain) = play(cached=True), play(cached=False)
    assert tokens_and_actions(ours) == tokens_and_actions(theirs)
    assert plain > least * rows


def tokens_and_actions(episodes: Sequence[Episode]) -> list[list[tuple[tuple[int, ...], str | None]]]:
    return [[(step.completion.token_ids, step.action) for step in episode.steps] for episode in episodes]


def test_a_batch_computes_only_what_those_before_it_did_not() -> None:
    prompts, rows = [prompt for prompt in some_prompts()[:2] for _ in range(40)], []
    for max_rows in (80, 8):
        engine = Engine(MODEL, END, max_rows=max_rows)
        with engine.caching():
            found = sampled(engine, prompts, 0.01)  # nearly all replies to a prompt are equal
        rows.append(engine.forward_rows)
    assert len(found) == 80
    assert rows[0] == rows[1] == 1 + distinct_contexts(found)
