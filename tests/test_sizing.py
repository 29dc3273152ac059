"""The sizing model: its shapes are those of the models, its constants are those that the measurements give, and it adds up."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, Qwen2Config, Qwen2ForCausalLM

from benchmark.throughput import cards
from benchmark.throughput.limit import forward_operations
from benchmark.throughput.shapes import SHAPES
from msgrpo_hub.models import log_probs
from msgrpo_hub.models.costs import ACTIVATIONS, CHUNK_BYTES, FLOAT32, QWEN, shape_of
from msgrpo_hub.training.config import TrainConfig, preset
from msgrpo_hub.training.paper import CARD_GB, PRESETS
from msgrpo_hub.training.sizing import UpdateSize, memory, update_size, work


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    """Qwen2.5-0.5B without its numbers."""
    with torch.device("meta"):
        return Qwen2ForCausalLM(Qwen2Config(**SHAPES["qwen2.5-0.5b"]))


def test_the_shape_is_that_of_the_model(model: Qwen2ForCausalLM) -> None:
    shape = shape_of(model.config)
    assert shape == QWEN["0.5B"]
    assert shape
    small = sum(p.numel() for name, p in model.named_parameters() if "norm" in name or "bias" in name)
    assert shape.weights == sum(p.numel() for p in model.parameters()) - small
    adapted = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert shape.lora(16) == sum(p.numel() for p in adapted.parameters() if p.requires_grad)


def test_operations_are_those_that_the_limit_counts_layer_by_layer() -> None:
    with torch.device("meta"):
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPES["qwen2.5-0.5b"]))
    assert QWEN["0.5B"].forward(70, 11.5, 9) == pytest.approx(forward_operations(model, (70, 70 * 11.5, 9)))


def test_a_cache_has_a_key_and_a_value_of_every_head_of_every_layer() -> None:
    assert QWEN["3B"].cache_bytes(10, 2) == 10 * 36 * 2 * 2 * 128 * 2


def test_a_model_of_another_kind_has_no_shape() -> None:
    assert shape_of(GPT2Config()) is None


def test_the_constants_are_those_that_the_measurements_and_the_code_give() -> None:
    assert round(cards.fitted_activations(), 1) == ACTIVATIONS
    assert CHUNK_BYTES == log_probs.CHUNK_BYTES


def test_the_model_is_within_a_third_of_every_measured_time_and_a_fifth_of_every_peak() -> None:
    rows, operations, bandwidth = cards.measured()
    shares = cards.fitted()
    assert len(rows) == 6
    for row in rows:
        acting = shares.seconds_acting(row.acting_bytes / bandwidth, row.acting_operations / operations)
        training = shares.training * row.training_operations / operations
        held = cards.held(row)
        assert acting == pytest.approx(row.acting, rel=1 / 3), row.label
        assert training == pytest.approx(row.training, rel=1 / 3), row.label
        assert held == pytest.approx(row.memory, rel=0.2), row.label


def test_the_card_that_the_paper_s_presets_name_is_the_smallest_that_they_fit_on() -> None:
    for name in PRESETS:
        assert "3B" in preset(name).model
        assert cards.smallest_card(preset(name), QWEN["3B"]).gigabytes == CARD_GB
        needed = cards.needed(preset(name), QWEN["3B"])
        assert cards.fits(needed, CARD_GB)
        assert not cards.fits(needed, needed / 1e9)


SIZE = UpdateSize(episodes=100, learned=25, turns=10, rules=200, state=50, reply=100)


def test_twice_the_episodes_are_twice_the_operations_beside_the_rules() -> None:
    shape, config = replace(QWEN["0.5B"]), preset("paper-snake")
    one, two = (work(config, shape, replace(SIZE, rules=0, episodes=100 * n, learned=25 * n)) for n in (1, 2))
    assert two.acting_operations == pytest.approx(2 * one.acting_operations)
    assert two.training_operations == pytest.approx(2 * one.training_operations)
    assert one.acting_bytes < two.acting_bytes < 2 * one.acting_bytes  # the weights are read once for all


def test_memory_counts_the_larger_of_acting_and_training() -> None:
    config, shape = preset("paper-snake"), QWEN["3B"]
    few = memory(config, shape, SIZE)
    assert set(few) == {"program", "weights", "adapter", "training"}
    assert few["weights"] == 2 * shape.weights
    assert few["adapter"] == 16 * shape.lora(16)
    many = memory(TrainConfig(**asdict(config) | {"max_rows": 10_000}), shape, replace(SIZE, episodes=10_000))
    assert set(many) == {"program", "weights", "adapter", "acting"}
    exact = memory(TrainConfig(**asdict(config) | {"dtype": "float32"}), shape, SIZE)
    assert exact["weights"] == FLOAT32 * shape.weights
    acting = memory(
        TrainConfig(**asdict(config) | {"dtype": "float32", "max_rows": 10_000}), shape, replace(SIZE, episodes=10_000)
    )
    assert acting["acting"] == 2 * many["acting"], "nothing is merged on a card"


def test_an_update_s_size_follows_from_scripted_play_with_full_replies() -> None:
    size = update_size(preset("paper-snake"))
    assert (size.episodes, size.learned, size.reply) == (100, 25, 256)
    assert 1 <= size.turns <= 40
    assert size.steps == size.turns * 256
    assert min(size.rules, size.state) > 30
