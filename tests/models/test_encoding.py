"""Prompts that were encoded are kept, up to a number of token ids; forgetting them changes no ids."""

from __future__ import annotations

import pytest

from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.models import encoding
from msgrpo_hub.models.loading import open_model

LAKE = make_game("FrozenLake-NotSlippery-v1")
PROMPTS = [
    build_prompt(LAKE, LAKE.initial_state(stream(episode_seed(LAKE.id, "test", index), "initial_state"))) for index in range(40)
]


def test_no_more_token_ids_are_kept_than_allowed_and_those_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    distinct = list(dict.fromkeys(PROMPTS))
    whole = open_model("pocket").encoder.encode(distinct)
    monkeypatch.setattr(encoding, "_CAPACITY", 2 * len(whole[0]))
    encoder, largest = open_model("pocket").encoder, max(map(len, whole))
    batches = [distinct[start : start + 3] for start in range(0, len(distinct), 3)]
    assert len(batches) > 5
    for batch in [*batches, distinct[:2]]:
        assert encoder.encode(batch) == [whole[distinct.index(prompt)] for prompt in batch]
        assert encoder._kept == sum(map(len, encoder._ids.values())) <= encoding._CAPACITY + 3 * largest
