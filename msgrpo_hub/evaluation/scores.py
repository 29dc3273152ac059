"""Scores of episodes: returns, values of optimal and random play, regrets, and counts of faulty replies.

In a solvable game, such as Frozen Lake, every action has an exact value Q*. The regret of a step is V*(s) − Q*(s, a). The
luck-adjusted score of an episode is V*(s0) − Σ regrets. Its mean is that of the reward, but it excludes the luck of the ice (a
sum of martingale differences). Games that are not solved, such as Snake, have no regrets.
"""

from __future__ import annotations

from typing import Any

from msgrpo_hub.episode import Episode, EpisodeScore, StepScore, known_sum
from msgrpo_hub.games import Game, base_game, display_name, make_game
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.solving import TIE, best_actions, optimal_value, random_value, values_at
from msgrpo_hub.rollout import replayed_states


def score_steps(game: Game, episode: Episode) -> list[StepScore]:
    """What the rules say about each step of an episode. Raises `ValueError` for a record that does not replay."""
    return [
        StepScore(legal_actions=game.legal_actions(state), **_against_optimal_actions(game, state, step.action))
        for state, step in zip(replayed_states(game, episode), episode.steps, strict=False)
    ]


def _against_optimal_actions(game: Game, state: Any, action: str | None) -> dict[str, Any]:
    """The optimal actions and the regret V*(s) − Q*(s, a), also for "no action"; regrets within rounding are 0."""
    core = base_game(game)
    if not is_solvable(core):
        return {"optimal_actions": (), "regret": None}
    values = values_at(core, state)
    canonical = {display_name(game, name): name for name in core.actions}
    regret = values.best(state) - values.of(state, None if action is None else canonical[action])
    best = best_actions(values, state, core.actions)
    return {
        "optimal_actions": tuple(display_name(game, name) for name in best),
        "regret": 0.0 if abs(regret) <= TIE else regret,
    }


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
        prompt_tokens=known_sum([step.completion.prompt_tokens for step in states]),
        reply_tokens=known_sum([step.completion.reply_tokens for step in states]),
        **_against_optimum(game, episode, [score.regret for score in steps]),
    )


def _against_optimum(game: Game, episode: Episode, regrets: list[float | None]) -> dict[str, Any]:
    core = base_game(game)
    known = [regret for regret in regrets if regret is not None]
    if not is_solvable(core):
        names = ("value_optimal", "value_random", "regret", "luck_adjusted", "optimal_steps", "first_mistake")
        return dict.fromkeys(names)
    optimal, random = optimal_value(core, episode.seed), random_value(core, episode.seed)
    mistakes = [turn for turn, regret in enumerate(known) if regret > TIE]
    return {
        "value_optimal": optimal,
        "value_random": random,
        "regret": sum(known),
        "luck_adjusted": optimal - sum(known),
        "optimal_steps": len(known) - len(mistakes),
        "first_mistake": mistakes[0] if mistakes else -1,
    }


def judged(episode: Episode) -> tuple[list[StepScore], EpisodeScore]:
    """The scores of the steps, and of the whole episode. Raises `ValueError` for a record that does not replay."""
    game = make_game(episode.game_id)
    steps = score_steps(game, episode)
    return steps, score_episode(game, episode, steps)
