"""Change the rules: an agent is told something else about the same game. Does it follow the words, or its habit?

Only the words change. The game underneath, its chance and its rewards stay as they are, so that what the agent does can be
compared start by start with what it does when the game is told as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import checks
import players
import replay
from compare import batches, ends

from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.evaluation import Comparison, compare_paired
from msgrpo_hub.games import GAMES, Game, Variant

LONGEST = 4_000
"""Characters of a text at most."""

MOST = 100
"""Starts at most; each is played twice."""

FEWEST = 30
"""Starts below which nothing is concluded."""

RARE = 0.1
"""Under so many a game, an agent does too little of what the words are about for anything to show."""

Expected = Literal["less", "same"]
_ACTION = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,19}", re.ASCII)
_MOVES = "Up and Down change the row by one, Left and Right change the column by one."
_WAYS = {"Left": "the column by -1", "Down": "the row by 1", "Right": "the column by 1", "Up": "the row by -1"}


@dataclass(frozen=True)
class Told(Variant):
    """A game told in a visitor's words; all else is that of `game`."""

    instructions: str = ""  # fields, where Variant has properties
    rules: tuple[str, ...] = ()


PRESETS: dict[str, tuple[str, Expected]] = {
    "as written": ("nothing is changed", "same"),
    "other words": ("the task is said in other words, and means the same", "same"),
    "poisoned": ("apples, or the goal, are said to harm", "less"),
    "new names": ("the actions are called North, South, East and West", "same"),
    "swapped names": ("Left and Right, Up and Down stand for each other", "same"),
}
_NAMES = {
    "new names": {"Left": "West", "Down": "South", "Right": "East", "Up": "North"},
    "swapped names": {"Left": "Right", "Right": "Left", "Up": "Down", "Down": "Up"},
}

_INSTRUCTIONS = {
    "other words": (
        "This is a lake of ice. Find your way to the goal, and keep out of the holes.",
        "The snake is yours. Get the highest reward that you can, and do not die.",
    ),
    "poisoned": (
        "You walk on a frozen lake. The goal is a trap now: never step on it. Do not fall into a hole. Stay on the ice.",
        "You steer a snake. What lies on the board is poisoned: eat nothing and stay alive.",
    ),
}
"""On the lake, and in Snake."""


def words(game: str, preset: str = "as written") -> dict[str, Any]:
    """What a game says of itself, or one of the ready changes of it.

    Args:
        game: id of a registered game, without a variant.
        preset: as written, other words, poisoned, new names, or swapped names.

    Returns:
        `instructions`, `rules` (one a line), `names` (of the four actions) and `expected`, all as `change_rules` takes them.
    """
    rules = base_game(game)
    if not isinstance(preset, str) or preset not in PRESETS:
        raise unknown("change", str(preset)[:40], PRESETS)
    names = _NAMES.get(preset, {})
    instructions, lines = rules.instructions, list(rules.rules)
    if preset in ("other words", "poisoned"):
        instructions = _INSTRUCTIONS[preset][0 if "G" in rules.symbols else 1]
    if preset == "poisoned":
        lines = [re.sub(r"^(The goal|An? \w+) gives 1\d*", r"\1 gives -1", line) for line in lines]
    return {
        "instructions": instructions,
        "rules": "\n".join(moves(names) if line == _MOVES else line for line in lines),
        "names": [names.get(action, action) for action in rules.actions],
        "expected": PRESETS[preset][1],
    }


def moves(names: dict[str, str]) -> str:
    """The rule that says what the actions do, for renamed ones."""
    told = [f"{names.get(action, action)} changes {way}" for action, way in _WAYS.items()]
    return "; ".join(told) + "." if names else _MOVES


def base_game(name: str) -> Game:
    """A registered game by its id. Raises `UserError` for any other."""
    if not isinstance(name, str) or name not in GAMES:
        checks.game(name)
        raise UserError(f"{name!r}: expected a registered game without a variant, such as 'Snake-Solo-v1'")
    return GAMES[name]


def told_game(game: str, instructions: str, rules: str, names: Sequence[str]) -> Told:
    """The game in a visitor's words. Raises `UserError` for texts that are too long and names that cannot be read."""
    own = base_game(game)
    said = checks.text(instructions, LONGEST, "instructions").strip()
    lines = checks.text(rules, LONGEST, "rules").strip()
    if not said and not lines:
        raise UserError("no words at all: expected instructions or rules")
    if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != len(own.actions):
        raise UserError(f"expected {len(own.actions)} names, for {', '.join(own.actions)}")
    given = [str(name).strip() or action for name, action in zip(names, own.actions, strict=True)]
    for name in given:
        if not _ACTION.fullmatch(name):
            raise UserError(f"the name {name[:30]!r}: expected a letter, then up to 19 letters, digits, '-' or '_'")
    if len({name.casefold() for name in given}) < len(given):
        raise UserError(f"the names {', '.join(given)}: expected four different ones")
    changed = {action: name for action, name in zip(own.actions, given, strict=True) if action != name}
    return Told(own, f"{own.id}:told", names=changed, instructions=said, rules=tuple(lines.splitlines()))


