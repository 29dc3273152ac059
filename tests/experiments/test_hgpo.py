"""HGPO: its advantages by hand and by comparing every step with every other, and its units beside the first ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from benchmark.experiments.exact_gradient.estimators import LATER, hgpo
from benchmark.experiments.exact_gradient.experiment import units
from benchmark.experiments.exact_gradient.findings import answer, summary
from benchmark.experiments.exact_gradient.hgpo import HierarchyOfGroups
from benchmark.experiments.exact_gradient.results import checkpoints_of, measured
from benchmark.experiments.experiment import HERE, load
from benchmark.experiments.rows import read_rows, values_of
from msgrpo_hub.credit import CreditContext
from msgrpo_hub.episode import Completion, Episode, Group, Step
from msgrpo_hub.msgrpo import unscaled

PLAIN, SCALED = CreditContext(scale=unscaled), CreditContext()


def group_of(*episodes: tuple[str, float]) -> Group:
    """Episodes of one letter per observation, each with the reward of its last step."""

    def episode(member: int, seen: str, reward: float) -> Episode:
        steps = tuple(
            Step(
                observation=letter,
                completion=Completion(text=""),
                action="Up",
                status="ok",
                legal=True,
                reward=reward * (turn == len(seen) - 1),
            )
            for turn, letter in enumerate(seen)
        )
        return Episode(game_id="g", seed=0, member=member, steps=steps, terminated=True, truncated=False, success=False)

    return Group(game_id="g", seed=0, episodes=tuple(episode(j, *given) for j, given in enumerate(episodes)))


def advantages(group: Group, context: CreditContext = PLAIN, **settings: float) -> list[list[float]]:
    (found,) = HierarchyOfGroups(**settings).advantages([group], [], context)  # type: ignore[arg-type]
    return [of_episode.tolist() for of_episode in found]


THREE = group_of(("ab", 1.0), ("ab", 0.0), ("cb", 1.0))


def test_a_deeper_history_weighs_more_and_a_step_without_company_gets_nothing() -> None:
    """b: 1, 0, 1 less 2/3, of weight 2; b after a: 1, 0 less 1/2, of weight 3."""
    first, second, third = advantages(THREE)
    assert first == pytest.approx([1 / 2, (2 * 1 / 3 + 3 * 1 / 2) / 5])
    assert second == pytest.approx([-1 / 2, (2 * -2 / 3 + 3 * -1 / 2) / 5])
    assert third == pytest.approx([0, 1 / 3])


def test_each_group_is_divided_by_its_own_spread() -> None:
    (first, _, third), spread = advantages(THREE, SCALED), (2 / 9) ** 0.5
    assert first == pytest.approx([1, (2 * (1 / 3) / spread + 3 * 1) / 5])
    assert third == pytest.approx([0, (1 / 3) / spread])


def test_alpha_0_weighs_all_depths_alike_and_no_history_leaves_the_observation_alone() -> None:
    assert advantages(THREE, alpha=0.0)[0][1] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert advantages(THREE, history=0)[0][1] == pytest.approx(1 / 3)


def test_a_depth_at_which_all_returns_are_equal_has_no_weight() -> None:
    assert advantages(group_of(("ab", 1.0), ("ab", 1.0), ("cb", 0.0)))[0][1] == pytest.approx(1 / 3)


def pairwise(group: Group, history: int, context: CreditContext) -> list[list[float]]:
    """Each step against every step, one at a time."""
    seen = [[step.observation for step in episode.steps] for episode in group.episodes]
    to_go = [context.returns_to_go(episode).tolist() for episode in group.episodes]
    places = [(j, t) for j, of_episode in enumerate(seen) for t in range(len(of_episode))]

    def last(place: tuple[int, int], depth: int) -> Sequence[str] | None:
        j, t = place
        return seen[j][t - depth + 1 : t + 1] if t + 1 >= depth else None

    def advantage(place: tuple[int, int]) -> float:
        total = weight = 0.0
        for depth in range(1, history + 2):
            own = last(place, depth)
            alike = [to_go[j][t] for j, t in places if own is not None and last((j, t), depth) == own]
            if len(set(alike)) > 1:
                spread = float(np.std(alike)) if context is SCALED else 1.0
                found = (to_go[place[0]][place[1]] - float(np.mean(alike))) / spread
                total, weight = total + (depth + 1) * found, weight + (depth + 1) * (abs(found) > 1e-12)
        return total / weight if weight else 0.0

    return [[advantage((j, t)) for t in range(len(of_episode))] for j, of_episode in enumerate(seen)]


@pytest.mark.parametrize("context", [PLAIN, SCALED], ids=["plain", "scaled"])
@pytest.mark.parametrize("history", [0, 2, 4])
def test_advantages_are_those_of_comparing_every_step_with_every_other(history: int, context: CreditContext) -> None:
    rng = np.random.default_rng(history)
    played = [("".join(rng.choice(list("abc"), rng.integers(1, 7))), float(rng.choice([0.0, 0.5, 1.0]))) for _ in range(12)]
    group = group_of(*played)
    found, expected = advantages(group, context, history=history), pairwise(group, history, context)
    assert [len(steps) for steps in found] == [len(seen) for seen, _ in played]
    assert np.concatenate(found) == pytest.approx(np.concatenate(expected), abs=1e-5)
    assert np.abs(np.concatenate(found)).max() > 0.1


def test_the_format_penalty_is_part_of_the_returns() -> None:
    credit, context = hgpo(2, 0.5)["HGPO"]
    group = group_of(("a", 1.0), ("a", 1.0))
    (first, second) = group.episodes
    unread = Episode(
        **{name: getattr(second, name) for name in ("game_id", "seed", "member", "terminated", "truncated", "success")},
        steps=tuple(Step(**{**{n: getattr(s, n) for n in Step.__slots__}, "action": None}) for s in second.steps),
    )
    (found,) = credit.advantages([Group(game_id="g", seed=0, episodes=(first, unread))], [], context)
    assert torch.cat(found).tolist() == pytest.approx([0.25, -0.25])


# ---- units that came later


NAMES = [f"{unit}-{later}" for later in LATER for unit in units() if unit.count("-") == 2]
ROWS = values_of(read_rows(load("exact_gradient"), HERE / "exact_gradient"))


def test_every_first_unit_has_one_of_each_that_came_later() -> None:
    assert set(NAMES) < set(units())
    assert len(units()) == (1 + len(LATER)) * sum(name.count("-") == 2 for name in units())


def test_an_estimator_is_shown_once_every_checkpoint_has_it() -> None:
    first = {name: values for name, values in ROWS.items() if name.count("-") == 2}
    later = {
        name: {
            "estimators": {e.name: first[name.rpartition("-")[0]]["estimators"]["reward-to-go"] for e in LATER["HGPO"]},
            "credit_seconds": {e.credit: 0.01 for e in LATER["HGPO"]},
            "gradient_norm": 1.0,
        }
        for name in NAMES
    }
    some = dict(list(later.items())[1:])
    assert "HGPO" not in summary(checkpoints_of(first | some))
    shown = [line.split("|")[1].strip() for line in summary(checkpoints_of(first | later)).splitlines()]
    assert shown[shown.index("anchor states") + 1 :][:3] == ["HGPO / std", "HGPO", "critic, λ = 1"]
    assert len(checkpoints_of(first | later)) == len(first)
    assert len(measured(checkpoints_of(first))) + 2 == len(measured(checkpoints_of(first | later)))


@pytest.mark.parametrize("name", [name for name in NAMES if name in ROWS])
def test_what_came_later_was_measured_on_the_same_episodes_or_the_page_says_where_not(name: str) -> None:
    first, later = ROWS[name.rpartition("-")[0]], ROWS[name]
    game, _, update, _ = name.split("-")
    if f"{game}, {update.removeprefix('update')} (|∇J| is" in answer(ROWS):
        assert later["gradient_norm"] != pytest.approx(first["gradient_norm"], rel=0.001)
        return
    assert later["groups_without_variance"] == first["groups_without_variance"]
    assert later["gradient_norm"] == pytest.approx(first["gradient_norm"], rel=0.001)
    (cosine, error), (before, _) = (row["estimators"]["exact advantage"]["cosine"] for row in (later, first))
    assert cosine == pytest.approx(before, abs=0.2 * error + 2e-4)


def test_most_checkpoints_are_the_same_policy() -> None:
    assert answer(ROWS).count("(|∇J| is") <= 2
