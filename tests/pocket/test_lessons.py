"""The built-in base is taught what a board shows and what moves are allowed, and nothing about where to go.

Every answer is worked out again here, from the state (not from the drawn grid) and from the words of the request.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.agent.prompt_formats import REPLY_FORMAT, system_text, user_text
from msgrpo_hub.games import GAMES, Game
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.snake import Snake, SnakeState
from msgrpo_hub.pocket.build import Encoder
from msgrpo_hub.pocket.lessons import Lesson, Task, bearing, instructions, lessons, play, random_state, random_task
from msgrpo_hub.pocket.tokenizer import build_tokenizer

Cell = tuple[int, int]
MOVES: dict[str, Cell] = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}


def samples(count: int, seed: int = 0) -> Iterator[tuple[Task, Any, np.random.Generator]]:
    for index in range(count):
        rng = np.random.default_rng((seed, index))
        task = random_task(rng)
        yield task, random_state(task.game, rng), rng


# ---- the oracle


def after(cell: Cell, action: str) -> Cell:
    return cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]


def me(state: Any) -> Cell:
    return state.player if isinstance(state, LakeState) else state.snake[0]


def at(game: Game, state: Any, cell: Cell) -> str:
    """What lies on a cell, by the state alone."""
    if not (0 <= cell[0] < game.size and 0 <= cell[1] < game.size):
        return "wall"
    if isinstance(state, LakeState):
        names = {**dict.fromkeys(state.holes, "hole"), (game.size - 1, game.size - 1): "goal", state.player: "you"}
        return names.get(cell, "ice")
    assert isinstance(game, Snake)
    items = {c: item.name for item, cells in zip(game.items, state.items, strict=True) for c in cells}
    snakes = {**dict.fromkeys(state.opponent, "opponent"), **dict.fromkeys(state.snake, "body"), state.snake[0]: "head"}
    return {**items, **snakes}.get(cell, "free")


def allowed(task: Task, state: Any) -> list[str]:
    """The available moves that hit neither a wall nor a snake nor what the task says to avoid; all of them if none is left."""
    bad = {"wall", "body", "opponent", task.avoid}
    return [a for a in task.actions if at(task.game, state, after(me(state), a)) not in bad] or list(task.actions)


def walked(start: Cell, words: str) -> Cell:
    """Where a bearing such as `Right 2 Up 1` leads."""
    if words == "here":
        return start
    assert re.fullmatch(r"\w+ [1-9]\d*( \w+ [1-9]\d*)?", words)
    for action, steps in re.findall(r"(\w+) (\d+)", words):
        start = start[0] + int(steps) * MOVES[action][0], start[1] + int(steps) * MOVES[action][1]
    return start


def cell_of(text: str) -> Cell:
    row, column = re.fullmatch(r"\((\d+), (\d+)\)", text).groups()  # type: ignore[union-attr]
    return int(row), int(column)


def steps_between(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def is_right(task: Task, state: Any, request: str, answer: str) -> bool:
    """Whether an answer to a question with one right answer is that answer."""
    game, here, system = task.game, me(state), task.system
    if request == "What lies in each direction?":
        return answer == " ".join(f"{a} {at(game, state, after(here, a))}" for a in MOVES)
    if found := re.fullmatch(r"What lies (\w+)\?", request):
        return answer == at(game, state, after(here, found[1]))
    if found := re.fullmatch(r"What lies at (\(.*\))\?", request):
        return answer == at(game, state, cell_of(found[1]))
    if request == "Where are you?":
        return cell_of(answer) == here
    if found := re.fullmatch(r"How far is (\(.*\))\?", request):
        return walked(here, answer) == cell_of(found[1])
    if request == "How far is the goal?":
        return at(game, replace(state, player=(-1, -1)), walked(here, answer)) == "goal"
    if request in ("Which moves are legal?", "Which moves are safe?"):
        bad = {"wall", "body"} | ({"hole", "opponent"} if "safe" in request else set())
        return answer == (" ".join(a for a in MOVES if at(game, state, after(here, a)) not in bad) or "none")
    if found := re.fullmatch(r"Which (\w+) is nearest\?", request):
        cell, _, words = answer.partition(") ")
        cells = [(r, c) for r in range(game.size) for c in range(game.size) if at(game, state, (r, c)) == found[1]]
        there = cell_of(f"{cell})")
        nearest = min(steps_between(here, other) for other in cells)
        return there in cells and steps_between(here, there) == nearest and walked(here, words) == there
    if request == "How long are you?":
        return answer == str(sum(at(game, state, (r, c)) in ("head", "body") for r in range(game.size) for c in range(game.size)))
    if request == "Where is the opponent?":
        return cell_of(answer) == state.opponent[0]
    if request == "How many turns has the game?":
        return f"The game ends after {answer} turns." in system
    if request == "Which actions are available?":
        return f"[Available Actions]\n{', '.join(answer.split())}\n" in system
    if found := re.fullmatch(r"What does (an? \w+) give\?", request):
        return re.search(rf"^{found[1]} gives {re.escape(answer)}[ ;]", system, re.MULTILINE | re.IGNORECASE) is not None
    if request == "What does dying give?":
        return f"kills you: that gives {answer} and ends the game." in system
    raise AssertionError(f"a kind of question that this test does not know: {request}")


CHOICES = {
    "way": r"Think of any way, then go it\.",
    "play": re.escape(REPLY_FORMAT),
    "choose": r"Name one of (Left|Down|Right|Up) or (Left|Down|Right|Up)\.",
    "avoid": r"Name a move that is not onto \w+\.",
}
"""The lessons with several right replies; all others are questions of fact."""


# ---- what is taught is right


def test_every_answer_about_board_and_rules_is_a_fact_of_the_state_or_of_the_prompt() -> None:
    asked: Counter[str] = Counter()
    for task, state, rng in samples(700):
        for lesson in lessons(task, state, rng):
            if lesson.kind not in CHOICES:
                (answer,) = lesson.replies
                assert is_right(task, state, lesson.request, answer), (lesson, state)
                asked[lesson.kind] += 1
    kinds = {"each direction", "one direction", "where", "what thing", "what cell", "bearing", "legal", "safe"}
    assert asked.keys() == kinds | {"goal", "nearest", "length", "opponent", "rules"}
    assert min(asked.values()) > 50


def test_the_oracle_tells_a_wrong_answer() -> None:
    """Guards the test above: an answer that belongs to another state is mostly found out."""
    wrong: defaultdict[str, list[bool]] = defaultdict(list)
    for task, state, rng in samples(200):
        other = random_state(task.game, rng)
        for lesson in lessons(task, state, rng):
            if lesson.kind not in (*CHOICES, "rules"):
                wrong[lesson.kind].append(not is_right(task, other, lesson.request, lesson.replies[0]))
    rates = {kind: np.mean(found) for kind, found in wrong.items()}
    assert min(rates.values()) > 0.2, rates


@given(here=st.tuples(st.integers(0, 9), st.integers(0, 9)), there=st.tuples(st.integers(0, 9), st.integers(0, 9)))
@settings(deadline=None)
def test_a_bearing_leads_from_here_to_there_by_a_shortest_way(here: Cell, there: Cell) -> None:
    words = bearing(here, there)
    assert walked(here, words) == there
    assert sum(map(int, re.findall(r"\d+", words))) == steps_between(here, there)


# ---- what is taught is honest


def test_replies_to_the_play_request_are_exactly_the_allowed_moves_whatever_they_lead_to() -> None:
    """One reply for each allowed move, with one and the same thought: none is taught more often than another."""
    counts = set()
    for task, state, _ in samples(1500):
        lesson = play(task, state)
        moves = [parse_action(reply, task.actions) for reply in lesson.replies]
        assert moves == allowed(task, state)
        thoughts = {reply.removesuffix(f"<action>{move}</action>") for reply, move in zip(lesson.replies, moves, strict=True)}
        assert len(thoughts) == 1
        assert lesson.request == REPLY_FORMAT
        counts.add((len(moves), isinstance(state, LakeState), bool(task.avoid), len(task.actions)))
    assert len(counts) > 15  # of moves allowed, in both games, with and without a prohibition, with fewer actions


def test_the_thought_before_a_move_holds_percepts_only() -> None:
    for task, state, _ in samples(500):
        thought = re.fullmatch(r"<think>(.*)</think><action>\w+</action>", play(task, state).replies[0])
        assert thought is not None
        seen, _, item = thought[1].partition(" nearest ")
        assert is_right(task, state, "What lies in each direction?", seen)
        assert bool(item) == (isinstance(task.game, Snake) and any(i.grows for i in task.game.items))
        if item:
            name, _, answer = item.partition(" ")
            cells = {c for i, cs in zip(task.game.items, state.items, strict=True) for c in cs if i.grows}
            assert steps_between(me(state), cell_of(f"{answer.partition(')')[0]})")) == min(
                steps_between(me(state), c) for c in cells
            )
            assert at(task.game, state, walked(me(state), answer.partition(") ")[2])) == name


@pytest.mark.parametrize("reward", [-5.0, 1.0, 10.0])
def test_what_an_item_is_worth_changes_no_reply(reward: float) -> None:
    """Poison is approached and shunned as little as food."""
    for task, state, _ in samples(300):
        if isinstance(task.game, Snake):
            items = tuple(replace(item, reward=reward) for item in task.game.items)
            other = replace(task, game=replace(task.game, items=items, death_reward=-9.0))
            assert play(other, state).replies == play(task, state).replies


def test_moves_towards_the_goal_are_taught_as_often_as_random_legal_play_takes_them() -> None:
    """The mean over states of the share of replies that come nearer to the goal, against the same share of legal moves."""
    taught, legal = [], []
    for task, state, _ in samples(2000):
        if isinstance(task.game, FrozenLake) and not task.avoid and len(task.actions) == 4:
            goal, here = (task.game.size - 1,) * 2, me(state)
            nearer = {a for a in MOVES if steps_between(after(here, a), goal) < steps_between(here, goal)}
            moves = [parse_action(reply, task.actions) for reply in play(task, state).replies]
            on_board = [a for a in MOVES if at(task.game, state, after(here, a)) != "wall"]
            taught.append(np.mean([move in nearer for move in moves]))
            legal.append(np.mean([move in nearer for move in on_board]))
    assert len(taught) > 400
    assert taught == legal


def test_no_request_asks_for_a_way_or_for_the_better_move() -> None:
    """A list of all that is asked: a new kind of request fails here, so that its honesty is thought about."""
    cell, thing = r"\(\d, \d\)", r"(ice|hole|goal|you|wall|free|head|body|opponent|apple|banana|fire)"
    facts = [
        *(r"What lies in each direction\?", r"What lies (Left|Down|Right|Up)\?", rf"What lies at {cell}\?"),
        *(r"Where are you\?", rf"How far is {cell}\?", r"How far is the goal\?", r"Which moves are (legal|safe)\?"),
        *(rf"Which {thing} is nearest\?", r"How long are you\?", r"Where is the opponent\?"),
        *(r"How many turns has the game\?", r"Which actions are available\?", rf"What does an? {thing} give\?"),
        r"What does dying give\?",
    ]
    known = re.compile("|".join([*facts, *CHOICES.values()]))
    for task, state, rng in samples(700):
        for lesson in lessons(task, state, rng):
            assert known.fullmatch(lesson.request), lesson.request
            if lesson.kind not in CHOICES:
                assert len(lesson.replies) == 1
                assert "<action>" not in lesson.replies[0]


def test_a_prohibition_allows_every_move_that_it_does_not_forbid() -> None:
    things = set()
    for task, state, rng in samples(700):
        (lesson,) = [lesson for lesson in instructions(task, state, rng) if lesson.kind == "avoid"]
        thing = lesson.request.removeprefix("Name a move that is not onto ").removesuffix(".")
        others = [a for a in MOVES if at(task.game, state, after(me(state), a)) != thing]
        assert list(lesson.replies) == (others or ["none"])
        things.add(thing)
    assert things >= {"wall", "ice", "hole", "goal", "free", "body", "opponent", "apple"}


def test_a_choice_between_two_moves_has_nothing_to_do_with_the_board() -> None:
    """Both replies are right, and the pairs are uniform in a state where the goal lies Down and Right."""
    game = FrozenLake("lesson")
    task, state = Task(game, game.actions), LakeState(4, ((1, 1),), player=(2, 2))
    counts: Counter[tuple[str, ...]] = Counter()
    rng = np.random.default_rng(0)
    for _ in range(3600):
        (lesson,) = [lesson for lesson in instructions(task, state, rng) if lesson.kind == "choose"]
        assert lesson.request == f"Name one of {lesson.replies[0]} or {lesson.replies[1]}."
        counts[lesson.replies] += 1
    assert len(counts) == 12
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_a_way_has_nothing_to_do_with_the_board_and_the_move_is_one_that_it_names() -> None:
    """Where the goal lies Right and Down, every way is as likely as any other, off the board and into holes too."""
    game = FrozenLake("lesson")
    task, state = Task(game, game.actions), LakeState(4, ((1, 1),), player=(2, 2))
    counts: Counter[str] = Counter()
    rng = np.random.default_rng(0)
    for _ in range(4900):
        for lesson in instructions(task, state, rng):
            if lesson.kind == "way":
                thoughts = {reply.partition("</think>")[0] for reply in lesson.replies}
                (way,) = (thought.partition(" way ")[2] for thought in thoughts)
                moves = [parse_action(reply, game.actions) for reply in lesson.replies]
                assert moves == [action for action in MOVES if action in way.split()]
                counts[way] += 1
    assert len(counts) == 48  # 7 × 7 offsets, less none at all
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_no_lesson_counts_one_of_its_replies_twice() -> None:
    for task, state, rng in samples(300):
        for lesson in lessons(task, state, rng):
            assert len(lesson.replies) == len(set(lesson.replies)) >= 1


def test_the_system_message_never_gains_a_hint() -> None:
    """It is the game's own, but for fewer actions and at most one prohibition, which is never about the goal."""
    for task, _, _ in samples(500):
        own = system_text(task.game).replace("Left, Down, Right, Up", ", ".join(task.actions))
        extra = task.system.removeprefix(own)
        assert extra in ("", f"\nNever move onto {task.avoid}.")
        assert task.avoid != "goal"
        assert set(task.actions) <= set(MOVES)
        assert len(task.actions) >= 2


