"""TRL: the rows of `trl_rollout` and the episodes of `trl_environment` are ours, and TRL's trainer learns from both."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig

from msgrpo_hub.agent import Prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, episode_seed, make_game
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.interop.trl import (
    HOW,
    OVER,
    environment_dataset,
    episode_return,
    rollout_dataset,
    trl_environment,
    trl_rollout,
)
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.rollout import play_episodes

LAKE, SLIPPERY = "FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1"
SNAKE, SHORT = "Snake-Standard-v1", "Snake-Short-v1"
REQUEST = THINK_ACTION.render(make_game(SLIPPERY), "", ())[-1]["content"].removeprefix("Current Observation:\n\n")
Train = Callable[..., Any]


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Train:
    """Trains one update of two groups of 8 with TRL, and returns the trainer."""
    monkeypatch.setitem(os.environ, "TRL_EXPERIMENTAL_SILENCE", "1")
    trl = pytest.importorskip("trl", reason="the extra trl is not installed")

    def run(settings: dict[str, Any], **given: Any) -> Any:
        common = {"use_cpu": True, "gradient_checkpointing": False, "report_to": [], "save_strategy": "no", "logging_steps": 1}
        common |= {"output_dir": str(tmp_path), "max_steps": 1, "per_device_train_batch_size": 16, "num_generations": 8}
        trainer = trl.GRPOTrainer(args=trl.GRPOConfig(**common | settings), **given)
        trainer.train()
        return trainer

    return run


def check_groups(episodes: Sequence[Episode]) -> None:
    """Two groups of 8: the members share the seed and not the dynamics."""
    for group in (episodes[:8], episodes[8:]):
        assert len({episode.seed for episode in group}) == 1
        assert len({episode.member for episode in group}) == 8


# ---- rows of a rollout


@pytest.fixture(scope="module")
def base() -> LanguageModel:
    return LanguageModel.from_pretrained("pocket", max_new_tokens=32)


def trainer_of(base: LanguageModel) -> Any:
    args = SimpleNamespace(temperature=1.0, max_completion_length=32, top_k=0, top_p=1.0)
    return SimpleNamespace(model=base.model, processing_class=base.tokenizer, args=args)


def test_a_batch_of_two_games_comes_back_in_order_and_each_row_is_a_step_of_its_episode(base: LanguageModel) -> None:
    starts = ((LAKE, 1), (SHORT, 2), (LAKE, 1), (LAKE, 3))
    prompts = [f"{game}#{episode_seed(game, 'train', index)}" for game, index in starts]
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
    row = rows[0]  # its log-probabilities equal a plain forward pass
    ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
    with torch.no_grad():
        log_probs = base.model(ids).logits[0].log_softmax(-1)
    count = len(row["completion_ids"])
    expected = [log_probs[place - 1, ids[0, place]].item() for place in range(ids.shape[1] - count, ids.shape[1])]
    assert row["logprobs"] == pytest.approx(expected, abs=1e-4)


def test_every_step_of_an_episode_is_sampled(base: LanguageModel) -> None:
    batches: list[Any] = []
    random.seed(0)
    columns = trl_rollout(on_episodes=batches.append)([f"{SHORT}#5"] * 60, trainer_of(base))
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
def test_trl_learns_from_our_returns_and_each_group_has_one_start(base: LanguageModel, train: Train) -> None:
    seen: list[Any] = []
    trainer = train(
        {"max_completion_length": 32, "learning_rate": 1e-3, "bf16": True},  # bf16 is TRL's default
        model=LanguageModel.from_pretrained("pocket").model,
        peft_config=LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"),
        processing_class=base.tokenizer,
        reward_funcs=episode_return,
        train_dataset=rollout_dataset(LAKE, 2),
        rollout_func=trl_rollout(on_episodes=seen.append),
    )
    [episodes] = seen
    check_groups(episodes)
    returns = [episode.reward - episode.unreadable for episode in episodes]
    [log] = [line for line in trainer.state.log_history if "rewards/episode_return/mean" in line]
    assert log["rewards/episode_return/mean"] == pytest.approx(sum(returns) / 16, abs=1e-6)
    assert len(set(returns)) > 1
    assert any(weight.any() for name, weight in trainer.model.named_parameters() if "lora_B" in name)  # they begin at 0


# ---- an environment with a tool


@dataclass(frozen=True)
class Says:
    replies: Iterator[str]

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [Completion(text=next(self.replies)) for _ in prompts]


def ours(game: Game, episode: Episode) -> Episode:
    says = Says(iter([step.completion.text for step in episode.steps]))
    [played] = play_episodes(game, says, [(episode.seed, episode.member)])
    return played


@pytest.mark.parametrize("game", [SLIPPERY, SNAKE])
def test_an_episode_and_its_reward_are_those_of_our_rollout_and_after_its_end_nothing_changes(game: str) -> None:
    rng, rewards, unparsed = np.random.default_rng(1), set(), 0
    answers = [*(f"<action>{action}</action>" for action in make_game(game).actions), "I would rather not."]
    for seed in range(20):
        environment = trl_environment(game)()
        assert environment.reset(seed=seed, prompt="ignored").startswith("Current Observation:\n")
        while not (last := environment.play(str(rng.choice(answers)))).endswith(OVER):
            assert last.startswith("Current Observation:\n")
            assert last.endswith("</action>")
        episode, reward = environment._play.episode(), environment.get_reward()
        assert episode == ours(make_game(game), episode)
        assert reward == episode.reward - episode.unreadable
        assert environment.play(answers[0]) == last
        assert (environment._play.episode(), environment.get_reward()) == (episode, reward)
        rewards.add(reward)
        unparsed += episode.unreadable
    assert len(rewards) > 2
    assert unparsed


def test_the_datasets_have_the_starts_of_a_split() -> None:
    rows = list(environment_dataset(SNAKE, 3, run=4))
    assert [row["seed"] for row in rows] == [episode_seed(SNAKE, "train", index, 4) for index in range(3)]
    assert {row["split"] for row in rows} == {"train"}
    system, user = rows[0]["prompt"]
    assert system["content"].endswith(HOW)
    assert "[Rules]" in system["content"]
    assert user == {"role": "user", "content": ""}
    seeds = [episode_seed(LAKE, "validation", index) for index in range(3)]
    assert list(rollout_dataset(LAKE, 3, split="validation")) == [{"prompt": f"{LAKE}#{seed}#validation"} for seed in seeds]


@pytest.mark.slow
def test_trl_trains_a_qwen3_through_its_tool_with_our_rewards(train: Train) -> None:
    """Qwen3's real template, and a tiny model that calls the tool: each of its calls is a turn of ours."""
    from tests.interop.chain_model import chain_model, chain_tokenizer

    lake = FrozenLake(SLIPPERY, frozen_probability=0.9, slippery=True, horizon=3)  # that game, but short
    rows = environment_dataset(SLIPPERY, 2)
    tokenizer = chain_tokenizer([rows[0]["prompt"][0]["content"], REQUEST])
    model = chain_model(tokenizer)
    before = model.lm_head.weight.detach().clone()
    trainer = train(
        {"max_completion_length": 1000, "max_tool_calling_iterations": lake.horizon, "learning_rate": 1e-2, "bf16": False},
        model=model,
        processing_class=tokenizer,
        train_dataset=rows,
        environment_factory=trl_environment(lake),
    )
    episodes = [environment._play.episode() for environment in trainer.environments]
    assert [episode == ours(lake, episode) for episode in episodes] == [True] * 16
    check_groups(episodes)
    rewards = [episode.reward - episode.unreadable for episode in episodes]
    [log] = [line for line in trainer.state.log_history if "rewards/GameEnvironment/mean" in line]
    assert log["rewards/GameEnvironment/mean"] == pytest.approx(np.mean(rewards), abs=1e-6)
    assert {episode.terminated or episode.truncated for episode in episodes} == {True}
    assert (log["tools/call_frequency"], log["tools/failure_frequency"]) == (3, 0)
    assert not model.lm_head.weight.equal(before)


@pytest.mark.slow
def test_the_example_trains_a_model_of_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra trl is not installed")
    from tests.interop.chain_model import save_chain_model

    rules = environment_dataset("FrozenLake-NotSlippery-v1", 1)[0]["prompt"][0]["content"]
    folder = save_chain_model(tmp_path / "model", [rules, REQUEST])
    root = Path(__file__).parents[2]
    command = [sys.executable, root / "examples" / "trl_environment.py", folder]
    environment = os.environ | {"PYTHONPATH": str(root), "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"(mean reward -?\d\.\d\d, 8\.0 calls per episode\n){2}$", done.stdout), done.stdout
