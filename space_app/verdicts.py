"""What an agent's play under three prompts says: that it reads the words, that it has a habit, or nothing.

The three prompts are the game's own words, the words of the visitor, and a control: as many other words as the visitor's, in the
same places, that say nothing about the game. Any new words may disturb a small model, so the visitor's words are compared with
the control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from compare import ends

from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation import Comparison, compare_paired
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range

FEWEST_STARTS = 30
"""With fewer starts there is no verdict."""

RARE = 0.1
"""Pickups per game below which a change of the agent's play would not show."""

MOST_UNPARSED = 0.5
"""Share of unparsed replies above which an agent does not play, as on the leaderboard."""

Expected = Literal["less", "same"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a visitor wants to know."""

    expected: Expected
    """How often an agent that reads the words would collect rewards."""
    reads: bool
    """Whether the player reads words at all: a scripted player does not."""
    renamed: bool
    """Whether actions have new names, which an agent can learn from the words only."""
    changed: bool
    """Whether the visitor's prompt differs from the game's own."""


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Episodes on the same starts under the three prompts."""

    own: list[Episode]
    """With the game's own words."""
    control: list[Episode]
    """With a sentence that says nothing."""
    changed: list[Episode]
    """With the visitor's words."""


def pickups(episode: Episode) -> int:
    """How often an episode collected a reward: apples eaten, or the goal reached."""
    return sum(step.reward > 0 for step in episode.steps)


def judged(asked: Asked, arms: Arms) -> dict[str, Any]:
    """The figures of the three prompts, and the verdict."""
    compared, disturbed = _compared(arms.control, arms.changed), _compared(arms.own, arms.control)
    kind, sentence = verdict(asked, arms, compared)
    return {
        "episodes": len(arms.own),
        "own": _figures(arms.own),
        "control": _figures(arms.control),
        "changed": _figures(arms.changed),
        "difference": {"mean": compared.difference, **ends(compared.interval), "p": compared.p},
        "disturbance": {"mean": disturbed.difference, **ends(disturbed.interval), "p": disturbed.p},
        "verdict": kind,
        "sentence": sentence,
    }


def _compared(a: Sequence[Episode], b: Sequence[Episode]) -> Comparison:
    game = make_game(a[0].game_id.partition(":")[0])
    bounds = 0.0, max(1.0, min(float(game.horizon), return_range(game)[1]))  # at most one pickup a turn; a goal is reached once
    return compare_paired([pickups(e) for e in a], [pickups(e) for e in b], seed=0, bounds=bounds)


def _figures(episodes: Sequence[Episode]) -> dict[str, float]:
    return {"per_game": _per_game(episodes), "unreadable": _unparsed(episodes)}


def _per_game(episodes: Sequence[Episode]) -> float:
    return sum(map(pickups, episodes)) / len(episodes)


def _unparsed(episodes: Sequence[Episode]) -> float:
    return sum(e.unreadable for e in episodes) / max(sum(len(e.steps) for e in episodes), 1)


def verdict(asked: Asked, arms: Arms, compared: Comparison) -> tuple[str, str]:
    """A verdict and the sentence that explains it.

    Args:
        asked: what the visitor wants to know.
        arms: the episodes.
        compared: pickups with the visitor's words, compared with the control.
    """
    starts, control = len(arms.own), _per_game(arms.control)
    if not asked.changed:
        return "the same words", "Nothing was changed."
    if not asked.reads:
        return "does not read", "This player is a program: it sees the board and no words, so words cannot change its play."
    if starts < FEWEST_STARTS:
        return "too few", f"{starts} start{'s say' if starts > 1 else ' says'} nothing yet: a verdict takes {FEWEST_STARTS}."
    if _unparsed(arms.own) > MOST_UNPARSED:
        return "does not play", "Most of its replies name no action, already with the game's own words."
    if _unparsed(arms.changed) > MOST_UNPARSED:
        return "unparsed", "With your words most of its replies name no action: it shows neither reading nor a habit."
    if _per_game(arms.own) < RARE:
        return (
            "nothing to see",
            "Even with the game's own words it almost never eats an apple or reaches the goal, so a change would not show.",
        )
    if control < RARE:
        return "disturbed by any words", "A sentence that says nothing about the game already stops it."
    assert compared.interval  # there are at least 30 starts, and the number of pickups has bounds
    judge = _forbidden if asked.expected == "less" else _renamed if asked.renamed else _other_words
    return judge(compared.interval.low, compared.interval.high, control)


NO_SIGN, HABIT = "no sign either way", "keeps its habit"


def _forbidden(low: float, high: float, control: float) -> tuple[str, str]:
    """The words forbid what the agent collects."""
    if high < -control / 2:
        return "follows the words", "It collects less than half of what it does after a sentence that says nothing."
    if high < 0:
        return "follows in part", "It collects less than after a sentence that says nothing, but not clearly less than half."
    if low > -control / 2:
        return HABIT, "Told not to, it still collects more than half of what it does after a sentence that says nothing."
    return NO_SIGN, "That it collects less than after a sentence that says nothing is not shown, nor that it reads."


def _renamed(low: float, high: float, control: float) -> tuple[str, str]:
    """The words name the actions anew, and mean the same."""
    if low > -control / 2:
        return "follows the words", "It acts by the new names, which only the words tell, and keeps more than half of its play."
    if high < -control / 2:
        return HABIT, "It answers, but loses more than half of its play: it does not act by the new names."
    return NO_SIGN, "It loses about half of its play: more starts may tell."


def _other_words(low: float, high: float, control: float) -> tuple[str, str]:  # noqa: ARG001
    """The words mean the same."""
    if high < 0:
        return "disturbed by the words", "It plays worse than after a sentence that says nothing."
    if low > 0:
        return "helped by the words", "It plays better than after a sentence that says nothing."
    return NO_SIGN, "No difference from its play after a sentence that says nothing is shown: it may read nothing."