def change_rules(
    game: str, seed: int, player: str, instructions: str, rules: str, names: list[str], expected: Expected, episodes: int
) -> Iterator[dict[str, Any]]:
    """An agent on the same starts twice: told as it is, and told in other words. Tells more after every 25 starts or so.

    Args:
        game: id of a registered game, without a variant.
        seed: number of the first test episode; the others follow it.
        player: as for watch; scripted players do not read.
        instructions: up to 4,000 characters.
        rules: up to 4,000 characters, one rule a line.
        names: of the four actions Left, Down, Right, Up; empty ones stay.
        expected: what an agent that reads would do of what the game pays for: less, or the same.
        episodes: how many starts, 1 to 100.

    Yields:
        `film` of the first start, both ways; `told` (the prompt); `episodes`, `wanted`; `control` and `changed`: how often a
        game it ate an apple or reached the goal, and the share of replies that could not be read; `difference` with its
        interval and p; `verdict` and the `sentence` that explains it.
    """
    own, other = base_game(game), told_game(game, instructions, rules, names)
    first, wanted = checks.number(seed), checks.number(episodes, 1, MOST, "number of episodes")
    players.check_player(player, own)
    if expected not in ("less", "same"):
        raise unknown("expectation", str(expected)[:40], ("less", "same"))
    control: list[Episode] = []
    changed: list[Episode] = []
    film = None
    for batch in batches(first, wanted, [player]):
        seeds = [replay.seed_of(own, number) for number in batch]
        control += players.play(player, own, seeds)
        changed += players.play(player, other, seeds)
        film = film or replay.assemble(
            first, [replay.track(own, "as written", control[0]), replay.track(other, "in your words", changed[0])]
        )
        same = film["players"][0]["system"] == film["players"][1]["system"]
        told = {"verdict": "the same words", "sentence": "Nothing was changed."} if same else {}
        yield {
            "film": film,
            "told": film["players"][1]["system"],
            "wanted": wanted,
            **judged(expected, control, changed),
            **told,
        }


def judged(expected: Expected, control: Sequence[Episode], changed: Sequence[Episode]) -> dict[str, Any]:
    """What was done, and what it says."""
    before, after = [[pickups(e) for e in episodes] for episodes in (control, changed)]
    compared = compare_paired(before, after, seed=0)
    kind, sentence = verdict(expected, sum(before) / len(before), compared)
    return {
        "episodes": len(control),
        "control": _done(before, control),
        "changed": _done(after, changed),
        "difference": {"mean": compared.difference, **ends(compared.interval), "p": compared.p},
        "verdict": kind,
        "sentence": sentence,
    }


def pickups(episode: Episode) -> int:
    """How often an episode did what the game pays for: apples eaten, or the goal reached."""
    return sum(step.reward > 0 for step in episode.steps)


def _done(counts: Sequence[int], episodes: Sequence[Episode]) -> dict[str, float]:
    steps = sum(len(e.steps) for e in episodes)
    return {"per_game": sum(counts) / len(counts), "unreadable": sum(e.unreadable for e in episodes) / max(steps, 1)}


def verdict(expected: Expected, control: float, compared: Comparison) -> tuple[str, str]:
    """Words or habit, from the difference in what is done per game and its 95 % interval.

    "Less" takes an interval wholly below 0, "less than half" one wholly below −control / 2, "more than half" one wholly above
    it. An interval that says none of these says nothing.
    """
    if compared.n < FEWEST:
        return "too few", f"{compared.n} starts say nothing yet: a verdict takes {FEWEST}."
    if control < RARE:
        return "nothing to see", "Told as it is, the agent hardly ever does what the words are about."
    interval, half = compared.interval, -control / 2
    if interval is None or interval.low <= half <= interval.high >= 0:
        return "cannot tell", f"{compared.n} starts are too few to tell: play more."
    left = "little" if interval.high < half else "all" if interval.high >= 0 else "most" if interval.low > half else "about half"
    return {
        ("less", "little"): ("follows the words", "It does less than half of what the words forbid, beyond chance."),
        ("less", "about half"): ("follows in part", "It does less of what the words forbid, but about half of it still."),
        ("less", "most"): ("mostly habit", "It does a little less of what the words forbid, but more than half of it still."),
        ("less", "all"): ("keeps its habit", "It goes on as before, whatever the words say."),
        ("same", "little"): ("keeps its habit", "It loses more than half of what it could do: it does not act by the new words."),
        ("same", "about half"): ("follows in part", "It loses about half of what it could do."),
        ("same", "most"): ("mostly follows", "It does a little worse than before, but keeps more than half."),
        ("same", "all"): ("follows the words", "It does as well as before: it acts by the new words."),
    }[expected, left]
