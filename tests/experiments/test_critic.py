"""The critic as a credit of a run: what it learns, its advantages by hand, and its place in the trainer and the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from benchmark.experiments.exact_gradient.critic import Critic
from msgrpo_hub.credit import CreditContext, LearningCredit
from msgrpo_hub.episode import Completion, Episode, Group, Step
from msgrpo_hub.training.config import preset

CONTEXT = CreditContext()
START, LEFT, RIGHT = (1, 2, 3), (1, 2, 4), (1, 2, 5)


def group_of(*episodes: Sequence[tuple[tuple[int, ...], float]]) -> Group:
    """Episodes of (prompt, reward) steps."""

    def step(prompt: tuple[int, ...], reward: float) -> Step:
        completion = Completion(text="", prompt_ids=prompt)
        return Step(observation=str(prompt), completion=completion, action="Up", status="ok", legal=True, reward=reward)

    played = [
        Episode(
            game_id="g", seed=0, member=j, steps=tuple(step(*s) for s in steps), terminated=True, truncated=False, success=False
        )
        for j, steps in enumerate(episodes)
    ]
    return Group(game_id="g", seed=0, episodes=tuple(played))


GROUP = group_of([(START, 0.0), (LEFT, 1.0)], [(START, 0.0), (RIGHT, 0.0)], [(START, 0.0), (RIGHT, 0.0)])


def taught(trace: float) -> Critic:
    critic = Critic(trace, ridge=1e-4)
    for _ in range(40):
        critic.update([GROUP], [], CONTEXT)
    return critic


@pytest.mark.parametrize("trace", [1.0, 0.5, 0.0])
def test_the_critic_learns_the_mean_return_from_each_prompt(trace: float) -> None:
    critic = taught(trace)
    values = [critic.value((START, 0)), critic.value((LEFT, 1)), critic.value((RIGHT, 1))]
    assert values == pytest.approx([1 / 3, 1.0, 0.0], abs=0.01)


def test_advantages_are_those_of_gae_by_hand() -> None:
    critic = taught(0.5)
    start, left = critic.value((START, 0)), critic.value((LEFT, 1))
    ((first, *_),) = critic.advantages([GROUP], [], CONTEXT)
    last = 1.0 - left
    assert first.tolist() == pytest.approx([left - start + 0.5 * last, last], abs=1e-6)


def test_an_untaught_critic_gives_the_discounted_sum_of_rewards() -> None:
    ((first, *_),) = Critic(0.5).advantages([GROUP], [], CONTEXT)
    assert first.tolist() == [0.5, 1.0]


def test_the_state_of_a_critic_is_all_that_it_has_learned() -> None:
    taught_one, restored = taught(0.9), Critic(0.9, ridge=1e-4)
    restored.load_state_dict(taught_one.state_dict())
    assert restored.value((LEFT, 1)) == taught_one.value((LEFT, 1))
    assert all(isinstance(tensor, torch.Tensor) for tensor in taught_one.state_dict().values())


def test_a_run_takes_the_critic_by_its_name() -> None:
    config = replace(preset("quickstart"), credit="benchmark.experiments.exact_gradient.critic:Critic")
    assert isinstance(config.choice("credit"), LearningCredit)
