"""Scores of episodes: returns, values of optimal and random play, regrets, and counts of faulty replies.

In a solvable game, such as Frozen Lake, every action has an exact value Q*. The regret of a step is V*(s) − Q*(s, a). The
luck-adjusted score of an episode is V*(s0) − Σ regrets. It has the mean of the reward without the luck of the ice (a sum of
martingale differences). Games that are not solved, such as Snake, have no regrets.
"""

from __future__ import annotations

from msgrpo_hub.episode import Episode, EpisodeScore, StepScore, known_sum
from msgrpo_hub.games import Game, base_game, display_name, make_game
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.solving import TIE, best_actions, start_values, values_at
from msgrpo_hub.rollout import replayed_states

_EXACT = ("value_optimal", "value_random", "regret", "luck_adjusted", "optimal_steps", "first_mistake")


def score_steps(game: Game, episode: Episode) -> list[StepScore]:
    """The legal actions, the optimal actions and the regret of each step, also of "no action". Errors as for `judged`."""
    core, scores = base_game(game), []
    canonical = {display_name(game, name): name for name in core.actions}
    for state, step in zip(replayed_states(game, episode), episode.steps, strict=False):
        best: tuple[str, ...] = ()
        regret = None
        if is_solvable(core):
            values = values_at(core, state)
            regret = values.best(state) - values.of(state, None if step.action is None else canonical[step.action])
            regret = 0.0 if abs(regret) <= TIE else regret
            best = tuple(display_name(game, name) for name in best_actions(values, state, core.actions))
        scores.append(StepScore(legal_actions=game.legal_actions(state), optimal_actions=best, regret=regret))
    return scores


def judged(episode: Episode, game: Game | None = None) -> tuple[list[StepScore], EpisodeScore]:
    """The scores of steps and episode; a registered game may be omitted. Raises `ValueError` if the record does not replay."""
    game = game or make_game(episode.game_id)
    steps, core, played = score_steps(game, episode), base_game(game), episode.steps
    exact: dict[str, float | int | None] = dict.fromkeys(_EXACT)
    if is_solvable(core):
        regrets = [score.regret for score in steps if score.regret is not None]
        mistakes = [turn for turn, regret in enumerate(regrets) if regret > TIE]
        optimal, random = start_values(core, episode.seed)
        values = (optimal, random, sum(regrets), optimal - sum(regrets))
        exact = dict(zip(_EXACT, (*values, len(regrets) - len(mistakes), mistakes[0] if mistakes else -1), strict=True))
    return steps, EpisodeScore(
        reward=episode.reward,
        success=episode.success,
        steps=len(played),
        unreadable=sum(step.status == "unreadable" for step in played),
        truncated_replies=sum(step.status == "truncated_reply" for step in played),
        illegal=sum(step.action is not None and not step.legal for step in played),
        prompt_tokens=known_sum([step.completion.tokens[0] for step in played]),
        reply_tokens=known_sum([step.completion.tokens[1] for step in played]),
        **exact,  # type: ignore[arg-type]
    )
