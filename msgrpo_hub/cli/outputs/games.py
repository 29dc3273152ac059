"""What `--json` prints of games and episodes, as types."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from msgrpo_hub.episode import ReplyStatus
from msgrpo_hub.games import Split

Pair = tuple[float, float]


class Boards(TypedDict):
    """How many boards the first episodes of a split have."""

    split: Split
    episodes: int
    boards: int
    """The number of different ones."""


class GameRules(TypedDict):
    """A game."""

    id: str
    """Its id, with its version."""
    rows: int
    columns: int
    horizon: int
    """The most turns of an episode."""
    actions: list[str]
    """All actions, whether legal in a state or not."""
    reward_range: Pair
    """The smallest and the largest reward of a step."""
    instructions: str
    rules: list[str]
    task_hash: NotRequired[str]
    """Identifies rules, boards, rewards, horizon and seeds. Only for games that are named."""
    boards: NotRequired[list[Boards]]
    """Only for games that are named."""


class PlayedStep(TypedDict):
    """A turn."""

    observation: str
    reply: str
    """What the player answered, verbatim."""
    action: str | None
    """The action parsed from the reply; null if it has none."""
    status: ReplyStatus
    """Whether the reply was parsed; `truncated_reply`: it reached the token limit before an action."""
    reward: float


class PlayedEpisode(TypedDict):
    """An episode."""

    game: str
    seed: int
    """The seed of its initial state."""
    reward: float
    """The sum of the rewards."""
    success: bool
    """Whether the game was won."""
    steps: list[PlayedStep]
