"""The estimators: their expectations over all groups, their selections, and the statistics of the comparison."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from benchmark.experiments.exact_gradient.comparison import TARGET, compare
from benchmark.experiments.exact_gradient.estimators import Estimation, Estimator, ScaledCredit, built_in_credits
from benchmark.experiments.exact_gradient.exact import Floats, gradient_weights, solve_policy
from benchmark.experiments.exact_gradient.exact_credit import ExactCredit
from benchmark.experiments.exact_gradient.selection import corrected, inclusion_probabilities, selections
from benchmark.experiments.exact_gradient.simulation import Simulator
from msgrpo_hub.credit import CreditContext
from msgrpo_hub.episode import Episode, Group, Step
from msgrpo_hub.games.frozen_lake import LakeState
from tests.enumeration import subset_probabilities
from tests.experiments.small import PENALTY, Path, lake, paths, simulator_of

GAME, START = lake(2, horizon=2, slippery=False), LakeState(2, ((0, 1),))
ADVANTAGES = torch.tensor([2.0, -0.5, -0.5, 0.0, -1.0])


def of_logits(weights: Floats, probabilities: Floats) -> Floats:
    """The gradient of a policy whose parameters are its logits, from the weights of ∇log π(a | s) = e_a − π(s)."""
    table = weights.reshape(probabilities.shape)
    return table - table.sum(1, keepdims=True) * probabilities


def episode_of(path: Path, simulator: Simulator, member: int) -> Episode:
    """The record of a possible episode."""
    options = (*GAME.actions, None)
    steps = [simulator._step(state, k, GAME.outcomes(state, options[k])[0][1].reward) for state, k in path.steps]
    return Episode(game_id=GAME.id, seed=0, member=member, steps=tuple(steps), terminated=True, truncated=False, success=False)


@cache
def expected(penalty: float, *names: str) -> dict[str, Floats]:
    """The expectations of estimators with G = 2, over all pairs of episodes, and the exact gradient."""
    simulator = simulator_of(GAME, START)
    solution = solve_policy(GAME, START, simulator.policy, penalty)
    credits = built_in_credits(penalty)
    credits["exact advantage"] = ScaledCredit(ExactCredit(GAME, [solution]), CreditContext(format_penalty=penalty))
    estimation = Estimation(
        simulator=simulator, credits=credits, selections=selections(64), count=1, generator=torch.Generator().manual_seed(0)
    )
    totals = [np.zeros(simulator.probabilities.size) for _ in names]
    played = list(paths(GAME, START))
    chances = [path.chance * np.prod([simulator.policy(state)[option] for state, option in path.steps]) for path in played]
    for first, second in product(range(len(played)), repeat=2):
        pair = tuple(episode_of(played[k], simulator, member) for member, k in enumerate((first, second)))
        group = Group(game_id=GAME.id, seed=0, episodes=pair)
        for total, weights in zip(totals, estimation.weights([group], list(map(Estimator, names))), strict=True):
            total += chances[first] * chances[second] * weights
    exact = gradient_weights([solution], simulator.policy, simulator.row).flatten()
    found = dict(zip(names, totals, strict=True)) | {"gradient": exact}
    return {name: of_logits(weights, simulator.probabilities) for name, weights in found.items()}


def sine(estimate: Floats, exact: Floats) -> float:
    """Of the angle between them."""
    a, b = estimate / np.linalg.norm(estimate), exact / np.linalg.norm(exact)
    return float(np.linalg.norm(a - (a * b).sum() * b))


def test_the_exact_advantage_is_unbiased() -> None:
    found = expected(PENALTY, "exact advantage")
    assert found["exact advantage"] == pytest.approx(found["gradient"])


@pytest.mark.parametrize(("credit", "penalty"), [("whole episode", PENALTY), ("reward-to-go", 0.0)])
def test_returns_less_their_mean_are_unbiased_but_for_one_over_g(credit: str, penalty: float) -> None:
    """The mean includes the episode's own return, which takes 1 / G of the gradient."""
    found = expected(penalty, credit)
    assert found[credit] == pytest.approx((1 - 1 / 2) * found["gradient"])


@pytest.mark.parametrize("credit", ["whole episode / std", "anchor states"])
def test_the_spread_of_the_group_and_anchor_states_bias_the_direction(credit: str) -> None:
    found = expected(PENALTY, credit)
    assert sine(found[credit], found["gradient"]) > 1e-3


