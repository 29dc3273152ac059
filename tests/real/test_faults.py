"""The engine check finds faults on real weights in bfloat16, where rounding is largest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from msgrpo_hub.errors import UserError
from msgrpo_hub.models import attention
from msgrpo_hub.models.attention import RowLayer
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.engine_check import choose_forward
from tests.real.cases import plain_model, prompt_ids
from tests.real.models import real_model


def wrong_mask(patch: pytest.MonkeyPatch) -> None:
    """Tokens see later ones where a prompt or a tree is computed."""
    original = attention.attend

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Any, *rest: Any, **more: Any) -> Tensor:
        if mask is not None and query.shape[2] > 1:
            mask = torch.zeros_like(mask)
        return original(query, key, value, mask, *rest, **more)

    patch.setattr(attention, "attend", attend)


def dropped_window(patch: pytest.MonkeyPatch) -> None:
    """Layers with a sliding window attend to everything."""
    patch.setattr(attention, "beyond_window", lambda q, k, _, dtype: torch.zeros(*q.shape, k.shape[-1], dtype=dtype))


def rows_that_do_not_fork(patch: pytest.MonkeyPatch) -> None:
    """Every row of the cache becomes the last one."""
    original = RowLayer.reorder_cache
    patch.setattr(RowLayer, "reorder_cache", lambda layer, rows: original(layer, rows[-1:].expand(len(rows))))


def stale_cache(patch: pytest.MonkeyPatch) -> None:
    """A decoding step stores the keys and values of the step before."""
    original = RowLayer.update

    def update(layer: RowLayer, keys: Tensor, values: Tensor, *rest: Any, **more: Any) -> Any:
        if layer.get_seq_length() and keys.shape[2] == 1:
            keys, values = (states[:, :, -1:] for states in (layer.keys, layer.values))  # type: ignore[index]
        return original(layer, keys, values, *rest, **more)

    patch.setattr(RowLayer, "update", update)


MODELS = ("smollm2-135m", "gemma-270m")
FAULTS = [(model, fault) for model in MODELS for fault in (wrong_mask, rows_that_do_not_fork, stale_cache)]


@pytest.fixture(autouse=True)
def _nothing_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("name", MODELS)
def test_the_fast_engine_is_accepted_also_beyond_the_window(name: str) -> None:
    model = plain_model(real_model(name), "bfloat16")
    beyond = (getattr(model.config, "sliding_window", None) or -2) + 2
    assert choose_forward(model, "fast", prompt_ids(name)[0], beyond).name == "fast"


@pytest.mark.parametrize(("name", "fault"), [*FAULTS, ("gemma-270m", dropped_window)])
def test_a_fault_is_caught(name: str, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    model = plain_model(real_model(name), "bfloat16")
    fault(monkeypatch)
    with pytest.raises(UserError, match="log-probabilities of"):
        choose_forward(model, "fast", prompt_ids(name)[0], model.config.sliding_window + 2 if fault is dropped_window else 0)


@pytest.mark.parametrize("name", MODELS)
def test_replies_after_a_change_of_the_weights_are_those_of_a_new_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, model = prompt_ids(name)[0], plain_model(real_model(name), "bfloat16")
    engine = Engine(model, frozenset())

    def log_probs(engine: Engine) -> tuple[float, ...]:
        return engine.sample([prompt], [np.random.default_rng(0)], 1.0, 2)[0].log_probs

    before, weight = log_probs(engine), model.get_decoder().layers[0].self_attn.v_proj.weight
    with torch.no_grad():
        weight.mul_(-1)
        after = log_probs(engine)
        assert after == log_probs(Engine(model, frozenset())) != before
        weight.mul_(-1)
        monkeypatch.setattr("msgrpo_hub.models.engine.weights_version", lambda _model, known=engine._weights: known)
        assert log_probs(engine) != before  # the fault: keys and values of the other weights
