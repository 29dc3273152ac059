"""Our episodes as rows of TRL's `rollout_func`: one step each, with the return of its episode."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.interop.trl_rollout import episode_return, rollout_dataset, trl_rollout
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.rollout import play_episodes

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Short-v1"


@pytest.fixture(scope="module")
def base() -> LanguageModel:
    return LanguageModel.from_pretrained("pocket", max_new_tokens=32)


def test_the_dataset_names_game_and_start_and_leaves_the_member_open() -> None:
    rows = list(rollout_dataset(LAKE, 3, split="validation"))
    seeds = [episode_seed(LAKE, "validation", index) for index in range(3)]
    assert rows == [{"prompt": f"{LAKE}#{seed}", "seed": seed, "member": None} for seed in seeds]


def test_a_batch_of_two_games_comes_back_in_order_and_each_row_is_a_step_of_its_episode(base: LanguageModel) -> None:
    prompts = [f"{game}#{seed}" for game, seed in ((LAKE, 1), (SNAKE, 2), (LAKE, 1), (LAKE, 3))]
    rollout = trl_rollout(format_penalty=0.5)
    episodes = rollout.play(prompts, base)
    assert [f"{episode.game_id}#{episode.seed}" for episode in episodes] == prompts
    assert episodes[0].member != episodes[2].member
    for episode in episodes:
        row = rollout.row(episode)
        steps = [step.completion for step in episode.steps]
        assert (row["prompt_ids"], row["completion_ids"]) in [(list(c.prompt_ids), list(c.token_ids)) for c in steps]
        assert row["episode_return"] == episode.reward - 0.5 * episode.unreadable


def test_episodes_are_those_that_our_rollout_plays_with_their_seeds_and_members(base: LanguageModel) -> None:
    episodes = trl_rollout().play([f"{SNAKE}#2"] * 2, base)
    assert play_episodes(make_game(SNAKE), base, [(episode.seed, episode.member) for episode in episodes]) == episodes


def test_the_log_probabilities_of_a_row_are_those_of_a_plain_forward_pass(base: LanguageModel) -> None:
    rollout = trl_rollout()
    row = rollout.row(rollout.play([f"{LAKE}#1"], base)[0])
    ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
    with torch.no_grad():
        log_probs = base.model(ids).logits[0].log_softmax(-1)
    count = len(row["completion_ids"])
    expected = [log_probs[place - 1, ids[0, place]].item() for place in range(ids.shape[1] - count, ids.shape[1])]
    assert row["logprobs"] == pytest.approx(expected, abs=1e-4)


def test_every_step_of_an_episode_is_drawn_equally_often(base: LanguageModel) -> None:
    """1,000 draws per step: 6 standard deviations are 190."""
    random.seed(0)
    rollout = trl_rollout()
    [episode] = rollout.play([f"{SNAKE}#5"], base)
    count = len(episode.steps)
    assert count > 3
    places = {step.completion.prompt_ids: place for place, step in enumerate(episode.steps)}
    drawn = Counter(places[tuple(rollout.row(episode)["prompt_ids"])] for _ in range(1000 * count))
    assert len(places) == count
    assert all(abs(drawn[place] - 1000) < 190 for place in range(count))


@pytest.mark.parametrize("prompt", ["Which way?", f"{LAKE}#", f"{LAKE}#-1", [{"role": "user", "content": "Hi"}]])
def test_a_prompt_of_another_dataset_is_refused(prompt: Any, base: LanguageModel) -> None:
    with pytest.raises(UserError, match="expected GAME#SEED; make the dataset with rollout_dataset"):
        trl_rollout().play([prompt], base)


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
