"""gymnasium's toy text as text games: their tables, values and episodes against gymnasium itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text.blackjack import BlackjackEnv
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import board_of, episode_seed, make_game, splits_of, stream
from msgrpo_hub.games.environment import TextGameEnv
from msgrpo_hub.games.registry import TOY_TEXT
from msgrpo_hub.games.solving import optimal_value, silent_value, solve, values_at
from msgrpo_hub.games.table_game import TableState
from msgrpo_hub.games.toy_text import Hand
from msgrpo_hub.players.scripted import choose_optimal, choose_random
from msgrpo_hub.rollout import play_episodes

CLIFF, TAXI, BLACKJACK = TOY_TEXT.values()
FROM_P = [(CLIFF, CliffWalkingEnv), (TAXI, TaxiEnv)]


def value_iteration(env: Any, horizon: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Values of optimal and of random play from every state of gymnasium's `P`, with so many turns left."""
    best, blind = np.zeros(len(env.P)), np.zeros(len(env.P))
    for _ in range(horizon):
        sums = [
            [
                [sum(p * (r + (0 if ended else v[s])) for p, s, r, ended in ways) for ways in actions.values()]
                for v in (best, blind)
            ]
            for actions in env.P.values()
        ]
        best, blind = np.array([max(b) for b, _ in sums]), np.array([sum(u) / len(u) for _, u in sums])
    return best, blind


@pytest.mark.parametrize(("game", "env"), FROM_P, ids=lambda value: getattr(value, "id", ""))
def test_values_are_those_of_value_iteration_on_gymnasiums_table(game: Any, env: Any) -> None:
    best, blind = value_iteration(env(), game.horizon)
    for seed in range(8):
        start = game.initial_state(stream(seed, "initial_state"))
        values = solve(game, start)
        assert values.best(start) == pytest.approx(best[start.position], abs=1e-9)
        assert values.blind(start) == pytest.approx(blind[start.position], abs=1e-9)


def test_the_cliff_costs_13_turns_and_a_taxi_needs_what_its_way_needs() -> None:
    assert optimal_value(CLIFF, 0) == -13
    # From (0, 0), the stand R: pick up, down to (2, 0), right to (2, 4), up to the stand G: 1 + 2 + 4 + 2 turns. Then 20.
    start = TableState(((0 * 5 + 0) * 5 + 0) * 4 + 1)
    assert TAXI.observe(start).splitlines()[:3] == ["Taxi: (0, 0)", "Passenger: at R (0, 0)", "Destination: G (0, 4)"]
    assert values_at(TAXI, start).best(start) == -9 + 20


@pytest.mark.parametrize(("game", "env"), FROM_P, ids=lambda value: getattr(value, "id", ""))
def test_episodes_are_gymnasiums_move_by_move(game: Any, env: Any) -> None:
    theirs = env()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        theirs.reset(seed=seed)
        state = game.initial_state(stream(seed, "initial_state"))
        theirs.s = state.position
        for _ in range(game.horizon):
            action = int(rng.integers(len(game.actions)))
            position, reward, ended, _, _ = theirs.step(action)
            after = game.step(state, game.actions[action], rng)
            assert (after.state.position, after.reward, after.terminated) == (position, reward, ended)
            if ended or after.truncated:
                break
            state = after.state


def test_names_of_actions_say_where_they_lead() -> None:
    moves = {"Up": (-1, 0), "Right": (0, 1), "Down": (1, 0), "Left": (0, -1)}
    at = TableState(1 * 12 + 5)
    for action, (rows, columns) in moves.items():
        assert divmod(CLIFF.outcomes(at, action)[0][1].state.position, 12) == (1 + rows, 5 + columns)
    middle = TableState(((2 * 5 + 2) * 5 + 4) * 4 + 0)
    for action, cell in {"South": "(3, 2)", "North": "(1, 2)", "East": "(2, 3)", "West": "(2, 1)"}.items():
        assert TAXI.observe(TAXI.outcomes(middle, action)[0][1].state).startswith(f"Taxi: {cell}")


