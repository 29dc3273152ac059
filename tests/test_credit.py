"""Credits: hand-computed values, one contract over all credits, and errors of your own credit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from msgrpo_hub.credit import CREDITS, CreditContext, anchor_state
from msgrpo_hub.episode import Completion, Episode, Group, ReplyStatus, Step
from msgrpo_hub.errors import UserError
from msgrpo_hub.msgrpo import ADVANTAGE_SCALES, composite_return, group_advantages, step_advantages

Turn = tuple[str, float | None]
"""(observation, reward; None for an unparsed reply with reward 0)."""


def group_of(*episodes: Sequence[Turn]) -> Group:
    def step(turn: Turn) -> Step:
        observation, reward = turn
        parsed: tuple[str | None, ReplyStatus] = (None, "unreadable") if reward is None else ("Up", "ok")
        action, status = parsed
        empty = Completion(text="")
        return Step(observation=observation, completion=empty, action=action, status=status, legal=True, reward=reward or 0.0)

    played = [
        Episode(game_id="g", seed=0, member=j, steps=tuple(map(step, turns)), terminated=True, truncated=False, success=False)
        for j, turns in enumerate(episodes)
    ]
    return Group(game_id="g", seed=0, episodes=tuple(played))


def returns_of(group: Group, penalty: float) -> Tensor:
    return torch.tensor([composite_return(episode, penalty) for episode in group.episodes])


def credited(name: str, group: Group, penalty: float = 1.0, **context: object) -> list[list[float]]:
    given = CreditContext(format_penalty=penalty, **context)  # type: ignore[arg-type]
    (steps,) = step_advantages(CREDITS[name], [group], [returns_of(group, penalty)], given)
    return [of_episode.tolist() for of_episode in steps]


def test_the_papers_credit_gives_every_step_the_advantage_of_its_episode() -> None:
    group = group_of([("s", 1.0), ("a", 1.0)], [("s", 0.0)])  # C = 2, 0: A = 1, −1
    assert credited("whole-episode", group) == [[1.0, 1.0], [-1.0]]
    assert credited("whole-episode", group, scale=ADVANTAGE_SCALES["none"]) == [[1.0, 1.0], [-1.0]]  # C − mean = 1, −1 too


def test_reward_to_go_by_hand() -> None:
    # Rewards (1, 0, 3) and (0, 2); to go: (4, 3, 3) and (2, 2, –). Mean of each turn: 3, 2.5, 1.5. std(C) = std(4, 2) = 1.
    group = group_of([("s", 1.0), ("a", 0.0), ("b", 3.0)], [("s", 0.0), ("c", 2.0)])
    assert credited("reward-to-go", group) == [pytest.approx([1.0, 0.5, 1.5]), pytest.approx([-1.0, -0.5])]


def test_reward_to_go_takes_the_format_penalty_when_it_falls_due() -> None:
    # An unparsed second reply: rewards (0, −1) and (0, 0); to go (−1, −1), (0, 0); means −0.5; std(C) = 0.5.
    group = group_of([("s", 0.0), ("a", None)], [("s", 0.0), ("a", 0.0)])
    assert credited("reward-to-go", group) == [pytest.approx([-1.0, -1.0]), pytest.approx([1.0, 1.0])]
    assert credited("reward-to-go", group, penalty=0.0) == [[0.0, 0.0], [0.0, 0.0]]


def test_anchor_states_by_hand() -> None:
    # C = 3, 1, 2 → A_E = √1.5, −√1.5, 0. Turn 0 is one anchor: to go 3, 1, 2, the same numbers. On turn 1 two episodes
    # see "a" with 3 and 1 to go: +1, −1; only the third sees "b": 0.
    group = group_of([("s", 0.0), ("a", 3.0)], [("s", 0.0), ("a", 1.0)], [("s", 0.0), ("b", 2.0)])
    e = 1.5**0.5
    assert credited("anchor-state", group) == [
        pytest.approx([2 * e, e + 1]),
        pytest.approx([-2 * e, -e - 1]),
        pytest.approx([0.0, 0.0], abs=1e-6),
    ]
    (half,) = anchor_state([group], [returns_of(group, 1.0)], CreditContext(format_penalty=1.0), omega=0.5)
    assert half[0].tolist() == pytest.approx([1.5 * e, e + 0.5])


def test_an_anchor_is_an_observation_on_a_turn_unless_another_key_is_given() -> None:
    # The first episode sees "a" on turn 0, the second on turn 1; their returns to go are 1 and 3.
    group = group_of([("a", 1.0)], [("b", 0.0), ("a", 3.0)])
    given = ([group], [returns_of(group, 0.0)], CreditContext())
    (by_turn,), (by_state,) = anchor_state(*given), anchor_state(*given, key=lambda step, _: step.observation)
    assert [steps.tolist() for steps in by_turn] == [[-1.0], [1.0, 1.0]]
    assert [steps.tolist() for steps in by_state] == [[-2.0], [1.0, 2.0]]


turns = st.tuples(st.sampled_from(["s", "a", "b"]), st.none() | st.integers(-3, 3).map(float))
episodes = st.lists(st.lists(turns, min_size=1, max_size=5), min_size=2, max_size=6)


@pytest.mark.parametrize("name", CREDITS)
@given(episodes=episodes, penalty=st.sampled_from([0.0, 1.0]))
@settings(max_examples=60)
def test_every_credit_gives_each_step_one_finite_number_whatever_the_order_of_the_group(
    name: str, episodes: list[list[Turn]], penalty: float
) -> None:
    steps = credited(name, group_of(*episodes), penalty)
    assert credited(name, group_of(*[episodes[0]] * 3), penalty) == [[0.0] * len(episodes[0])] * 3, "equal episodes"
    assert [len(of_episode) for of_episode in steps] == [len(turns) for turns in episodes]
    backwards = credited(name, group_of(*reversed(episodes)), penalty)[::-1]
    assert [pytest.approx(of_episode, abs=1e-4) for of_episode in backwards] == steps


@pytest.mark.parametrize("name", CREDITS)
@given(episodes=episodes)
@settings(max_examples=60)
def test_the_first_step_of_every_credit_has_the_advantage_of_the_whole_return(name: str, episodes: list[list[Turn]]) -> None:
    """All first steps start from one state, so every credit ranks them as the paper does."""
    group = group_of(*([("start", 0.0), *turns] for turns in episodes))
    first = torch.tensor([steps[0] for steps in credited(name, group)])
    paper = group_advantages(returns_of(group, 1.0))
    assert torch.allclose(first, paper * (2 if name == "anchor-state" else 1), atol=1e-4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *_: [], "another shape"),
        (lambda groups, *_: [[torch.zeros(1)] for group in groups], "another shape"),
        (lambda groups, *_: [[torch.zeros(7) for e in group.episodes] for group in groups], "another shape"),
        (lambda groups, *_: [[1.0 for e in group.episodes] for group in groups], "another shape"),
        (lambda groups, *_: [["x" for e in group.episodes] for group in groups], "no numbers"),
        (lambda groups, *_: [[torch.full((len(e.steps),), torch.nan) for e in g.episodes] for g in groups], "not finite"),
    ],
)
def test_a_credit_must_give_one_finite_number_per_step(wrong: object, message: str) -> None:
    group = group_of([("s", 1.0), ("a", 1.0)], [("s", 0.0), ("a", 0.0)])
    with pytest.raises(UserError, match=message):
        step_advantages(wrong, [group], [returns_of(group, 0.0)], CreditContext())  # type: ignore[arg-type]
