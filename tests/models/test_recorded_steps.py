"""Recorded decoding steps, which a GPU replays: the replies of plain passes, whatever grows, shrinks or changes in between.

Without a GPU a step is recorded by tracing it on tensors without values: as in a CUDA graph, memory and control flow are fixed,
Python is left out of a replay, and asking a tensor for its value is an error.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from msgrpo_hub.errors import UserError
from msgrpo_hub.models import engine_check, fast_forward, recorded_steps
from msgrpo_hub.models.direct_decoder import DirectDecoder
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.fast_forward import FastForward, Passes
from msgrpo_hub.models.recorded_steps import PATIENCE, Step
from msgrpo_hub.models.sampling import Sample, TokenIds
from tests.models.engines import END, adapted_model, assert_same, sampled, some_prompts
from tests.models.test_direct_decoder import MODELS, Model

NO_WINDOW = [name for name in MODELS if "window" not in name]
TRACED = ("llama with biases", "llama, dynamic", "qwen3", "LoRA")
"""Tracing takes seconds."""


class Tracer:
    """Records by tracing, and counts."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, step: Step, inputs: tuple[Tensor, ...]) -> Step:
        self.recorded += 1
        traced = make_fx(step, tracing_mode="real")(*inputs)
        where = [part.clone() for part in inputs]

        def replay(*given: Tensor) -> Tensor:
            self.replayed += 1
            for place, part in zip(where, given, strict=True):
                place.copy_(part)
            computed: Tensor = traced(*where)
            return computed

        return replay


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    tracer = Tracer()
    with patch.object(recorded_steps, "_as_graphs", lambda: tracer):
        yield tracer


def replies(
    model: Model,
    passes: Passes,
    prompts: list[TokenIds],
    new_tokens: int = 10,
    patience: int = 0,
    end_ids: frozenset[int] = END,
) -> list[Sample]:
    engine = Engine(model.eval(), end_ids)
    engine._forward = forward = FastForward(model, passes)
    forward.patience = patience
    rngs = [np.random.default_rng(k) for k in range(len(prompts))]
    return engine.sample(prompts, rngs, 1.0, new_tokens)


@pytest.mark.parametrize("name", TRACED)
def test_replayed_steps_give_the_replies_of_the_modules(name: str, tracer: Tracer) -> None:
    model = MODELS[name]()
    assert_same(replies(model, "recorded", some_prompts()), replies(model, "modules", some_prompts()))
    assert 0 < tracer.recorded < tracer.replayed


@pytest.mark.parametrize("shared", [0, 9])
def test_rows_prefixes_and_replies_of_any_length_fit(shared: int, tracer: Tracer) -> None:
    """Sizes are rounded up, and buffers grow: from a single row and a short prompt to many rows and long replies."""
    model, rng = MODELS["qwen2"](), np.random.default_rng(0)
    head = tuple(rng.integers(0, 250, shared).tolist())
    distinct = [(*head, k, *rng.integers(0, 250, 3 * k).tolist()) for k in range(4)]
    with patch.object(recorded_steps, "BLOCK", 8):
        for prompts in (distinct[:1], distinct[:1] * 12, distinct):
            ours, theirs = (replies(model, passes, prompts, 12, end_ids=frozenset({299})) for passes in ("recorded", "modules"))
            assert_same(ours, theirs)
    assert max(len(reply.token_ids) for reply in ours) > 8
    assert 2 < tracer.recorded < tracer.replayed / 2