def test_the_walls_that_taxi_shows_are_those_that_stop_it() -> None:
    for row in range(5):
        for column in range(4):
            state = TableState(((row * 5 + column) * 5 + 4) * 4)
            wall = TAXI.grid(state)[row][2 * column + 1] == "|"
            assert ("East" not in TAXI.legal_actions(state)) == wall
            assert (f"({row}, {column})" in TAXI.observe(state).partition("right of: ")[2].partition("\n")[0]) == wall


def test_taxi_shows_passenger_destination_and_stands() -> None:
    state = TableState(((2 * 5 + 1) * 5 + 2) * 4 + 3)
    assert TAXI.grid(state) == ["R:.|.:.:G", ".:.|.:.:.", ".:@:.:.:.", ".|.:.|.:.", "P|.:.|D:."]
    assert "Passenger: at Y (4, 0)" in TAXI.observe(state)
    assert "Passenger: in the taxi" in TAXI.observe(TableState(((2 * 5 + 1) * 5 + 4) * 4 + 3))


# ---- Blackjack, which has no table in gymnasium: its own deck is dealt card by card


class Deck:
    """A generator that deals given cards, and notes that it ran out."""

    def __init__(self, cards: list[int]) -> None:
        self.cards, self.short = list(cards), False

    def choice(self, deck: list[int]) -> int:  # noqa: ARG002
        if not self.cards:
            self.short = True
            return 10
        return self.cards.pop(0)


def dealt(player: list[int], dealer: int, action: int) -> dict[tuple[float, bool, tuple[Any, ...]], float]:
    """(reward, ended, observation) → chance, over all cards that gymnasium's environment can draw after an action."""
    ends: Counter[Any] = Counter()
    waiting = [([card], chance) for card, chance in CHANCES.items()]  # the dealer's second card first
    while waiting:
        cards, chance = waiting.pop()
        env = BlackjackEnv(sab=True)
        deck = Deck(cards[1:])
        env._np_random = deck  # type: ignore[assignment]
        env.player, env.dealer = list(player), [dealer, cards[0]]
        observation, reward, ended, _, _ = env.step(action)
        if deck.short:
            waiting += [([*cards, card], chance * further) for card, further in CHANCES.items()]
        else:
            ends[float(reward), ended, tuple(map(int, observation))] += chance
    return ends


CHANCES = {card: (4 if card == 10 else 1) / 13 for card in range(1, 11)}


@pytest.mark.parametrize("player", [[10, 7], [1, 10], [1, 4, 6], [9, 3], [5, 6, 10]])
def test_standing_is_worth_what_gymnasiums_dealer_makes_of_it(player: list[int]) -> None:
    soft = 1 in player and sum(player) <= 11
    hand = Hand(sum(player) + 10 * soft, 10, soft, natural=sorted(player) == [1, 10])
    ours = {after.reward: chance for chance, after in BLACKJACK.outcomes(TableState(hand), "Stand")}
    theirs: Counter[float] = Counter()
    for (reward, ended, _), chance in dealt(player, 10, 0).items():
        assert ended
        theirs[reward] += chance
    assert ours == {reward: pytest.approx(chance, abs=1e-12) for reward, chance in theirs.items()}


@pytest.mark.parametrize("player", [[10, 6], [1, 6], [1, 10], [2, 2], [1, 5, 5], [1, 9, 5]])
def test_a_card_leads_where_gymnasium_says(player: list[int]) -> None:
    soft = 1 in player and sum(player) <= 11
    hand = Hand(sum(player) + 10 * soft, 6, soft, natural=sorted(player) == [1, 10])
    ours: Counter[Any] = Counter()
    for chance, after in BLACKJACK.outcomes(TableState(hand), "Hit"):
        seen = after.state.position
        ours[after.reward, after.terminated, (seen.points, seen.dealer, int(seen.usable_ace))] += chance
    assert ours == {end: pytest.approx(chance) for end, chance in dealt(player, 6, 1).items()}


