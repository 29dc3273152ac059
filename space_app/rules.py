"""The Rules tab: the same game in other words. Does the agent read the rules, or follow a habit?

Only the prompt changes. The game, its random numbers and its rewards stay, so that the agent's episodes with both prompts can
be compared start by start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import players
import replay
import validation
from compare import batches, ends

from msgrpo_hub.agent import PromptFormat
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.evaluation import Comparison, compare_paired
from msgrpo_hub.games import GAMES, Game, Variant, make_game

LONGEST_TEXT = 4_000
"""Largest number of characters in the instructions, and in the rules."""

MOST_STARTS = 100
"""Largest number of starts; each is played twice."""

FEWEST_STARTS = 30
"""With fewer starts there is no verdict."""

RARE = 0.1
"""Pickups per game below which a change of the agent's play would not show."""

Expected = Literal["less", "same"]
_ACTION = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,19}", re.ASCII)
_MOVES = "Up and Down change the row by one, Left and Right change the column by one."
_WAYS = {"Left": "the column by -1", "Down": "the row by 1", "Right": "the column by 1", "Up": "the row by -1"}


@dataclass(frozen=True)
class Reworded(Variant):
    """A game in a visitor's words; everything else is that of `game`."""

    instructions: str = ""  # a field in place of a property of Variant
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
"""For Frozen Lake, and for Snake."""


def words(game: str, preset: str = "as written") -> dict[str, Any]:
    """Returns a game's own words, or one of the prepared changes.

    Args:
        game: id of a registered game, without a variant.
        preset: as written, other words, poisoned, new names, or swapped names.

    Returns:
        `instructions`, `rules` (one a line), `names` (of the four actions) and `expected`, all as `change_rules` takes them.
    """
    rules = registered_game(game)
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
    """The rule about what the actions do, with their new names."""
    ways = [f"{names.get(action, action)} changes {way}" for action, way in _WAYS.items()]
    return "; ".join(ways) + "." if names else _MOVES


def registered_game(name: str) -> Game:
    """Returns a registered game by its id. Raises `UserError` for anything else."""
    if not isinstance(name, str) or name not in GAMES:
        validation.game(name)
        raise UserError(f"{name!r}: expected a registered game without a variant, such as 'Snake-Solo-v1'")
    return GAMES[name]


def reworded_game(game: str, instructions: str, rules: str, names: Sequence[str]) -> Reworded:
    """Returns the game in a visitor's words. Raises `UserError` for texts that are too long and names that do not parse."""
    own = registered_game(game)
    text = validation.text(instructions, LONGEST_TEXT, "instructions").strip()
    lines = validation.text(rules, LONGEST_TEXT, "rules").strip()
    if not text and not lines:
        raise UserError("empty instructions and rules: expected one of them")
    if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != len(own.actions):
        raise UserError(f"expected {len(own.actions)} names, for {', '.join(own.actions)}")
    given = [str(name).strip() or action for name, action in zip(names, own.actions, strict=True)]
    for name in given:
        if not _ACTION.fullmatch(name):
            raise UserError(f"the name {name[:30]!r}: expected a letter, then up to 19 letters, digits, '-' or '_'")
    if len({name.casefold() for name in given}) < len(given):
        raise UserError(f"the names {', '.join(given)}: expected four different ones")
    changed = {action: name for action, name in zip(own.actions, given, strict=True) if action != name}
    return Reworded(own, f"{own.id}:told", names=changed, instructions=text, rules=tuple(lines.splitlines()))


def change_rules(
    game: str, seed: int, player: str, instructions: str, rules: str, names: list[str], expected: Expected, episodes: int
) -> Iterator[dict[str, Any]]:
    """Plays the same starts with the game's own words and with other words. Yields the scores so far, about every 25 starts.

    Args:
        game: id of a registered game, without a variant.
        seed: number of the first test episode; the others follow it.
        player: as for watch; scripted players ignore the words.
        instructions: up to 4,000 characters.
        rules: up to 4,000 characters, one rule a line.
        names: new names of the actions Left, Down, Right, Up; an empty one keeps the old name.
        expected: how often an agent that reads the rules would collect rewards: less, or the same.
        episodes: number of starts, 1 to 100.

    Yields:
        `film` (the replay of the first start with both prompts); `told` (the new prompt); `episodes` and `wanted`; `control`
        and `changed`, each with the apples eaten or goals reached per game (`per_game`) and the share of unparsed replies
        (`unreadable`); `difference` with its interval and p; `verdict` and the `sentence` that explains it.
    """
    own, other = registered_game(game), reworded_game(game, instructions, rules, names)
    first, wanted = validation.number(seed), validation.number(episodes, 1, MOST_STARTS, "number of episodes")
    players.check_player(player, own)
    if expected not in ("less", "same"):
        raise unknown("expectation", str(expected)[:40], ("less", "same"))
    control: list[Episode] = []
    changed: list[Episode] = []
    shown: replay.Data | None = None
    for batch in batches(first, wanted, [player]):
        seeds = [replay.seed_of(own, number) for number in batch]
        control += players.play(player, own, seeds)
        changed += players.play(player, other, seeds)
        shown = shown or _first_replay(first, players.asked_in(player), (own, control[0]), (other, changed[0]))
        yield {"film": shown, "wanted": wanted, **judged(expected, control, changed), **_prompt(shown)}


def _first_replay(number: int, asked_in: PromptFormat, *episodes: tuple[Game, Episode]) -> replay.Data:
    titles = ("as written", "in your words")
    data = [replay.player_data(game, title, e, asked_in) for title, (game, e) in zip(titles, episodes, strict=True)]
    return replay.combine(number, data)


def _prompt(shown: replay.Data) -> dict[str, str]:
    """The new prompt, and in place of the verdict that it is the old one."""
    before, after = (data["system"] for data in shown["players"])
    same = {"verdict": "the same words", "sentence": "Nothing was changed."}
    return {"told": after, **(same if before == after else {})}


def judged(expected: Expected, control: Sequence[Episode], changed: Sequence[Episode]) -> dict[str, Any]:
    """The figures of both prompts, and the verdict."""
    before, after = [[pickups(e) for e in episodes] for episodes in (control, changed)]
    bounds = 0.0, float(make_game(control[0].game_id).horizon)  # at most one pickup a turn
    compared = compare_paired(before, after, seed=0, bounds=bounds)
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
    """How often an episode collected a reward: apples eaten, or the goal reached."""
    return sum(step.reward > 0 for step in episode.steps)


def _done(counts: Sequence[int], episodes: Sequence[Episode]) -> dict[str, float]:
    steps = sum(len(e.steps) for e in episodes)
    return {"per_game": sum(counts) / len(counts), "unreadable": sum(e.unreadable for e in episodes) / max(steps, 1)}


def verdict(expected: Expected, control: float, compared: Comparison) -> tuple[str, str]:
    """Words or habit, from the difference in pickups per game and its 95 % interval.

    "Less" needs an interval below 0, "less than half" one below −control / 2, "more than half" one above that. Any other
    interval allows no verdict.
    """
    if compared.n < FEWEST_STARTS:
        return "too few", f"{compared.n} starts say nothing yet: a verdict takes {FEWEST_STARTS}."
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
