"""What a tracker gets besides metrics: the best and the worst episode of an update, with what they were worth."""

from __future__ import annotations

from dataclasses import replace

from torch import tensor

from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.training.trackers import best_and_worst, facts_of
from tests.storage.traced import scripted_episode


def episode(member: int, reward: float) -> Episode:
    steps = scripted_episode().steps
    return replace(scripted_episode(), member=member, steps=(replace(steps[0], reward=reward), steps[1]))


def test_the_best_and_the_worst_are_those_of_all_groups() -> None:
    groups = [
        Group(game_id="x", seed=n, episodes=tuple(episode(10 * n + k, float(k * (-1) ** n)) for k in range(3))) for n in range(2)
    ]
    ends = best_and_worst(groups, [tensor([-1.0, 0.0, 1.0]), tensor([1.0, 0.0, -1.0])])
    assert [(name, found.member, found.reward, advantage) for name, (found, advantage) in ends.items()] == [
        ("best", 2, 2.0, 1.0),
        ("worst", 12, -2.0, -1.0),
    ]


def test_among_equal_rewards_the_advantage_decides() -> None:
    group = Group(game_id="x", seed=0, episodes=tuple(episode(k, 0.0) for k in range(3)))
    ends = best_and_worst([group], [tensor([0.0, 2.0, -2.0])])
    assert [found.member for found, _ in ends.values()] == [1, 2]


def test_a_trace_says_what_the_episode_was_worth() -> None:
    facts = facts_of(episode(4, 1.0), 7, 0.5)
    assert facts.items() >= {"update": 7, "member": 4, "reward": 1.0, "advantage": 0.5, "turns": 2}.items()
