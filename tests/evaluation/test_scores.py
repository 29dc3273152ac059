"""Scores of episodes: regrets by hand and by enumeration, and a luck-adjusted score that is unbiased and less noisy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import Prompt, ScriptedPolicy
from msgrpo_hub.episode import Completion, Episode, EpisodeScore, StepScore
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.games import GAMES, Game, episode_seed, make_game, stream
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_episodes, replayed_states
from tests.evaluation.played import SLIPPERY

LAKES = [id for id in GAMES if id.startswith("FrozenLake")]
SNAKES = [id for id in GAMES if id.startswith("Snake")]


@dataclass(frozen=True)
class Careless:
    """A random player with a share of unreadable replies."""

    silent: float = 0.3

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = ScriptedPolicy(choose_random).complete(prompts, rngs)
        return [Completion(text="hm") if g.random() < self.silent else r for r, g in zip(replies, rngs, strict=True)]


@dataclass(frozen=True)
class Recital:
    """Gives the same replies in every episode; after the last one it is silent."""

    replies: Sequence[Completion]

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        turns = [prompt.state.turn for prompt in prompts]
        return [self.replies[turn] if turn < len(self.replies) else Completion(text="") for turn in turns]


def scored(game: Game, episode: Episode) -> tuple[EpisodeScore, list[StepScore]]:
    steps, score = judged(episode, game)
    return score, steps


@dataclass(frozen=True)
class GivenLake(FrozenLake):
    """A lake with given holes."""

    holes: tuple[tuple[int, int], ...] = ()

    def initial_state(self, rng: np.random.Generator) -> LakeState:  # noqa: ARG002
        return LakeState(self.size, self.holes)


# ---- by hand

A, B = (0, 0), (1, 0)
TINY = GivenLake("tiny", size=2, slippery=True, horizon=3, holes=((0, 1),))
"""Start A, below it B, right of B the goal, right of A a hole. A move slips to either side with chance 1/3."""

BY_HAND = {
    (3, A): (7 / 27, 6 / 27, 6 / 27, 2 / 27),
    (2, A): (1 / 9, 1 / 9, 1 / 9, 0),
    (2, B): (2 / 9, 5 / 9, 4 / 9, 4 / 9),
    (1, A): (0, 0, 0, 0),
    (1, B): (0, 1 / 3, 1 / 3, 1 / 3),
}
"""(turns left, cell) → Q* of Left, Down, Right, Up. For instance Q*(B, Down) with 2 turns: it stays twice in three, worth
1/3 each, and slips into the goal once: (1/3 + 1/3 + 1) / 3."""
IDLE = {(3, A): 1 / 9, (2, A): 0, (2, B): 1 / 3, (1, A): 0, (1, B): 0}
"""The value of "no action": the value of the same cell with one turn less."""


def test_regrets_and_optimal_actions_on_a_lake_of_four_cells_by_hand() -> None:
    met = set()
    for episode in play_episodes(TINY, Careless(), [(seed, 0) for seed in range(150)]):
        score, steps = scored(TINY, episode)
        expected = []
        for state, step, found in zip(replayed_states(TINY, episode)[:-1], episode.steps, steps, strict=True):
            at = (3 - state.turn, state.player)
            q = IDLE[at] if step.action is None else BY_HAND[at][TINY.actions.index(step.action)]
            expected.append(max(BY_HAND[at]) - q)
            best = tuple(a for a, value in zip(TINY.actions, BY_HAND[at], strict=True) if value == max(BY_HAND[at]))
            assert found.optimal_actions == best
            met.add((at, step.action))
        assert [found.regret for found in steps] == pytest.approx(expected, abs=1e-12)
        assert (score.value_optimal, score.value_random) == pytest.approx((7 / 27, (5 / 36 + 1 / 9) / 2), abs=1e-12)
        mistakes = [turn for turn, regret in enumerate(expected) if regret > 1e-9]
        assert score.first_mistake == (mistakes[0] if mistakes else -1)
        assert score.optimal_steps == len(expected) - len(mistakes)
    assert len(met) == 5 * len(BY_HAND)  # every action, and none, in every cell


SLOW = GivenLake("firm", size=2, horizon=3)
EXACTLY = replace(GivenLake("exactly", size=2, horizon=4), exactly=True)


@pytest.mark.parametrize(
    ("game", "actions", "regrets", "reward"),
    [
        (SLOW, ("Down", "Right"), [0, 0], 1),
        (SLOW, ("Left", "Down", "Right"), [0, 0, 0], 1),
        (SLOW, ("Left", "Left", "Down"), [0, 1, 0], 0),
        (SLOW, (None, "Down", "Right"), [0, 0, 0], 1),
        (SLOW, (None, None, None), [0, 1, 0], 0),
        (EXACTLY, ("Down", "Right"), [0, 1], 0),  # too early
        (EXACTLY, ("Up", "Left", "Down", "Right"), [0, 0, 0, 0], 1),
        (EXACTLY, (None, None, "Down", "Right"), [0, 0, 0, 0], 1),
        (EXACTLY, ("Up", "Left", "Up", "Left"), [0, 0, 1, 0], 0),
    ],
)
def test_only_the_move_that_makes_the_goal_unreachable_is_a_mistake_on_firm_ice(
    game: Game, actions: Sequence[str | None], regrets: list[int], reward: int
) -> None:
    recital = Recital([Completion(text=f"<action>{action}</action>" if action else "?") for action in actions])
    [episode] = play_episodes(game, recital, [(0, 0)])
    score, steps = scored(game, episode)
    assert [step.regret for step in steps] == regrets
    assert (score.success, score.reward, score.luck_adjusted, score.regret) == (bool(reward), reward, reward, sum(regrets))


# ---- in general


@pytest.mark.parametrize("id", [*LAKES, f"{SLIPPERY}:rotated", f"{SLIPPERY}:permuted-actions", f"{SLIPPERY}:grid"])
@given(seed=st.integers(0, 2**63 - 1))
@settings(max_examples=5)
def test_regrets_sum_to_the_optimum_minus_the_luck_adjusted_return_and_optimal_play_has_none(id: str, seed: int) -> None:
    game = make_game(id)
    for episode in play_episodes(game, Careless(), [(seed, member) for member in range(4)]):
        score, steps = scored(game, episode)
        regrets = [step.regret for step in steps if step.regret is not None]
        assert (len(regrets), min(regrets) >= -1e-12) == (len(steps), True)
        assert None not in (score.value_optimal, score.luck_adjusted, score.value_random)
        assert sum(regrets) == pytest.approx(score.value_optimal - score.luck_adjusted, abs=1e-9)  # type: ignore[operator]
        assert 0 <= score.value_random <= score.value_optimal <= 1  # type: ignore[operator]
        assert score.optimal_steps == sum(regret < 1e-9 for regret in regrets)
    index = seed % 1000
    for episode in play_episodes(
        game, ScriptedPolicy(SCRIPTED["optimal"]), [(episode_seed(id, "test", index), m) for m in (0, 1)]
    ):
        score, steps = scored(game, episode)
        assert (score.regret, score.luck_adjusted, score.first_mistake) == (0, score.value_optimal, -1)
        assert score.optimal_steps == score.steps
        assert all(step.action in found.optimal_actions for step, found in zip(episode.steps, steps, strict=True))


@cache
def exact_value(game: FrozenLake, state: LakeState, silent: float) -> float:
    """The expected return of a random player with a share of silent turns, cell by cell, backwards from the horizon."""
    chances = [(silent, None), *(((1 - silent) / 4, action) for action in game.actions)]
    cells = [(r, c) for r in range(game.size) for c in range(game.size)]
    value = dict.fromkeys(cells, 0.0)
    for turn in reversed(range(game.horizon)):
        now = dict.fromkeys(cells, 0.0)
        for cell in cells:
            here = LakeState(game.size, state.holes, cell, turn)
            if not here.terminal:
                for chance, action in chances:
                    for p, after in game.outcomes(here, action):
                        now[cell] += chance * p * (after.reward + value[after.state.player])
        value = now
    return value[state.player]


@pytest.mark.parametrize("silent", [0.0, 0.3])
def test_the_luck_adjusted_score_is_unbiased_over_many_lakes_silence_included(silent: float) -> None:
    game = FrozenLake(SLIPPERY, frozen_probability=0.9, slippery=True, horizon=15)
    gaps, rewards = [], []
    for episode in play_episodes(game, Careless(silent), [(seed, 0) for seed in range(300)]):
        score, _ = scored(game, episode)
        expected = exact_value(game, game.initial_state(stream(episode.seed, "initial_state")), silent)
        assert score.luck_adjusted is not None
        gaps.append(score.luck_adjusted - expected)
        rewards.append(score.reward - expected)
        if not silent:
            assert score.value_random == pytest.approx(expected, abs=1e-9)
    assert abs(np.mean(gaps)) < 3 * np.std(gaps, ddof=1) / len(gaps) ** 0.5
    assert silent or np.var(gaps) < np.var(rewards)  # a player that rarely wins has rewards of small variance, too


@pytest.mark.parametrize("id", [*SNAKES, "Snake-Standard-v1:reflected"])
def test_a_game_that_is_not_solved_has_no_regrets(id: str) -> None:
    game = make_game(id)
    for episode in play_episodes(game, Careless(), [(seed, 0) for seed in range(5)]):
        score, steps = scored(game, episode)
        assert {(step.regret, step.optimal_actions) for step in steps} == {(None, ())}
        unknown = ("value_optimal", "value_random", "regret", "luck_adjusted", "optimal_steps", "first_mistake")
        assert [getattr(score, name) for name in unknown] == [None] * 6
        assert (score.reward, score.success, score.steps) == (episode.reward, episode.success, len(episode.steps))


def test_faulty_replies_are_counted_by_kind_and_tokens_are_summed() -> None:
    game = GivenLake("firm", size=3, horizon=6)
    replies = (
        Completion(text="<action>Up</action>", usage=(10, 5)),  # off the board
        Completion(text="I go right.", usage=(10, 4)),
        Completion(text="<think>I go", finish="length", usage=(10, 8)),
        Completion(text="<action>Right</action> and so", finish="length", usage=(10, 8)),  # truncated after its action
        Completion(text="<action>Jump</action>", usage=(10, 0)),
        Completion(text="<action>left</action>", usage=(11, 2)),
    )
    [episode] = play_episodes(game, Recital(replies), [(0, 0)])
    score, steps = scored(game, episode)
    assert (score.steps, score.unreadable, score.truncated_replies, score.illegal) == (6, 2, 1, 1)
    assert (score.prompt_tokens, score.reply_tokens) == (61, 27)
    assert [step.legal_actions for step in steps] == [("Down", "Right")] * 4 + [("Left", "Down", "Right")] * 2
    [episode] = play_episodes(game, Recital([replies[0], Completion(text=""), *replies[2:]]), [(0, 0)])
    score, _ = scored(game, episode)  # unknown on one turn
    assert (score.prompt_tokens, score.reply_tokens) == (None, None)


def test_a_record_that_does_not_replay_is_not_scored() -> None:
    game = make_game(SLIPPERY)
    [episode] = play_episodes(game, ScriptedPolicy(choose_random), [(1, 0)])
    changed = replace(episode.steps[0], reward=1.0)
    with pytest.raises(ValueError, match="reward 1 on turn 1, where the rules give 0"):
        judged(replace(episode, steps=(changed, *episode.steps[1:])))
