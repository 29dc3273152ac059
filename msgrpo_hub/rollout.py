"""Rollout: game × policy → groups of episodes; and a stored episode → its states.

All live episodes advance in lockstep, with one batched call of the policy per turn. Every episode has its own random streams,
so no reply depends on the other episodes of its batch, beyond rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import Interrupted, Policy, build_prompt, format_of
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion, Episode, Group, ReplyStatus, Step
from msgrpo_hub.fields import Count, Number, checked
from msgrpo_hub.games import Game, is_remote, stream


class Play:
    """One episode while it is played."""

    def __init__(self, game: Game, prompt_format: PromptFormat, seed: int, member: int, state: Any) -> None:
        self.game, self.prompt_format, self.seed, self.member, self.state = game, prompt_format, seed, member, state
        self.dynamics: np.random.Generator = stream(seed, "dynamics", member)
        self.sampling: np.random.Generator = stream(seed, "sampling", member)
        self.steps: list[Step] = []
        self.live, self.terminated, self.truncated, self.error = True, False, False, ""

    def advance(self, observation: str, completion: Completion) -> None:
        """Parses the action of a reply, steps the game and records the turn. A completion with an error ends the episode."""
        if completion.error:
            self.live, self.error = False, completion.error
            return
        action = self.prompt_format.parse(completion.text, self.game.actions)
        legal = action in self.game.legal_actions(self.state)
        after = self.game.step(self.state, action, self.dynamics)
        status = reply_status(action, completion)
        step = Step(
            observation=observation, completion=completion, action=action, status=status, legal=legal, reward=after.reward
        )
        self.steps.append(step)
        self.state, self.terminated, self.truncated = after.state, after.terminated, after.truncated
        self.live = not (after.terminated or after.truncated)

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
    """(observation, reply text) of the last turns that a prompt format shows, oldest first."""
    shown = steps[-prompt_format.history :] if prompt_format.history else ()
    return tuple((step.observation, step.completion.text) for step in shown)


def reply_status(action: str | None, completion: Completion) -> ReplyStatus:
    """`ok` with an action; otherwise whether the reply ended with an end token or at the token limit."""
    if action is not None:
        return "ok"
    return "truncated_reply" if completion.finish == "length" else "unreadable"


def play_episodes(
    game: Game,
    policy: Policy,
    episode_keys: Iterable[tuple[int, int]],
    on_turn: Callable[[int], object] | None = None,
    *,
    on_episode: Callable[[int, Episode], None] | None = None,
    prompt_format: PromptFormat | None = None,
) -> list[Episode]:
    """Plays one episode per (seed of the initial state, member of its group) in lockstep.

    The policy replies to the prompts of all live episodes in one call per turn. `on_turn` gets the number of live episodes after
    each turn, and `on_episode` each episode that ends, also with an error, with its position among the keys. `prompt_format`
    None means the policy's own, or else think-action. Raises `Interrupted` if the policy could not finish a turn.
    """
    chosen = format_of(policy, prompt_format)
    keys = list(episode_keys)
    prompt_of = cache(lambda state, history: build_prompt(game, state, chosen, history))  # many episodes share states
    sessions = getattr(game, "sessions", nullcontext)  # a remote game opens sessions
    with getattr(policy, "caching", nullcontext)(), sessions():
        starts = {seed: game.initial_state(stream(seed, "initial_state")) for seed in dict.fromkeys(seed for seed, _ in keys)}
        live = plays = [Play(game, chosen, seed, member, starts[seed]) for seed, member in keys]
        while live:
            prompts = [prompt_of(play.state, past_turns(chosen, play.steps)) for play in live]
            interrupted: Interrupted | None = None
            completions: Sequence[Completion | None]
            try:
                completions = policy.complete(prompts, [play.sampling for play in live])
            except Interrupted as error:
                completions, interrupted = error.completions, error
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


@checked
def play_groups(
    game: Game,
    policy: Policy,
    seeds: Sequence[Number],
    group_size: Count,
    *,
    prompt_format: PromptFormat | None = None,
) -> list[Group]:
    """Plays `group_size` episodes from each seed's initial state. Returns one group per seed. Arguments as in `play_episodes`."""
    keys = [(seed, member) for seed in seeds for member in range(group_size)]
    episodes = play_episodes(game, policy, keys, prompt_format=prompt_format)
    return [
        Group(game_id=game.id, seed=seed, episodes=tuple(episodes[i * group_size : (i + 1) * group_size]))
        for i, seed in enumerate(seeds)
    ]


def replayed_states(game: Game, episode: Episode) -> list[Any]:
    """Replays a stored episode from its seed and actions. Returns its states; those of a remote game come from the record.

    Raises `ValueError` if the record disagrees with the rules in its game, an observation, a reward, its end or its success.
    """
    if game.id != episode.game_id:
        raise ValueError(f"an episode of {episode.game_id} cannot be replayed as {game.id}")
    if is_remote(game):
        recorded: list[Any] = game.recorded_states(episode)  # type: ignore[attr-defined]
        return recorded
    states, wrong, ended = [game.initial_state(stream(episode.seed, "initial_state"))], "", (False, False)
    dynamics = stream(episode.seed, "dynamics", episode.member)
    for turn, step in enumerate(episode.steps, start=1):
        if game.observe(states[-1]) != step.observation:
            wrong = f"another observation than the rules give on turn {turn}"
            break
        after = game.step(states[-1], step.action, dynamics)
        states.append(after.state)
        ended = (after.terminated, after.truncated)
        if after.reward != step.reward:
            wrong = f"reward {step.reward:g} on turn {turn}, where the rules give {after.reward:g}"
            break
    if not wrong and (ended != (episode.terminated, episode.truncated) or True not in ended or episode.error != ""):
        wrong = "another end than the rules give"
    elif not wrong and game.succeeded(states[-1]) != episode.success:
        wrong = f"success = {episode.success}, where the rules say otherwise"
    if wrong:
        raise ValueError(f"{episode.game_id}, seed {episode.seed}, member {episode.member}: the record has {wrong}")
    return states
