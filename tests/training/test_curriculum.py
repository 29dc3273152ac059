"""Runs over several games, runs that begin with an adapter, and what happens beside a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.training import Callback, TrainConfig, train
from msgrpo_hub.training.metrics import read_metrics
from msgrpo_hub.training.starts import dealing_order, parse_games
from tests.tiny import adapted
from tests.training.trainers import starts_of

pytestmark = pytest.mark.slow

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


@pytest.fixture
def config(tiny_model: Path) -> TrainConfig:
    small: dict[str, Any] = {"updates": 2, "groups": 4, "group_size": 4, "selected_per_group": 2, "max_new_tokens": 4}
    tested = {"eval_every": 1, "eval_episodes": 3, "test_episodes": 3}
    return TrainConfig(model=str(tiny_model), lora_rank=4, lora_alpha=8, learning_rate=1e-2, **small, **tested)


# ---- several games


@pytest.mark.parametrize("weights", [{"a": 1}, {"a": 1, "b": 1}, {"a": 3, "b": 1}, {"a": 5, "b": 2, "c": 1}])
def test_groups_are_dealt_by_weight_and_as_evenly_as_whole_numbers_allow(weights: dict[str, int]) -> None:
    names = dict(zip("abc", (LAKE, SNAKE, "Snake-Short-v1"), strict=True))
    text = ",".join(f"{names[name]}={weight}" for name, weight in weights.items())
    order, total = dealing_order(text), sum(weights.values())
    assert Counter(order) == {names[name]: weight for name, weight in weights.items()}
    for length in range(total + 1):
        for name, weight in weights.items():
            assert abs(order[:length].count(names[name]) - length * weight / total) < 1.01


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{LAKE},{LAKE}", "twice"),
        (f"{LAKE}=0,{SNAKE}", "weights from 1 to 1000"),
        (f"{LAKE}=0.5,{SNAKE}", "weights from 1 to 1000"),
        (f"{LAKE},", "unknown game"),
        ("FrozenLake-NotSliperry-v1,Snake-Solo-v1", "did you mean"),
    ],
)
def test_games_that_cannot_be_dealt_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_games(text)


def test_one_game_has_the_starts_it_always_had(config: TrainConfig) -> None:
    alone = starts_of(replace(config, game=LAKE))
    both = starts_of(replace(config, game=f"{LAKE},{SNAKE}"))
    assert {game for game, _ in alone.of_update(1)} == {LAKE}
    assert [game for game, _ in both.of_update(1)] == [LAKE, SNAKE, LAKE, SNAKE]
    assert both.of_update(1)[0] == alone.of_update(1)[0]


def test_a_run_over_two_games_learns_from_both_and_has_a_table_of_each(config: TrainConfig, tmp_path: Path) -> None:
    seen: list[Any] = []

    class Watch(Callback):
        def on_update(self, update: Any) -> None:
            seen.append(update)

    summary = train(replace(config, game=f"{LAKE}=3,{SNAKE}=1"), tmp_path / "run", show_progress=False, callbacks=[Watch()])
    assert [[group.game_id for group in update.groups].count(SNAKE) for update in seen] == [1, 1]
    assert all(len(group.episodes) == 4 for update in seen for group in update.groups)
    [line, _] = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert {f"reward/{LAKE}", f"reward/{SNAKE}", f"validation_reward/{LAKE}", f"validation_reward/{SNAKE}"} <= line.keys()
    mean = (line[f"validation_reward/{LAKE}"] + line[f"validation_reward/{SNAKE}"]) / 2
    assert line["validation_reward"] == pytest.approx(mean)
    assert summary["game"] == LAKE
    [other] = summary["other_games"]
    assert other["game"] == SNAKE
    assert "adapter" in other["players"]
    assert other["adapter"]["episodes"] == summary["adapter"]["episodes"] == 3


# ---- an adapter to begin with


def test_a_run_begins_with_the_adapter_it_is_given(config: TrainConfig, tmp_path: Path) -> None:
    train(config, tmp_path / "first", show_progress=False)
    given = tmp_path / "first" / "adapter"
    second = replace(config, init_adapter=str(given), updates=1, learning_rate=1e-12)
    summary = train(second, tmp_path / "second", show_progress=False)
    before, after = (load_file(tmp_path / run / "adapter" / "adapter_model.safetensors") for run in ("first", "second"))
    assert before.keys() == after.keys()
    assert max((before[name] - after[name]).abs().max().item() for name in before) < 1e-9
    assert max(weight.abs().max().item() for weight in after.values()) > 1e-2
    assert len(summary["init_adapter_commit"]) == 64  # the hash of the folder's content
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "second" / "adapter")
    assert loaded.peft_config["default"].base_model_name_or_path == config.model


@pytest.mark.parametrize(
    "options",
    [
        {"modules_to_save": ["lm_head", "embed_tokens"]},
        {"trainable_token_indices": [5, 6]},
        {"bias": "all"},
        {"use_dora": True},
        {"target_modules": r".*\.(q_proj|up_proj)"},
        {"more_tokens": 8},
    ],
    ids=str,
)
def test_an_adapter_of_any_kind_can_be_trained_further_and_loads_again(
    config: TrainConfig, tmp_path: Path, options: dict[str, Any]
) -> None:
    """What is not LoRA stays as it was."""
    options, base = dict(options), AutoModelForCausalLM.from_pretrained(config.model)
    if more := options.pop("more_tokens", 0):
        base.resize_token_embeddings(len(base.get_input_embeddings().weight) + more)
    torch.manual_seed(0)
    adapted(base, **options).save_pretrained(tmp_path / "given", save_embedding_layers="auto" if more else False)
    small = replace(config, init_adapter=str(tmp_path / "given"), updates=1, learning_rate=1e-12, temperature=2.0)
    train(small, tmp_path / "run", show_progress=False)
    models = [LanguageModel.from_pretrained(config.model, str(tmp_path / name)).model for name in ("given", "run/adapter")]
    first, second = (model(torch.arange(9)[None]).logits for model in models)
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)


def test_an_adapter_of_another_rank_or_none_at_all_is_refused_with_what_to_type(config: TrainConfig, tmp_path: Path) -> None:
    train(replace(config, updates=1, test_episodes=0, eval_every=0), tmp_path / "first", show_progress=False)
    given = str(tmp_path / "first" / "adapter")
    with pytest.raises(UserError, match="has lora_rank 4: expected the same of the run, with --lora-rank 4"):
        train(replace(config, init_adapter=given, lora_rank=2), tmp_path / "a", show_progress=False)
    with pytest.raises(UserError, match=r"has lora_dropout 0.0, rslora False: .*, with --lora-dropout 0.0 --no-rslora"):
        train(replace(config, init_adapter=given, lora_dropout=0.3, rslora=True), tmp_path / "d", show_progress=False)
    with pytest.raises(UserError, match=r"lora_targets = 'q_proj', and init_adapter = .* has its own layers"):
        train(replace(config, init_adapter=given, lora_targets="q_proj"), tmp_path / "e", show_progress=False)
    with pytest.raises(UserError, match=r"the adapter '.*snake' does not fit its base"):
        train(replace(config, init_adapter="snake", lora_rank=16, lora_alpha=32), tmp_path / "f", show_progress=False)
    with pytest.raises(UserError, match="was trained with prompt_format 'think-action': expected the same of the run"):
        train(replace(config, init_adapter=given, prompt_format="json"), tmp_path / "g", show_progress=False)
    with pytest.raises(UserError, match="is not a LoRA adapter"):
        train(replace(config, init_adapter=config.model), tmp_path / "b", show_progress=False)
    with pytest.raises(UserError, match=f"give its base, and --init-adapter {given}"):
        train(replace(config, model=given), tmp_path / "c", show_progress=False)


# ---- callbacks


class Diary(Callback):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_start(self, run: Any) -> None:
        self.lines.append(f"start after {run.updates}, in {run.folder.name}")

    def on_update(self, update: Any) -> None:
        checkpoint = "validation_reward" in update.metrics
        self.lines.append(f"update {update.index}: {len(update.groups)} groups, validated: {checkpoint}")

    def on_end(self, summary: Mapping[str, Any]) -> None:
        self.lines.append(f"end: {summary['model'] != ''}")


def test_a_callback_is_told_of_the_start_each_update_and_the_end(config: TrainConfig, tmp_path: Path) -> None:
    diary = Diary()
    train(replace(config, eval_every=2), tmp_path / "run", show_progress=False, callbacks=[diary])
    assert diary.lines == [
        "start after 0, in run",
        "update 1: 4 groups, validated: False",
        "update 2: 4 groups, validated: True",
        "end: True",
    ]
