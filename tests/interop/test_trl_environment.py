"""A game as an environment of TRL: the episodes and rewards are ours, and a group shares its start but not its chance."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent import Prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, request_text
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.games import Game, episode_seed, make_game
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.interop.trl import HOW, OVER, GameEnvironment, environment_dataset, trl_environment
from msgrpo_hub.rollout import play_episodes

SLIPPERY, SNAKE = "FrozenLake-Slippery-v1", "Snake-Standard-v1"
REQUEST = request_text(THINK_ACTION.request, make_game(SLIPPERY).actions)


@dataclass(frozen=True)
class Says:
    """A policy that gives these replies, one a turn."""

    replies: Iterator[str]

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [Completion(text=next(self.replies)) for _ in prompts]


def ours(game: Game, episode: Episode) -> Episode:
    """The episode that our rollout plays with the same seed, member and replies."""
    says = Says(iter([step.completion.text for step in episode.steps]))
    [played] = play_episodes(game, says, [(episode.seed, episode.member)])
    return played


def played(game: str, seed: int, replies: np.random.Generator, member: int | None = None) -> GameEnvironment:
    """An environment after an episode of random replies, of which some name no action."""
    environment = trl_environment(game)()
    environment.reset(seed=seed, member=member, prompt="ignored")
    answers = [
        *(f"<action>{action}</action>" for action in make_game(game).actions),
        "I would rather not.",
        "<action>Fly</action>",
    ]
    while not environment.play(str(replies.choice(answers))).endswith(OVER):
        pass
    return environment


@pytest.mark.parametrize("game", [SLIPPERY, SNAKE])
def test_an_episode_and_its_reward_are_those_of_our_rollout(game: str) -> None:
    replies = np.random.default_rng(1)
    environments = [played(game, seed, replies) for seed in range(20)]
    for environment in environments:
        episode = environment.episode
        assert episode == ours(make_game(game), episode)
        assert environment.get_reward() == episode.reward - episode.unreadable
    assert len({environment.get_reward() for environment in environments}) > 2
    assert any(environment.episode.unreadable for environment in environments)


def test_what_the_tool_returns_is_the_next_prompt_and_after_the_end_nothing_changes() -> None:
    environment = trl_environment(SNAKE)()
    first = environment.reset(seed=7)
    assert first.startswith("Current Observation:\n")
    while not (last := environment.play("<action>Up</action>")).endswith(OVER):
        assert last.startswith("Current Observation:\n")
        assert last.endswith("</action>")
    before, reward = environment.episode, environment.get_reward()
    assert environment.play("<action>Down</action>") == last
    assert (environment.episode, environment.get_reward()) == (before, reward)
    environment.reset(seed=7)
    assert environment.get_reward() == 0


def test_the_dataset_has_training_starts() -> None:
    rows = list(environment_dataset(SNAKE, 3, run=4))
    assert [row["seed"] for row in rows] == [episode_seed(SNAKE, "train", index, 4) for index in range(3)]
    assert {row["split"] for row in rows} == {"train"}
    system, user = rows[0]["prompt"]
    assert system["content"].endswith(HOW)
    assert "[Rules]" in system["content"]
    assert user == {"role": "user", "content": ""}


@pytest.fixture
def trl(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(os.environ, "TRL_EXPERIMENTAL_SILENCE", "1")
    return pytest.importorskip("trl", reason="the extra trl is not installed")


@pytest.mark.slow
def test_trl_trains_a_qwen3_through_its_tool_with_our_rewards(trl: Any, tmp_path: Path) -> None:
    """The real trainer, Qwen3's real template, a tiny model that calls the tool: each of its calls is a turn of ours."""
    from tests.interop.chain_model import chain_model, chain_tokenizer

    lake = FrozenLake(SLIPPERY, frozen_probability=0.9, slippery=True, horizon=3)  # that game, but short
    rows = environment_dataset(SLIPPERY, 2)
    tokenizer = chain_tokenizer([rows[0]["prompt"][0]["content"], REQUEST])
    model = chain_model(tokenizer)
    before = model.lm_head.weight.detach().clone()
    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=rows,
        environment_factory=trl_environment(lake),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=1000,
            max_tool_calling_iterations=lake.horizon,
            learning_rate=1e-2,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
        ),
    )
    trainer.train()
    episodes = [environment.episode for environment in trainer.environments]
    assert [episode == ours(lake, episode) for episode in episodes] == [True] * 16
    groups = [episodes[:8], episodes[8:]]
    for group in groups:
        assert len({(episode.seed, episode.steps[0].observation) for episode in group}) == 1
        assert len({episode.member for episode in group}) == 8
    rewards = [episode.reward - episode.unreadable for episode in episodes]
    [log] = [line for line in trainer.state.log_history if "rewards/GameEnvironment/mean" in line]
    assert log["rewards/GameEnvironment/mean"] == pytest.approx(np.mean(rewards), abs=1e-6)
    assert {episode.terminated or episode.truncated for episode in episodes} == {True}
    assert (log["tools/call_frequency"], log["tools/failure_frequency"]) == (3, 0)
    assert not model.lm_head.weight.equal(before)


@pytest.mark.slow
def test_the_example_trains_a_model_of_a_folder(trl: Any, tmp_path: Path) -> None:  # noqa: ARG001
    from tests.interop.chain_model import save_chain_model

    rules = environment_dataset("FrozenLake-NotSlippery-v1", 1)[0]["prompt"][0]["content"]
    folder = save_chain_model(tmp_path / "model", [rules, REQUEST])
    root = Path(__file__).parents[2]
    command = [sys.executable, root / "examples" / "trl_environment.py", folder]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"(mean reward -?\d\.\d\d, 8\.0 calls per episode\n){2}$", done.stdout), done.stdout