def test_blackjack_deals_as_gymnasium_deals() -> None:
    game, env, ours, theirs = BLACKJACK, BlackjackEnv(sab=True), Counter(), Counter()
    for seed in range(3000):
        hand = game.initial_state(stream(seed, "initial_state")).position
        ours[hand.points, hand.usable_ace] += 1
        points, _, usable = env.reset(seed=seed)[0]
        theirs[points, bool(usable)] += 1
    assert all(abs(ours[key] - theirs[key]) < 5 * np.sqrt(theirs[key] + ours[key] + 1) for key in ours | theirs)
    assert ours[21, True] / 3000 == pytest.approx(2 * 4 / 13 / 13, abs=0.012)


def test_optimal_play_earns_in_gymnasium_what_the_solver_promises() -> None:
    env, rng, difference = BlackjackEnv(sab=True), np.random.default_rng(0), []
    for seed in range(3000):
        (points, dealer, usable), _ = env.reset(seed=seed)
        state = TableState(Hand(points, dealer, bool(usable), natural=points == 21))
        worth, ended, reward = values_at(BLACKJACK, state).best(state), False, 0.0
        while not ended:
            action = choose_optimal(BLACKJACK, state, rng)
            (points, _, usable), reward, ended, _, _ = env.step(BLACKJACK.actions.index(action))
            state = TableState(Hand(int(points), dealer, bool(usable)), state.turn + 1)
        difference.append(reward - worth)
    assert abs(np.mean(difference)) < 4 * np.std(difference) / np.sqrt(len(difference))


def test_saying_nothing_stands_so_silence_cannot_win_at_blackjack() -> None:
    state = TableState(Hand(12, 10, usable_ace=False))
    assert BLACKJACK.outcomes(state, None) == BLACKJACK.outcomes(state, "Stand")
    assert values_at(BLACKJACK, state).of(state, "Hit") > values_at(BLACKJACK, state).of(state, None)
    assert all(silent_value(BLACKJACK, seed) <= optimal_value(BLACKJACK, seed) for seed in range(40))


# ---- as games of ours


def test_no_start_of_training_is_a_start_of_the_test() -> None:
    for game in (TAXI, BLACKJACK):
        boards = {}
        for split in ("train", "validation", "test"):
            seeds = [episode_seed(game.id, split, index) for index in range(60)]
            boards[split] = {board_of(game, game.initial_state(stream(seed, "initial_state"))) for seed in seeds}
        assert len(boards["test"]) > 15
        assert not boards["test"] & (boards["train"] | boards["validation"])
        assert not boards["train"] & boards["validation"]
    assert not splits_of(CLIFF.id).are_apart  # one start, which all splits share


@pytest.mark.parametrize("game", TOY_TEXT.values(), ids=TOY_TEXT)
def test_equal_seeds_give_equal_episodes_and_returns_stay_in_their_range(game: Any) -> None:
    for player in (choose_random, choose_optimal):
        first, second = (play_episodes(game, ScriptedPolicy(player), [(seed, 0) for seed in range(6)]) for _ in range(2))
        assert [[step.observation for step in episode.steps] for episode in first] == [
            [step.observation for step in episode.steps] for episode in second
        ]
        low, high = game.return_range
        assert all(low <= episode.reward <= high for episode in first)


@pytest.mark.parametrize("game_id", TOY_TEXT)
def test_gymnasium_plays_them_as_text(game_id: str) -> None:
    env: Any = gymnasium.make(f"{TextGameEnv.__module__}:msgrpo_hub/{game_id}")
    observation, info = env.reset(seed=0)
    assert env.observation_space.contains(observation), set(observation) - set(env.observation_space.character_set)
    assert info["legal_actions"]
    assert make_game(game_id).observe(env.unwrapped.state) == observation
