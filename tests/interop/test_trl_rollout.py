"""Our episodes as rows of TRL's `rollout_func`: one step each, with the return of its episode."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import episode_seed
from msgrpo_hub.interop.trl import episode_return, rollout_dataset, trl_rollout
from msgrpo_hub.models import LanguageModel

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Short-v1"


@pytest.fixture(scope="module")
def base() -> LanguageModel:
    return LanguageModel.from_pretrained("pocket", max_new_tokens=32)


def test_the_dataset_names_game_and_start() -> None:
    seeds = [episode_seed(LAKE, "validation", index) for index in range(3)]
    assert list(rollout_dataset(LAKE, 3, split="validation")) == [{"prompt": f"{LAKE}#{seed}"} for seed in seeds]


def trainer_of(base: LanguageModel) -> Any:
    """The parts of a `GRPOTrainer` that a rollout reads."""
    args = SimpleNamespace(temperature=1.0, max_completion_length=32, top_k=0, top_p=1.0)
    return SimpleNamespace(model=base.model, processing_class=base.tokenizer, args=args)


def test_a_batch_of_two_games_comes_back_in_order_and_each_row_is_a_step_of_its_episode(base: LanguageModel) -> None:
    prompts = [f"{game}#{seed}" for game, seed in ((LAKE, 1), (SNAKE, 2), (LAKE, 1), (LAKE, 3))]
    batches: list[Any] = []
    columns = trl_rollout(format_penalty=0.5, on_episodes=batches.append)(prompts, trainer_of(base))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    [episodes] = batches
    assert [f"{episode.game_id}#{episode.seed}" for episode in episodes] == prompts
    assert episodes[0].member != episodes[2].member
    for row, episode in zip(rows, episodes, strict=True):
        steps = [(list(step.completion.prompt_ids), list(step.completion.token_ids)) for step in episode.steps]
        assert (row["prompt_ids"], row["completion_ids"]) in steps
        assert row["episode_return"] == episode.reward - 0.5 * episode.unreadable
    row = rows[0]  # its log-probabilities are those of a plain forward pass
    ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
    with torch.no_grad():
        log_probs = base.model(ids).logits[0].log_softmax(-1)
    count = len(row["completion_ids"])
    expected = [log_probs[place - 1, ids[0, place]].item() for place in range(ids.shape[1] - count, ids.shape[1])]
    assert row["logprobs"] == pytest.approx(expected, abs=1e-4)


def test_every_step_of_an_episode_is_sampled(base: LanguageModel) -> None:
    batches: list[Any] = []
    random.seed(0)
    columns = trl_rollout(on_episodes=batches.append)([f"{SNAKE}#5"] * 60, trainer_of(base))
    places = Counter(
        [tuple(step.completion.prompt_ids) for step in episode.steps].index(tuple(prompt))
        for episode, prompt in zip(batches[0], columns["prompt_ids"], strict=True)
    )
    assert len(places) >= 4
    assert places[0] < 30


@pytest.mark.parametrize("prompt", ["Which way?", f"{LAKE}#", f"{LAKE}#-1", [{"role": "user", "content": "Hi"}]])
def test_a_prompt_of_another_dataset_is_refused(prompt: Any, base: LanguageModel) -> None:
    with pytest.raises(UserError, match="expected GAME#SEED; make the dataset with rollout_dataset"):
        trl_rollout()([prompt], trainer_of(base))


@pytest.mark.slow
def test_trl_learns_from_our_returns_and_each_group_has_one_start(base: LanguageModel, tmp_path: Path) -> None:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    trl = pytest.importorskip("trl", reason="the extra trl is not installed")
    seen: list[Any] = []
    trainer = trl.GRPOTrainer(
        model=LanguageModel.from_pretrained("pocket").model,
        peft_config=LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"),
        processing_class=base.tokenizer,
        reward_funcs=episode_return,
        train_dataset=rollout_dataset(LAKE, 2),
        rollout_func=trl_rollout(on_episodes=seen.append),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=32,
            learning_rate=1e-3,
            use_cpu=True,
            bf16=True,  # TRL's default
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
        ),
    )
    trainer.train()
    [episodes] = seen
    for group in (episodes[:8], episodes[8:]):
        assert len({episode.seed for episode in group}) == 1
        assert len({episode.member for episode in group}) == 8
    returns = [episode.reward - episode.unreadable for episode in episodes]
    [log] = [line for line in trainer.state.log_history if "rewards/episode_return/mean" in line]
    assert log["rewards/episode_return/mean"] == pytest.approx(sum(returns) / 16, abs=1e-6)
    assert len(set(returns)) > 1
    assert any(weight.any() for name, weight in trainer.model.named_parameters() if "lora_B" in name)  # they begin at 0
