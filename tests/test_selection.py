"""Which episodes an update learns from, and with which advantages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from msgrpo_hub.episode import Completion, Episode, Group, Step
from msgrpo_hub.msgrpo import (
    CreditContext,
    Sampler,
    SelectedEpisode,
    composite_return,
    group_advantages,
    sample_by_absolute_advantage,
    sample_top,
    select_episodes,
    whole_episode,
)

SILENT = Step(observation="", completion=Completion(text=""), action=None, status="unreadable", legal=False, reward=0.0)


def episode_of(*rewards: float, member: int = 0) -> Episode:
    reply = Completion(text="", prompt_ids=(1,), token_ids=(2,), log_probs=(0.0,))
    steps = [Step(observation="", completion=reply, action="Up", status="ok", legal=True, reward=r) for r in rewards]
    return Episode(game_id="g", seed=0, member=member, steps=tuple(steps), terminated=True, truncated=False, success=False)


def group_of(*returns: float, seed: int = 0) -> Group:
    episodes = [episode_of(r, member=member) for member, r in enumerate(returns)]
    return Group(game_id="g", seed=seed, episodes=tuple(episodes))


def select(
    groups: Sequence[Group], count: int, sampler: Sampler, penalty: float = 1.0, seed: int = 0
) -> tuple[list[list[float]], list[SelectedEpisode]]:
    """As the trainer does: returns, advantages, the paper's credit, selection."""
    returns = [torch.tensor([composite_return(episode, penalty) for episode in group.episodes]) for group in groups]
    advantages = [group_advantages(of_group) for of_group in returns]
    steps = whole_episode(groups, returns, CreditContext(format_penalty=penalty))
    generator = torch.Generator().manual_seed(seed)
    return [a.tolist() for a in advantages], select_episodes(groups, advantages, steps, count, sampler, generator)


def test_advantages_stay_per_group_and_a_group_without_variance_is_left_out() -> None:
    groups = [group_of(1, 0, 0, 1), group_of(5, 5, 5, 5), group_of(100, 0, 0, 0)]
    advantages, selected = select(groups, 2, sample_top)
    third = 3**0.5  # C = 100, 0, 0, 0: mean 25, std 25·√3, so A = √3 and −1/√3
    assert advantages == [[1, -1, -1, 1], [0, 0, 0, 0], pytest.approx([third, -1 / third, -1 / third, -1 / third])]
    assert [item.episode for item in selected] == [*groups[0].episodes[:2], *groups[2].episodes[:2]]
    assert [item.advantages for item in selected] == [(1,), (-1,), pytest.approx((third,)), pytest.approx((-1 / third,))]


def test_no_variance_anywhere_selects_nothing() -> None:
    assert select([group_of(1, 1, 1), group_of(0, 0, 0)], 2, sample_top)[1] == []


def test_the_format_penalty_is_part_of_the_return() -> None:
    silent = Episode(game_id="g", seed=0, member=0, steps=(SILENT,), terminated=True, truncated=False, success=False)
    group = Group(game_id="g", seed=0, episodes=(silent, episode_of(0.0, member=1)))
    assert select([group], 1, sample_top, 1.0)[0] == [[-1.0, 1.0]]
    assert select([group], 1, sample_top, 0.0)[0] == [[0.0, 0.0]]


def test_every_selected_episode_carries_its_own_advantage_for_every_step() -> None:
    rewards = [np.random.default_rng(i).integers(0, 9, (12, 3)).astype(float) for i in range(3)]
    groups = [
        Group(game_id="g", seed=i, episodes=tuple(episode_of(*row, member=j) for j, row in enumerate(rewards[i].tolist())))
        for i in range(3)
    ]
    _, selected = select(groups, 4, sample_by_absolute_advantage)
    assert len(selected) == 12
    for number, item in enumerate(selected):
        group = groups[number // 4]
        expected = group_advantages(torch.tensor([episode.reward for episode in group.episodes]))
        assert item.episode is group.episodes[item.episode.member]
        assert item.advantages == (expected[item.episode.member].item(),) * 3


def test_a_group_is_kept_for_step_advantages_alone_and_left_out_only_without_any() -> None:
    groups = [group_of(1, 1), group_of(1, 1)]
    steps = [[torch.tensor([0.0]), torch.tensor([0.5])], [torch.tensor([0.0]), torch.tensor([0.0])]]
    selected = select_episodes(groups, [torch.zeros(2), torch.zeros(2)], steps, 2, sample_top, torch.Generator())
    assert [(item.episode, item.advantages) for item in selected] == [
        (groups[0].episodes[0], (0.0,)),
        (groups[0].episodes[1], (0.5,)),
    ]
