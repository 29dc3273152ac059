"""The exact gradient: against finite differences in float64, and against the sum over all episodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from benchmark.experiments.exact_gradient.exact import gradient_weights, solve_policy, states_by_turn
from benchmark.experiments.exact_gradient.policy import FixedReplies
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from tests.experiments.small import PENALTY, lake, paths, simulator_of, tiny_policy
from tests.tiny import adapted, tiny_model


def parameters_of(policy: FixedReplies) -> list[torch.nn.Parameter]:
    return [parameter for parameter in policy.agent.model.parameters() if parameter.requires_grad]


def row_in(policy: FixedReplies, game: FrozenLake) -> Callable[[LakeState], int]:
    rows = {prompt.observation: row for row, prompt in enumerate(policy.prompts)}
    return lambda state: rows[game.observe(state)]


def exact_gradient(policy: FixedReplies, game: FrozenLake, start: LakeState) -> torch.Tensor:
    """(P,) ∇J by the formula."""
    known, row_of = policy.gradients(parameters_of(policy)), row_in(policy, game)

    def table(state: LakeState) -> np.ndarray:
        return known.probabilities[row_of(state)]

    solution = solve_policy(game, start, table, PENALTY)
    return torch.from_numpy(gradient_weights([solution], table, row_of).flatten()) @ known.scores


def test_the_exact_gradient_is_that_of_the_sum_over_all_episodes() -> None:
    game, start = lake(2, horizon=3), LakeState(2, ((0, 1),))
    policy = tiny_policy(game, start)
    log_probs, row_of = policy.log_probabilities(), row_in(policy, game)
    terms = [
        (torch.exp(sum(log_probs[row_of(state), option] for state, option in path.steps)) * path.chance, path.value)
        for path in paths(game, start)
    ]
    assert float(sum(probability for probability, _ in terms)) == pytest.approx(1.0)
    parameters = parameters_of(policy)
    summed = torch.autograd.grad(sum(probability * value for probability, value in terms), parameters)
    gradient = exact_gradient(policy, game, start)
    assert gradient.norm() > 1e-3
    assert (gradient - torch.cat([part.flatten() for part in summed])).norm() < 1e-12 * len(terms)


@pytest.mark.parametrize("direction", range(2))
def test_the_exact_gradient_agrees_with_finite_differences(direction: int) -> None:
    game, start = lake(3, horizon=5), LakeState(3, ((1, 1),))
    policy = tiny_policy(game, start)
    parameters, row_of = parameters_of(policy), row_in(policy, game)
    size = sum(parameter.numel() for parameter in parameters)
    along = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(direction))

    def value(distance: float) -> float:
        moved = torch.nn.utils.parameters_to_vector(parameters) + distance * along
        torch.nn.utils.vector_to_parameters(moved.detach(), parameters)
        with torch.no_grad():
            table = policy.log_probabilities().exp().numpy()
        torch.nn.utils.vector_to_parameters((moved - distance * along).detach(), parameters)
        return solve_policy(game, start, lambda state: table[row_of(state)], PENALTY).value

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    assert abs(slope) > 1e-3
    assert float(exact_gradient(policy, game, start) @ along) == pytest.approx(slope, rel=1e-6)


def test_probabilities_are_those_of_the_model_renormalised_over_the_replies() -> None:
    game, start = lake(), LakeState(2, ())
    policy = tiny_policy(game, start)
    known = policy.gradients(parameters_of(policy))
    likelihoods = policy.log_likelihoods(0).detach().exp().numpy()
    assert known.outside[0] == pytest.approx(1 - likelihoods.sum())
    assert known.probabilities[0] == pytest.approx(likelihoods / likelihoods.sum())
    assert known.probabilities.sum(1) == pytest.approx(np.ones(3))
    assert known.gram() == pytest.approx((known.scores @ known.scores.T).numpy())


def test_prefixes_shared_between_replies_change_neither_probabilities_nor_gradients() -> None:
    """Checkpoints are trained with shared prefixes; what they are held against is computed reply by reply."""
    game, start = lake(), LakeState(2, ())
    policy = tiny_policy(game, start, adapted(tiny_model(vocab_size=1005)))
    known, rows = policy.gradients(parameters_of(policy)), range(len(policy.prompts))
    weights = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    log_probs = policy.shared_log_probabilities(rows)
    assert log_probs.exp().detach().numpy() == pytest.approx(known.probabilities, abs=1e-5)
    with policy.agent.engine.learning():
        parts = torch.autograd.grad((weights * log_probs).sum(), parameters_of(policy))
    expected = weights.flatten() @ known.scores
    assert (torch.cat([part.flatten() for part in parts]) - expected).norm() < 1e-4 * expected.norm()


def test_values_and_visits_are_those_of_the_sum_over_all_episodes() -> None:
    game, start = lake(2, horizon=3), LakeState(2, ())
    simulator = simulator_of(game, start)
    solution = solve_policy(game, start, simulator.policy, PENALTY)
    value, visits = 0.0, dict.fromkeys(solution.visits, 0.0)
    for path in paths(game, start):
        chance = path.chance * np.prod([simulator.policy(state)[option] for state, option in path.steps])
        value += chance * path.value
        for state, _ in path.steps:
            visits[state] += chance
    assert solution.value == pytest.approx(value)
    assert solution.visits == pytest.approx(visits)


def test_a_state_is_a_cell_on_a_turn_and_a_prompt_is_a_cell_alone() -> None:
    game, start = lake(2, horizon=3), LakeState(2, ())
    assert [len(states) for states in states_by_turn(game, start)] == [1, 3, 3]
    assert len(simulator_of(game, start).row_of) == 3
