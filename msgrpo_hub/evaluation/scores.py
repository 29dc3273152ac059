"""Scores of episodes: what each was worth, what it could have been worth, and how its replies were.

On Frozen Lake every action has an exact value Q*. The regret of a step is V*(s) − Q*(s, a); the luck-adjusted score of an
episode is V*(s0) − Σ regrets: the same mean as the reward, without the luck of the ice (each reward minus what the best
play could expect is a martingale difference). Snake is not solved: its regrets are left out.
"""

from __future__ import annotations

from typing import Any

from msgrpo_hub.episode import Episode, EpisodeScore, StepScore
from msgrpo_hub.games import Game, base_game, display_name, make_game
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.solving import TIE, lake_values, optimal_actions, optimal_value, random_value
from msgrpo_hub.rollout import replayed_states


def score_steps(game: Game, episode: Episode) -> list[StepScore]:
    """What the rules say of each turn of an episode. Raises `ValueError` for a record that does not replay."""
    core = base_game(game)
    return [
        StepScore(
            legal_actions=game.legal_actions(state),
            optimal_actions=tuple(display_name(game, action) for action in optimal_actions(core, state)) if _solved(core) else (),
            regret=_regret(game, state, step.action),
        )
        for state, step in zip(replayed_states(game, episode), episode.steps, strict=False)
    ]


def _solved(game: Game) -> bool:
    return isinstance(game, FrozenLake)


def _regret(game: Game, state: Any, action: str | None) -> float | None:
    """V*(s) − Q*(s, a); "no action" stays on its cell, which is worth V* with one turn less."""
    lake = base_game(game)
    if not isinstance(lake, FrozenLake):
        return None
    values, left = lake_values(lake, state.holes), lake.horizon - state.turn
    q = values.action_values(state.player, left)
    if action is None:
        stay = values.optimal[left - 1, state.player[0] * lake.size + state.player[1]]
        return float(q.max() - stay)
    names = [display_name(game, own) for own in lake.actions]
    lost = float(q.max() - q[names.index(action)])
    return lost if lost > TIE else 0.0


def score_episode(game: Game, episode: Episode, steps: list[StepScore]) -> EpisodeScore:
    """The score of a finished episode, from the scores of its steps."""
    states = episode.steps
    return EpisodeScore(
        reward=episode.reward,
        success=episode.success,
        steps=len(states),
        unreadable=sum(step.status == "unreadable" for step in states),
        truncated_replies=sum(step.status == "truncated_reply" for step in states),
        illegal=sum(step.action is not None and not step.legal for step in states),
        prompt_tokens=_total([step.completion.prompt_tokens for step in states]),
        reply_tokens=_total([step.completion.reply_tokens for step in states]),
        **_against_optimum(game, episode, [score.regret for score in steps]),
    )


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _against_optimum(game: Game, episode: Episode, regrets: list[float | None]) -> dict[str, Any]:
    lake = base_game(game)
    known = [regret for regret in regrets if regret is not None]
    if not isinstance(lake, FrozenLake):
        names = ("value_optimal", "value_random", "regret", "luck_adjusted", "optimal_steps", "first_mistake")
        return dict.fromkeys(names)
    best, blind = optimal_value(lake, episode.seed), random_value(lake, episode.seed)
    mistakes = [turn for turn, regret in enumerate(known) if regret > TIE]
    return {
        "value_optimal": best,
        "value_random": blind,
        "regret": sum(known),
        "luck_adjusted": best - sum(known),
        "optimal_steps": len(known) - len(mistakes),
        "first_mistake": mistakes[0] if mistakes else -1,
    }


def judged(episode: Episode) -> tuple[list[StepScore], EpisodeScore]:
    """The scores of an episode's steps and of the episode. Raises `ValueError` for a record that does not replay."""
    game = make_game(episode.game_id)
    steps = score_steps(game, episode)
    return steps, score_episode(game, episode, steps)
