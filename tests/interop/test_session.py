"""A game that another framework's loop plays: the episodes of `play_groups`, from seeds, members and replies alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from msgrpo_hub.agent import ScriptedPolicy, build_prompt
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, make_game, splits_of, stream
from msgrpo_hub.games.seeds import split_of
from msgrpo_hub.interop.session import GameSession
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_groups
from tests.interop.mixed import Mixed

LAKE = "FrozenLake-Slippery-v1"


@pytest.mark.parametrize("game_id", [*GAMES, "Taxi-Gymnasium-v1", "Snake-Solo-v1:reflected"])
def test_the_same_seeds_members_and_replies_give_the_episodes_of_play_groups(game_id: str) -> None:
    session, game = GameSession(game_id), make_game(game_id)
    for group in play_groups(game, Mixed(), [5, 6], 4):
        for episode in group.episodes:
            turn, rewards = session.reset(episode.seed, episode.member), []
            for step in episode.steps:
                assert (turn.done, turn.observation) == (False, step.observation)
                turn = session.step(step.completion.text)
                assert (turn.action, turn.unparsed) == (step.action, step.action is None)
                assert turn.illegal == (step.action is not None and not step.legal)
                rewards.append(turn.reward)
            assert (turn.terminated, turn.truncated, turn.success) == (episode.terminated, episode.truncated, episode.success)
            assert (turn.messages, sum(filter(None, rewards))) == ((), episode.reward)
            assert session.episode == episode


def test_the_messages_are_the_prompt_of_the_turn() -> None:
    for prompt_format in PROMPT_FORMATS.values():
        session, game = GameSession(LAKE, prompt_format), make_game(LAKE)
        turn, state = session.reset(3, 0), game.initial_state(stream(3, "initial_state"))
        assert list(turn.messages) == build_prompt(game, state, prompt_format).messages


def test_a_group_shares_its_start_and_not_its_chance() -> None:
    """Everyone walks Right on the ice: with one chance for all, a hundred members would slip alike."""
    session, starts, ends = GameSession(LAKE), set(), set()
    for _ in range(100):
        starts.add(session.reset(seed=1).observation)
        ends.add(tuple(session.step("<action>Right</action>").observation for _ in range(2)))
    assert len(starts) == 1
    assert len(ends) > 3
    assert len({session.reset(seed=1) and session.episode.member for _ in range(100)}) == 100


def test_the_split_and_the_index_give_the_seed_and_without_both_a_training_board_is_drawn() -> None:
    session, seeds = GameSession(LAKE), set()
    for split in ("train", "validation", "test"):
        session.reset(split=split, index=4)
        assert session.episode.seed == splits_of(LAKE).seed(split, 4)
    for _ in range(30):
        session.reset()
        seeds.add(session.episode.seed)
        start = session.game.initial_state(stream(session.episode.seed, "initial_state"))
        assert split_of(session.game, start) == "train"
    assert len(seeds) == 30


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.step("<action>Left</action>"), "no episode has begun: call reset first"),
        (lambda s: s.episode, "no episode has begun"),
        (lambda s: s.reset(seed=-1), "seed = -1: expected at least 0"),
        (lambda s: s.reset(seed="one"), "seed = 'one': expected int"),
        (lambda s: s.reset(seed=1, index=1), "expected only one of them"),
        (lambda s: s.reset(split="tests"), "did you mean 'test'?"),
        (lambda s: s.reset(seed=splits_of(LAKE).seed("test", 0), split="train"), "starts on a test board"),
        (lambda s: (s.reset(), s.step(None)), "reply = None: expected str"),
        (lambda s: (s.reset(), [s.step("") for _ in range(16)]), "the episode has ended: call reset first"),
    ],
)
def test_a_wrong_call_says_what_was_expected(call: Callable[[GameSession], object], words: str) -> None:
    with pytest.raises(UserError, match=words.replace("?", r"\?")):
        call(GameSession(LAKE))


def test_a_second_episode_knows_nothing_of_the_first() -> None:
    session = GameSession("Snake-Solo-v1")
    [group] = play_groups(session.game, ScriptedPolicy(choose_random), [9], 2)
    for episode in (*group.episodes, group.episodes[0]):
        session.reset(episode.seed, episode.member)
        for step in episode.steps:
            session.step(step.completion.text)
        assert session.episode == episode
