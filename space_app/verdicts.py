"""The verdict on an agent's play under three prompts: it follows the words, it keeps its habit, or neither shows.

The prompts are the game's own words, the visitor's words, and a control: as many other words as the visitor's, in the same
places, that say nothing about the game. Any new words may disturb a small model, and some sentences more than others. So a
verdict needs a difference from the game's own words, from the control, and in the same direction after each of its sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from compare import ends

from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation import compare_paired
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range

FEWEST_STARTS = 30
"""With fewer starts there is no verdict."""

RARE = 0.1
"""Pickups per game below which a change of the agent's play would not show."""

MOST_UNPARSED = 0.5
"""Share of unparsed replies above which an agent does not play, as on the leaderboard."""

NEUTRAL = (
    "My neighbour has a red bicycle.",
    "Paris is the capital of France.",
    "The library opens at nine.",
    "An old clock hangs on the wall.",
    "The train arrives at noon.",
)
"""The sentences of the control. The starts take them in turn."""

Expected = Literal["less", "same"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A visitor's question."""

    expected: Expected
    """How often an agent that reads the words would collect rewards."""
    reads: bool
    """Whether the player reads words; a scripted player does not."""
    renamed: bool
    """Whether actions have new names, which an agent can learn from the words only."""
    changed: bool
    """Whether the visitor's prompt differs from the game's own."""


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Episodes on the same starts under the three prompts."""

    own: list[Episode]
    control: list[Episode]
    """One with each neutral sentence in turn."""
    changed: list[Episode]


def judged(asked: Asked, arms: Arms) -> dict[str, Any]:
    """The figures of the three prompts, and the verdict."""
    game = make_game(arms.own[0].game_id)
    bounds = 0.0, max(1.0, min(float(game.horizon), return_range(game)[1]))  # at most one pickup a turn; a goal is reached once
    found: dict[str, Any] = {"episodes": len(arms.own)}
    counts: dict[str, list[int]] = {}
    for name in ("own", "control", "changed"):
        episodes = getattr(arms, name)
        each = counts[name] = [sum(step.reward > 0 for step in episode.steps) for episode in episodes]  # apples, or the goal
        unparsed = sum(episode.unreadable for episode in episodes) / max(sum(len(episode.steps) for episode in episodes), 1)
        found[name] = {"per_game": sum(each) / len(each), "unreadable": unparsed}
    sides = {"difference": ("control", "changed"), "change": ("own", "changed"), "disturbance": ("own", "control")}
    for name, (a, b) in sides.items():
        compared = compare_paired(counts[a], counts[b], seed=0, bounds=bounds)
        found[name] = {"mean": compared.difference, **ends(compared.interval), "p": compared.p}
    gains = [b - a for a, b in zip(counts["control"], counts["changed"], strict=True)]
    found["by_sentence"] = [sum(of) / len(of) for k in range(len(NEUTRAL)) if (of := gains[k :: len(NEUTRAL)])]
    found["verdict"], found["sentence"] = verdict(asked, found)
    return found


def verdict(asked: Asked, found: dict[str, Any]) -> tuple[str, str]:
    """A verdict on the figures of the three prompts, and the sentence that explains it."""
    starts, own, control, changed = (found[name] for name in ("episodes", "own", "control", "changed"))
    if not asked.changed:
        return "the same words", "Nothing was changed."
    if not asked.reads:
        return "does not read", "This player is a program: it sees the board and no words, so words cannot change its play."
    if starts < FEWEST_STARTS:
        return "too few", f"{starts} start{'s say' if starts > 1 else ' says'} nothing yet: a verdict takes {FEWEST_STARTS}."
    if own["unreadable"] > MOST_UNPARSED:
        return "does not play", "Most of its replies name no action, already with the game's own words."
    if changed["unreadable"] > MOST_UNPARSED:
        return "unparsed", "With your words most of its replies name no action: it shows neither reading nor a habit."
    if own["per_game"] < RARE:
        return (
            "nothing to see",
            "Even with the game's own words it almost never eats an apple or reaches the goal, so a change would not show.",
        )
    if control["per_game"] < RARE:
        return "disturbed by any words", "Sentences that say nothing about the game already stop it."
    # there are intervals: at least 30 starts, and bounds
    both = [(found["difference"], control["per_game"]), (found["change"], own["per_game"])]
    falls = all(each["high"] < 0 for each, _ in both) and max(found["by_sentence"]) < 0
    rises = all(each["low"] > 0 for each, _ in both) and min(found["by_sentence"]) > 0
    halved = falls and all(each["high"] < -usual / 2 for each, usual in both)
    keeps = all(each["low"] > -usual / 2 for each, usual in both)
    habit, unclear = "keeps its habit", "no difference shown"
    others, apart = "with the game's own words and after neutral sentences", "Its play is not clearly apart"
    if asked.expected == "less":  # the words forbid the rewards
        if halved:
            return "follows the words", f"It collects less than half of what it does {others}."
        if falls:
            return "follows in part", f"It collects less than {others}, but not clearly less than half."
        if keeps:
            return habit, f"Told not to, it still collects more than half of what it does {others}."
        return unclear, f"{apart} from both half and all of what it collects {others}."
    if asked.renamed:  # the actions have new names
        if keeps:
            sentence = "It acts by the new names, which only the words tell, and keeps more than half of its play."
            return "follows the words", sentence
        if halved:
            return habit, "It answers, but loses more than half of its play: it does not act by the new names."
        return unclear, f"{apart} from about half of that {others}: more starts may tell."
    if falls:
        return "disturbed by the words", f"It plays worse than {others}, whichever of these."
    if rises:
        return "helped by the words", f"It plays better than {others}, whichever of these."
    return unclear, f"{apart} from that {others}: it may read nothing."
