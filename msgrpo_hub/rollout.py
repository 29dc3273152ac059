"""Rollout: game × policy → groups of episodes; and a stored episode → its states.

All live episodes advance together, with one batched call of the policy per turn. Finished episodes leave the batch. Every
episode has its own random streams, so no reply depends on the other episodes of its batch, beyond rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import Interrupted, Policy, SupportsCaching, format_of
from msgrpo_hub.agent.prompt import Prompt, build_prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion, Episode, Group, ReplyStatus, Step
from msgrpo_hub.fields import Count, checked
from msgrpo_hub.games import Game, is_remote, stream


class Play:
    """One episode while it is being played."""

    def __init__(self, game: Game, prompt_format: PromptFormat, seed: int, member: int, state: Any) -> None:
        self.game, self.prompt_format, self.seed, self.member, self.state = game, prompt_format, seed, member, state
        self.dynamics: np.random.Generator = stream(seed, "dynamics", member)
        self.sampling: np.random.Generator = stream(seed, "sampling", member)
        self.steps: list[Step] = []
        self.terminated = self.truncated = False
        self.error = ""

    @property
    def live(self) -> bool:
        return not (self.terminated or self.truncated or self.error)

    @property
    def history(self) -> tuple[tuple[str, str], ...]:
        """The last turns, as many as the prompt format shows, the oldest first."""
        return past_turns(self.prompt_format, self.steps)

    def advance(self, observation: str, completion: Completion) -> None:
        """Parses the action of a reply, plays it and records the step. An error in place of a reply stops the episode."""
        if completion.error:
            self.error = completion.error
            return
        action = self.prompt_format.parse(completion.text, self.game.actions)
        legal = action in self.game.legal_actions(self.state)
        after = self.game.step(self.state, action, self.dynamics)
        self.steps.append(
            Step(
                observation=observation,
                completion=completion,
                action=action,
                status=reply_status(action, completion),
                legal=legal,
                reward=after.reward,
            )
        )
        self.state, self.terminated, self.truncated = after.state, after.terminated, after.truncated

    def episode(self) -> Episode:
        return Episode(
            game_id=self.game.id,
            seed=self.seed,
            member=self.member,
            steps=tuple(self.steps),
            terminated=self.terminated,
            truncated=self.truncated,
            success=not self.error and self.game.succeeded(self.state),
            error=self.error,
        )


def past_turns(prompt_format: PromptFormat, steps: Sequence[Step]) -> tuple[tuple[str, str], ...]:
    """(observation, reply text) of the last steps, as many as a prompt format shows, the oldest first."""
    shown = steps[-prompt_format.history :] if prompt_format.history else ()
    return tuple((step.observation, step.completion.text) for step in shown)


def reply_status(action: str | None, completion: Completion) -> ReplyStatus:
    """`ok` if an action was parsed; otherwise whether the reply ended by itself or at the token limit."""
    if action is not None:
        return "ok"
    return "truncated_reply" if completion.finish == "length" else "unreadable"


def play_episodes(
    game: Game,
    policy: Policy,
    episode_keys: Iterable[tuple[int, int]],
    on_turn: Callable[[int], None] | None = None,
    *,
    on_episode: Callable[[int, Episode], None] | None = None,
    prompt_format: PromptFormat | None = None,
) -> list[Episode]:
    """Plays one episode per (seed, member), all in lockstep.

    Args:
        game: the rules.
        policy: answers the prompts of all live episodes in one call a turn.
        episode_keys: the seed of the initial state, and which member of that seed's group plays.
        on_turn: called after each turn with the number of episodes still live.
        on_episode: called when an episode ends, with its position among the keys; also if it ends with an error.
        prompt_format: how the policy is asked and its replies are read; None is the policy's own, or else think-action.

    Raises:
        Interrupted: the policy could not finish a turn; the episodes that ended in it have been told.
    """
    chosen = format_of(policy, prompt_format)
    episode_keys = list(episode_keys)
    # Many episodes pass through the same states, so prompts are cached.
    prompt_of = cache(lambda state, history: build_prompt(game, state, chosen, history))
    with policy.caching() if isinstance(policy, SupportsCaching) else nullcontext(), _sessions(game):
        seeds = dict.fromkeys(seed for seed, _ in episode_keys)
        starts = {seed: game.initial_state(stream(seed, "initial_state")) for seed in seeds}
        live = plays = [Play(game, chosen, seed, member, starts[seed]) for seed, member in episode_keys]
        while live:
            prompts = [prompt_of(play.state, play.history) for play in live]
            completions, interrupted = _ask(policy, prompts, [play.sampling for play in live])
            for play, prompt, completion in zip(live, prompts, completions, strict=True):
                if completion is None:
                    continue
                play.advance(prompt.observation, completion)
                if on_episode and not play.live:
                    on_episode(plays.index(play), play.episode())
            live = [play for play in live if play.live]
            if on_turn:
                on_turn(len(live))
            if interrupted:
                raise interrupted
    return [play.episode() for play in plays]


def _sessions(game: Game) -> AbstractContextManager[Any]:
    """The context of a game whose rules run elsewhere, after which none of its sessions is open."""
    opened: Callable[[], AbstractContextManager[Any]] = getattr(game, "sessions", nullcontext)
    return opened()


def _ask(
    policy: Policy, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]
) -> tuple[Sequence[Completion | None], Interrupted | None]:
    """The replies of a turn, and the error of a policy that could give only some of them."""
    try:
        return policy.complete(prompts, rngs), None
    except Interrupted as error:
        return error.completions, error


@checked
def play_groups(
    game: Game,
    policy: Policy,
    seeds: Sequence[int],
    group_size: Count,
    on_turn: Callable[[int], None] | None = None,
    *,
    prompt_format: PromptFormat | None = None,
) -> list[Group]:
    """Plays `group_size` episodes from each seed's initial state: same start, each member with its own dynamics.

    Arguments as for `play_episodes`. Returns one group per seed, in order.
    """
    episode_keys = [(seed, member) for seed in seeds for member in range(group_size)]
    episodes = play_episodes(game, policy, episode_keys, on_turn, prompt_format=prompt_format)
    return [
        Group(game_id=game.id, seed=seed, episodes=tuple(episodes[i * group_size : (i + 1) * group_size]))
        for i, seed in enumerate(seeds)
    ]


def replayed_states(game: Game, episode: Episode) -> list[Any]:
    """The states of a stored episode, replayed from its seed and its actions: one more than it has steps.

    If the rules of the game run elsewhere, nothing is replayed: the states are those that the record tells.

    Raises:
        ValueError: the record disagrees with the rules in its game, an observation, a reward, its end or its success.
            (Rewards alone prove little: two games with few rewards look the same.)
    """
    if game.id != episode.game_id:
        raise ValueError(f"an episode of {episode.game_id} cannot be replayed as {game.id}")
    if is_remote(game):
        recorded: list[Any] = game.recorded_states(episode)  # type: ignore[attr-defined]
        return recorded
    states = [game.initial_state(stream(episode.seed, "initial_state"))]
    dynamics = stream(episode.seed, "dynamics", episode.member)
    ended = (False, False)
    for turn, step in enumerate(episode.steps):
        if game.observe(states[-1]) != step.observation:
            raise _disagreement(episode, f"another observation than the rules give on turn {turn + 1}")
        after = game.step(states[-1], step.action, dynamics)
        if after.reward != step.reward:
            raise _disagreement(episode, f"reward {step.reward:g} on turn {turn + 1}, where the rules give {after.reward:g}")
        states.append(after.state)
        ended = (after.terminated, after.truncated)
    if ended != (episode.terminated, episode.truncated) or True not in ended:
        raise _disagreement(episode, "another end than the rules give")
    if game.succeeded(states[-1]) != episode.success:
        raise _disagreement(episode, f"success = {episode.success}, where the rules say otherwise")
    return states


def _disagreement(episode: Episode, what: str) -> ValueError:
    return ValueError(f"{episode.game_id}, seed {episode.seed}, member {episode.member}: the record has {what}")