def test_reward_to_go_is_biased_where_equal_returns_came_at_different_turns() -> None:
    """It gives such a group 0, for example if both episodes had one unparsed reply, on different turns."""
    found = expected(PENALTY, "reward-to-go")
    assert sine(found["reward-to-go"], found["gradient"]) > 1e-3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_inclusion_probabilities_of_five_are_those_of_enumeration(count: int) -> None:
    sets = subset_probabilities(torch.softmax(ADVANTAGES.abs().double(), 0).tolist(), count)
    exact = [sum(chance for selected, chance in sets.items() if j in selected) for j in range(5)]
    simulated = inclusion_probabilities(ADVANTAGES, count, 100_000)
    assert simulated.tolist() == pytest.approx(exact, abs=0.006)  # four standard errors
    assert float(simulated.sum()) == pytest.approx(count)
    assert simulated[1] == simulated[2]


def test_corrected_selection_has_the_mean_of_the_whole_group() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([corrected(20_000, ADVANTAGES, 2, generator) for _ in range(2_000)])
    error = drawn.std(0) / len(drawn) ** 0.5
    assert bool(((drawn.mean(0) - 1 / 5).abs() < 4 * error + 0.002).all())


def test_simulated_episodes_have_the_value_and_the_choices_of_the_policy() -> None:
    game, start = lake(2, horizon=3), LakeState(2, ())
    simulator = simulator_of(game, start)
    group = simulator.group(start, 4_000, np.random.default_rng(0))
    returns = [episode.reward - PENALTY * episode.unreadable for episode in group.episodes]
    value = solve_policy(game, start, simulator.policy, PENALTY).value
    assert np.mean(returns) == pytest.approx(value, abs=4 * np.std(returns) / len(returns) ** 0.5)
    chosen = np.bincount(simulator.entries(group.episodes), minlength=15).reshape(3, 5)
    assert chosen / chosen.sum(1, keepdims=True) == pytest.approx(simulator.probabilities, abs=0.05)


def test_the_comparison_finds_bias_variance_and_cosine() -> None:
    rng, exact, gram = np.random.default_rng(0), np.array([3.0, 0.0, 0.0]), np.eye(3)
    unbiased = compare(2 * exact + rng.normal(0, 3, (4_000, 3)), exact, gram)
    assert unbiased["cosine_of_mean"][0] == pytest.approx(1.0, abs=0.001)
    assert unbiased["bias"][0] == pytest.approx(1.0, abs=4 * unbiased["bias"][1])
    assert unbiased["variance"][0] == pytest.approx(27 / 36, abs=4 * unbiased["variance"][1])
    needed = (27 / 36) / (1 / TARGET**2 - 1)
    assert unbiased["updates_needed"][0] == pytest.approx(needed, abs=4 * unbiased["updates_needed"][1])
    oblique = compare(np.array([3.0, 4.0, 0.0]) + rng.normal(0, 0.1, (4_000, 3)), exact, gram)
    assert oblique["cosine"][0] == pytest.approx(0.6, abs=0.01)
    assert oblique["scaled_bias"][0] == pytest.approx(0.8, abs=0.01)
    assert oblique["updates_needed"] == (float("inf"), float("inf"))


def test_a_control_variate_takes_noise_from_the_mean_alone() -> None:
    rng, exact, gram = np.random.default_rng(0), np.array([1.0, 0.0]), np.eye(2)
    control = exact + rng.normal(0, 2, (2_000, 2))
    biased = np.array([1.0, 0.5]) + (control - exact) + rng.normal(0, 0.2, (2_000, 2))
    without, with_control = compare(biased, exact, gram), compare(biased, exact, gram, control)
    assert with_control["cosine_of_mean"][0] == pytest.approx(1 / 1.25**0.5, abs=4 * with_control["cosine_of_mean"][1])
    assert with_control["cosine_of_mean"][1] < 0.3 * without["cosine_of_mean"][1]
    assert with_control["cosine"] == without["cosine"]


def test_a_statistic_scatters_as_its_standard_error_says() -> None:
    rng, exact, gram = np.random.default_rng(1), np.array([1.0, 0.0]), np.eye(2)
    found = [compare(exact + rng.normal(0, 1, (500, 2)), exact, gram)["cosine"] for _ in range(30)]
    values, errors = np.array(found).T
    assert 0.7 < values.std() / errors.mean() < 1.4


def test_steps_of_equal_state_and_action_are_one_record() -> None:
    simulator = simulator_of(GAME, START)
    group = simulator.group(START, 50, np.random.default_rng(0))
    steps: list[Step] = [step for episode in group.episodes for step in episode.steps]
    assert len(set(map(id, steps))) < len(steps)