# ---- states come from no play


class Unplayable(FrozenLake):
    """A lake on which nobody can move."""

    def step(self, *_: Any) -> Any:
        raise AssertionError("a lesson's state was reached by play")


class UnplayableSnake(Snake):
    def step(self, *_: Any) -> Any:
        raise AssertionError("a lesson's state was reached by play")


def test_states_and_lessons_are_made_without_a_single_step() -> None:
    rng = np.random.default_rng(0)
    for game in (Unplayable("lesson"), UnplayableSnake("lesson"), UnplayableSnake("lesson", has_opponent=False)):
        for _ in range(50):
            state = random_state(game, rng)
            assert state.turn == 0
            assert lessons(Task(game, game.actions), state, rng)


def test_the_player_stands_on_every_cell_of_the_ice_equally_often() -> None:
    """No way to the goal is followed: the places are uniform given the lake, with holes on it and off the goal."""
    game, ranks = FrozenLake("lesson", size=4), []
    for seed in range(3000):
        state = random_state(game, np.random.default_rng(seed))
        ice = [(r, c) for r in range(4) for c in range(4) if (r, c) not in state.holes and (r, c) != state.goal]
        ranks.append((ice.index(state.player) + 0.5) / len(ice))
    assert scipy.stats.kstest(ranks, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("game", [game for game in GAMES.values() if isinstance(game, Snake)], ids=lambda game: game.id)
def test_random_snakes_are_possible_ones(game: Snake) -> None:
    lengths = set()
    for seed in range(150):
        state = random_state(game, np.random.default_rng(seed))
        assert isinstance(state, SnakeState)
        for body in (state.snake, state.opponent):
            assert all(steps_between(a, b) == 1 for a, b in pairwise(body))
        cells = [*state.snake, *state.opponent, *(c for cells in state.items for c in cells)]
        assert len(cells) == len(set(cells))
        assert all(0 <= r < game.size and 0 <= c < game.size for r, c in cells)
        assert [len(cells) for cells in state.items] == [item.count for item in game.items]
        assert bool(state.opponent) == game.has_opponent
        lengths.add(len(state.snake))
    assert lengths == set(range(1, 9))


def test_the_random_games_are_those_of_the_registry_with_other_numbers() -> None:
    """Rules that the base was never told are not among the tests of it."""
    rng = np.random.default_rng(0)
    tasks = [random_task(rng) for _ in range(800)]
    fields = {(type(task.game).__name__, task.game.size) for task in tasks}
    assert fields == {("FrozenLake", 4), ("FrozenLake", 6), ("FrozenLake", 8), ("Snake", 6), ("Snake", 10)}
    for task in tasks:
        low, high = task.game.reward_range
        assert -5 <= low <= high <= 10
        assert 5 <= task.game.horizon <= 40


# ---- lessons and prompts are one text


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    texts = [text for task, state, _ in samples(60, seed=1) for text in (task.system, user_text(task.game.observe(state)))]
    return build_tokenizer(texts, 700)


def test_lessons_are_encoded_token_for_token_as_the_chat_template_renders_them(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = Encoder(tokenizer)
    for task, state, rng in samples(25):
        taught = lessons(task, state, rng)
        users = [user_text(task.game.observe(state), lesson.request) for lesson in taught]
        for lesson, user, prompt in zip(taught, users, encoder.prompts(task.system, users), strict=True):
            chat = [{"role": "system", "content": task.system}, {"role": "user", "content": user}]
            assert prompt == tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
            for reply, ids in zip(lesson.replies, encoder.replies(lesson), strict=True):
                whole = tokenizer.apply_chat_template([*chat, {"role": "assistant", "content": reply}])["input_ids"]
                assert prompt + ids == whole


@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
def test_the_play_lesson_asks_what_a_player_of_a_registered_game_is_asked(game: Game) -> None:
    task = Task(game, game.actions)
    for seed in range(5):
        state = random_state(game, np.random.default_rng(seed))
        prompt = build_prompt(game, state)
        assert (task.system, user_text(game.observe(state), play(task, state).request)) == (prompt.system, prompt.user)


def test_a_lesson_is_a_function_of_its_seed() -> None:
    def made(seed: int) -> list[list[Lesson]]:
        return [lessons(task, state, rng) for task, state, rng in samples(20, seed)]

    assert made(0) == made(0) != made(1)