def test_a_recorded_step_stays_right_when_the_prefix_and_the_rows_change(tracer: Tracer) -> None:
    """One forward plays turn after turn, as in an episode; only the first turns record."""
    model = MODELS["qwen3"]().eval()
    engine, plain = Engine(model, END), Engine(model, END)
    engine._forward, plain._forward = FastForward(model, "recorded"), FastForward(model, "modules")
    engine._forward.patience = 0
    recorded = []
    with engine.caching(), plain.caching():
        for turn in range(4):
            prompts = [(turn // 2,) * (5 + turn) + prompt for prompt in some_prompts(seed=turn)]
            of_both = [
                each.sample(prompts, [np.random.default_rng([turn, k]) for k in range(len(prompts))], 1.0, 10)
                for each in (engine, plain)
            ]
            assert_same(*of_both)
            recorded.append(tracer.recorded)
    assert recorded[0] > 0
    assert recorded[-1] == recorded[1], "other prompts and prefixes of the same sizes are replayed"


def test_a_replay_leaves_python_out(tracer: Tracer) -> None:
    """And what the tests above trace is what they replay."""
    model = MODELS["llama"]().eval()
    forward = FastForward(model, "recorded")
    forward.patience = 0
    computed = patch.object(DirectDecoder, "states", side_effect=AssertionError("computed"))
    with torch.no_grad(), forward.acting():
        _, rows = forward.prefill([(1, 2, 3), (4, 5)])
        first = rows.step(np.array([6, 7]))
        with computed:
            rows.step(np.array([8, 9]))
            assert (tracer.recorded, tracer.replayed) == (1, 2)
            rows.select(np.array([1]))
            with pytest.raises(AssertionError, match="computed"):  # one row is another size
                rows.step(np.array([8]))
    assert first.shape == (2, 300)


def test_steps_are_recorded_when_they_pay(tracer: Tracer) -> None:
    model = MODELS["qwen2"]()
    few = replies(model, "recorded", some_prompts()[:1], PATIENCE, patience=PATIENCE)
    assert len(few[0].token_ids) <= PATIENCE
    assert not tracer.recorded


def test_new_weights_are_recorded_anew(tracer: Tracer) -> None:
    model = MODELS["llama"]().eval()
    engine, plain = Engine(model, END), Engine(model, END)
    engine._forward, plain._forward = FastForward(model, "recorded"), FastForward(model, "modules")
    engine._forward.patience = 0
    for _ in range(2):
        assert_same(sampled(engine, some_prompts()), sampled(plain, some_prompts()))
        with torch.no_grad():
            for weight in model.parameters():
                weight *= 1.3
    assert tracer.recorded


def test_an_adapter_that_learns_is_replayed_as_it_is_and_another_one_is_recorded(tracer: Tracer) -> None:
    """Acting and learning take turns: the recordings of one update serve the next."""
    model = adapted_model().eval()
    engine, plain = Engine(model, END), Engine(model, END)
    engine._forward, plain._forward = FastForward(model, "recorded"), FastForward(model, "modules")
    engine._forward.patience = 0
    recorded = []
    for adapter in ("default", "default", "other", "default"):
        model.set_adapter(adapter)
        rngs = [[np.random.default_rng(k) for k in range(8)] for _ in range(2)]
        assert_same(*(each.sample(some_prompts(), own, 1.0, 2) for each, own in zip((engine, plain), rngs, strict=True)))
        recorded.append(tracer.recorded)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if f"lora_B.{adapter}" in name:
                    weight += 0.3
    assert 0 < recorded[0] == recorded[1] < recorded[2] < recorded[3]


@pytest.mark.parametrize("kept", [True, False])
def test_recordings_leave_the_memory_to_learning_where_they_take_much_of_it(kept: bool, tracer: Tracer) -> None:
    model = adapted_model().eval()
    engine = Engine(model, END)
    forward = engine._forward = FastForward(model, "recorded")
    forward.patience = 0
    with patch.object(fast_forward, "KEPT", 1.0 if kept else 0.0):
        sampled(engine, some_prompts())
        assert (forward._recorded is not None) == kept
        recorded = tracer.recorded
        sampled(engine, some_prompts())
    assert (tracer.recorded == recorded) == kept


def test_two_engines_of_one_model_act_by_turns_with_an_adapter_each(tracer: Tracer) -> None:
    """Fixed products of both lie in the same memory."""
    model = adapted_model().eval()
    engines = {name: Engine(model, END) for name in ("default", "other")}
    plain = Engine(model, END)
    plain._forward = FastForward(model, "modules")
    for engine in engines.values():
        engine._forward = FastForward(model, "recorded")
        engine._forward.patience = 0
    with engines["default"].caching():
        for turn, name in enumerate(("default", "default", "other", "default")):
            model.set_adapter(name)
            assert_same(sampled(engines[name], some_prompts(turn)), sampled(plain, some_prompts(turn)))
    assert tracer.replayed


@pytest.mark.usefixtures("tracer")
def test_after_numbers_that_were_not_finite_nothing_of_them_stays() -> None:
    model = adapted_model().eval()
    engine, plain = Engine(model, END), Engine(model, END)
    engine._forward, plain._forward = FastForward(model, "recorded"), FastForward(model, "modules")
    weight = next(weight for name, weight in model.named_parameters() if "lora_B.default" in name)
    with torch.no_grad():
        before = weight.clone()
        weight.fill_(torch.nan)
        with pytest.raises(UserError, match="not finite"):
            sampled(engine, [prompt * 3 for prompt in some_prompts()])
        weight.copy_(before)
    assert_same(sampled(engine, some_prompts()), sampled(plain, some_prompts()))


@pytest.mark.usefixtures("tracer")
def test_where_memory_ends_while_buffers_grow_the_next_batch_has_new_ones() -> None:
    model = adapted_model().eval()
    engine, plain = Engine(model, END), Engine(model, END)
    engine._forward, plain._forward = FastForward(model, "recorded"), FastForward(model, "modules")
    sampled(engine, some_prompts()[:2])
    steps = engine._forward._recorded
    assert steps is not None
    before, pad = steps.nbytes, functional.pad
    calls = iter(range(100))

    def full(*given: object, **how: object) -> Tensor:
        if next(calls) == 2:  # the mask, a layer, and then
            raise torch.OutOfMemoryError
        return pad(*given, **how)

    with patch.object(recorded_steps, "functional", SimpleNamespace(pad=full)), pytest.raises(torch.OutOfMemoryError):
        sampled(engine, [prompt * 30 for prompt in some_prompts()])
    assert next(calls) == 3
    assert steps.nbytes < before
    assert_same(sampled(engine, some_prompts()), sampled(plain, some_prompts()))


def test_a_recording_that_computes_otherwise_is_not_used_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """As a graph of a driver or a library with an error would."""
    trace = Tracer()

    def wrong(step: Step, inputs: tuple[Tensor, ...]) -> Step:
        replay = trace(step, inputs)
        return lambda *given: 1.1 * replay(*given).roll(1, 0)

    def failing(*_: object) -> Step:
        raise RuntimeError("operation not permitted when stream is capturing")

    def without_compiler(*_: object) -> Step:
        raise subprocess.CalledProcessError(1, "gcc")

    with patch.object(engine_check, "passes_of", lambda _model: ("recorded", "direct", "modules")):
        for record, expected in ((trace, "recorded"), (wrong, "direct"), (failing, "direct"), (without_compiler, "direct")):
            with patch.object(recorded_steps, "_as_graphs", lambda record=record: record):
                forward = Engine(MODELS["qwen2"](), END).choose(some_prompts()[0], 10)
            assert isinstance(forward, FastForward)
            assert forward.passes == expected
    said = [
        record.getMessage() for record in caplog.records if "acts by direct passes, since faster ones failed" in record.message
    ]
    assert len(said) == 3
    assert "operation not permitted" in said[1]


@pytest.mark.parametrize("name", [name for name in MODELS if name not in NO_WINDOW])
def test_windows_are_not_recorded(name: str, tracer: Tracer) -> None:
    model = MODELS[name]()
    assert_same(replies(model, "recorded", some_prompts()), replies(model, "modules", some_prompts()))
    assert not tracer.recorded


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", NO_WINDOW)
def test_graphs_give_the_replies_of_the_modules(name: str) -> None:
    model = MODELS[name]().cuda()
    for patience in (0, PATIENCE):
        ours = replies(model, "recorded", some_prompts(), patience=patience)
        assert_same(ours, replies(model, "modules", some_prompts()))
