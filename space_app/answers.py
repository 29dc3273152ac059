"""What the endpoints answer, as types: programs and language models get them as JSON schemas."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict  # that of Python 3.11 has no schema


class Game(TypedDict):
    """What is needed to draw a game's boards. Cells are numbers, counted row by row."""

    title: str
    rows: int
    columns: int
    horizon: int
    actions: list[str]
    moves: dict[str, list[int]]
    icy: bool
    pieces: dict[str, str]
    symbols: list[list[str]]
    legend: list[list[str]]


class State(TypedDict, total=False):
    """One board: the cells of its pieces by symbol, and a single player or moving bodies from head to tail."""

    pieces: dict[str, list[int]]
    walker: int
    posture: Literal["", "goal", "hole"]
    bodies: list[list[int]]
    alive: list[bool]


class Step(TypedDict):
    """One turn. Actions are numbers in the game's `actions`."""

    prompt: str
    reply: str
    status: Literal["ok", "illegal", "unreadable", "truncated_reply"]
    action: int | None
    legal: list[int]
    optimal: list[int]
    best: list[int]
    move: int | None
    reward: float
    regret: float | None
    reward_so_far: float
    regret_so_far: float | None


class Player(TypedDict):
    """One player's episode."""

    player: str
    game: Game
    seed: str
    system: str
    states: list[State]
    steps: list[Step]
    ending: Literal["success", "survived", "out of turns", "lost"]
    ended: str
    reward: float
    success: bool
    regret: float | None
    value_optimal: float | None


class Replay(TypedDict):
    """A board as one or two players played it."""

    number: int
    seed: str
    players: list[Player]
    divergence: int | None


class Score(TypedDict):
    """A mean with its 95 % interval."""

    mean: float
    low: float | None
    high: float | None


class Measured(TypedDict):
    """A mean with its 95 % interval, and the rule that gave the interval."""

    mean: float
    low: float | None
    high: float | None
    rule: str


class Figures(TypedDict):
    """The scores of one player."""

    player: str
    reward: Score
    success: Score


class Difference(TypedDict):
    """The mean of b − a with its 95 % interval, and what a paired test says."""

    mean: float
    low: float | None
    high: float | None
    p: float
    verdict: Literal["better", "worse", "inconclusive"]
    detectable: float | None


class Comparison(TypedDict):
    """Two players on the same boards."""

    film: Replay
    episodes: int
    wanted: int
    a: Figures
    b: Figures
    difference: Difference | None


class Move(TypedDict):
    """One move of a visitor."""

    action: int
    reward: float
    legal: list[int]
    optimal: list[int]
    best: list[int]
    status: Literal["ok"]


class Played(TypedDict):
    """A board after the moves so far."""

    game: Game
    number: int
    states: list[State]
    steps: list[Move]
    actions: list[str]
    legal: list[str]
    reward: float
    turns_left: int
    over: bool
    success: bool
    ended: str
    goal: str
    rules: str


class Outcome(TypedDict):
    """How one player did on a board."""

    player: str
    reward: float
    success: bool
    turns: int
    value_optimal: float | None


class Outcomes(TypedDict):
    """How the agent and the best player did on a board."""

    agent: Outcome
    best: Outcome
    film: Replay


class Words(TypedDict):
    """The words of a game, as `change_rules` takes them."""

    instructions: str
    rules: str
    names: list[str]
    expected: Literal["less", "same"]


class Arm(TypedDict):
    """An agent's play under one prompt."""

    per_game: float
    unreadable: float


class Change(TypedDict):
    """The difference between two prompts."""

    mean: float
    low: float | None
    high: float | None
    p: float


class Judgement(TypedDict):
    """An agent's play with a game's own words, with a sentence that says nothing, and with other words."""

    film: Replay
    told: str
    episodes: int
    wanted: int
    own: Arm
    control: Arm
    changed: Arm
    difference: Change
    disturbance: Change
    verdict: str
    sentence: str


class Options(TypedDict):
    """What a request may contain."""

    games: list[str]
    players: list[str]
    changes: dict[str, str]
    largest_model_bytes: int
    most_episodes: int
    most_starts: int
    longest_text: int
    highest_seed: int


Row = TypedDict(
    "Row",
    {
        "task": str,
        "player": str,
        "rank": list[int] | None,
        "episodes": int,
        "reward": Measured | None,
        "success": Measured | None,
        "normalised": float | None,
        "silent": float | None,
        "plays": bool,
        "run": str,
        "temperature": str,
        "token limit": str,
        "prompt format": str,
        "engine": str,
        "link": str,
    },
)
"""One player on one game."""

ANSWERS: dict[str, Any] = {
    "watch": Replay,
    "compare": Comparison,
    "play_step": Played,
    "play_result": Outcomes,
    "words": Words,
    "change_rules": Judgement,
    "leaderboard": list[Row],
    "options": Options,
}
"""Endpoint → the type of its answers."""
