"""Rollouts: lockstep changes no episode, groups share only their start, and each reply has the right status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from msgrpo_hub.agent import Policy, Prompt, ScriptedPolicy
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import GAMES, make_game
from msgrpo_hub.players.scripted import choose_random, choose_random_safe
from msgrpo_hub.rollout import play_episodes, play_groups, replayed_states

SNAKE = make_game("Snake-Standard-v1")
LAKE = make_game("FrozenLake-NotSlippery-v1")


@dataclass
class Recorder:
    reply: Completion
    asked: list[list[Prompt]] = field(default_factory=list)

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        assert len(prompts) == len(rngs)
        self.asked.append(list(prompts))
        return [self.reply] * len(prompts)


def says(text: str) -> Recorder:
    return Recorder(Completion(text=text))


@dataclass(frozen=True)
class FromThePrompt:
    """A deterministic player that reads nothing but the prompt's text, as a language model at temperature 0 does."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        names = [p.game.actions[sum(p.user.encode()) % len(p.game.actions)] for p in prompts]
        return [Completion(text=f"<think>{len(p.user)}</think><action>{n}</action>") for p, n in zip(prompts, names, strict=True)]


PLAYERS: dict[str, Policy] = {
    "from-the-prompt": FromThePrompt(),
    "random": ScriptedPolicy(choose_random),
    "random-safe": ScriptedPolicy(choose_random_safe),
}


@pytest.mark.parametrize("player", PLAYERS)
@pytest.mark.parametrize("game_id", GAMES)
def test_playing_together_changes_no_episode(game_id: str, player: str) -> None:
    game, policy = GAMES[game_id], PLAYERS[player]
    episode_keys = [(seed, member) for seed in (3, 4, 5) for member in range(3)]
    together = play_episodes(game, policy, episode_keys)
    alone = [play_episodes(game, policy, [seat])[0] for seat in episode_keys]
    backwards = play_episodes(game, policy, episode_keys[::-1])[::-1]
    assert together == alone == backwards


def test_group_members_sample_differently_even_where_the_game_has_no_chance() -> None:
    (group,) = play_groups(LAKE, ScriptedPolicy(choose_random), seeds=[0], group_size=16)
    assert len({tuple(step.action for step in episode.steps) for episode in group.episodes}) > 8


def test_every_turn_is_one_call_with_the_live_episodes_only() -> None:
    policy, live = says("<action>Up</action>"), list[int]()
    episodes = play_episodes(SNAKE, policy, [(seed, 0) for seed in range(30)], on_turn=live.append)
    lengths = [len(episode.steps) for episode in episodes]
    assert [len(prompts) for prompts in policy.asked] == [sum(n > turn for n in lengths) for turn in range(max(lengths))]
    assert live == [sum(n > turn for n in lengths) for turn in range(1, max(lengths) + 1)]
    assert live[-1] == 0


@pytest.mark.parametrize(
    ("reply", "status", "action"),
    [
        (Completion(text="<action>down</action>"), "ok", "Down"),
        (Completion(text="I walk down."), "unreadable", None),
        (Completion(text="<think>I walk and", finish="length"), "truncated_reply", None),
        (Completion(text="<action>Down</action> and then", finish="length"), "ok", "Down"),
        (Completion(text="<action>Jump</action>"), "unreadable", None),
    ],
)
def test_the_status_of_a_reply(reply: Completion, status: str, action: str | None) -> None:
    (episode,) = play_episodes(LAKE, Recorder(reply), [(0, 0)])
    first = episode.steps[0]
    assert (first.status, first.action, first.completion) == (status, action, reply)
    assert episode.unreadable == (0 if action else len(episode.steps))


@pytest.mark.parametrize(("text", "action"), [("no idea", None), ("<action>Left</action>", "Left")])
def test_after_an_unparsed_reply_or_an_illegal_move_the_player_stays(text: str, action: str | None) -> None:
    (episode,) = play_episodes(LAKE, says(text), [(0, 0)])
    assert [(step.action, step.legal) for step in episode.steps] == [(action, False)] * LAKE.horizon
    assert len({step.observation for step in episode.steps}) == 1
    assert (episode.terminated, episode.truncated, episode.success, episode.reward) == (False, True, False, 0.0)


@pytest.mark.parametrize("game_id", GAMES)
def test_seed_member_and_actions_give_every_state_and_reward_again(game_id: str) -> None:
    for group in play_groups(GAMES[game_id], ScriptedPolicy(choose_random_safe), seeds=range(5), group_size=3):
        for episode in group.episodes:
            replayed_states(GAMES[game_id], episode)  # raises for another observation, reward or end
            with pytest.raises(ValueError, match="the record has another end"):
                replayed_states(GAMES[game_id], replace(episode, terminated=not episode.terminated))
