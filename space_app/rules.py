"""The Rules tab: the same game in other words. Does the agent read the rules, or follow a habit?

Only the prompt changes. The agent plays the same starts with the game's own words, with neutral sentences, and with the words
of the visitor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import players
import replay
from compare import batches
from verdicts import NEUTRAL, Arms, Asked, Expected, judged

from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.games import GAMES, Variant, episode_seed, make_game
from msgrpo_hub.games.board import MOVES
from msgrpo_hub.games.game import HasScene, has_scene

LONGEST_TEXT = 4_000
"""Largest number of characters in the instructions, and in the rules."""

MOST_STARTS = 100
"""Largest number of starts; each is played three times."""

OPENING = ("FrozenLake-NotSlippery-v1", 0, "poisoned", 40)
"""Game, seed, prepared change and starts that the page opens with; the results are in `bundle/rules.json`."""

OPENING_PLAYERS = ("lake", "lake-trap")
"""The players that it opens with: trained on the lake in its own words, and also on a lake whose goal is a trap."""

_ACTION = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,19}", re.ASCII)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_WAYS = {"Left": "the column by -1", "Down": "the row by 1", "Right": "the column by 1", "Up": "the row by -1"}


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
        make_game("FrozenLake-Trap-v1").instructions,
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
        lines = [re.sub(r"^(The goal|An? \w+) gives \d+(\.\d+)?", r"\1 gives -1", line) for line in lines]
    ways = [f"{names.get(action, action)} changes {way}" for action, way in _WAYS.items()]
    moves = "; ".join(ways) + "." if names else MOVES
    return {
        "instructions": instructions,
        "rules": "\n".join(moves if line == MOVES else line for line in lines),
        "names": [names.get(action, action) for action in rules.actions],
        "expected": PRESETS[preset][1],
    }


def registered_game(name: str) -> HasScene:
    """Returns a registered game by its id; each of them is drawn. Raises `UserError` for anything else."""
    if not isinstance(name, str) or name not in GAMES:
        players.game_of(name)
        raise UserError(f"{name!r}: expected a registered game without a variant, such as 'Snake-Solo-v1'")
    game = GAMES[name]
    assert has_scene(game)
    return game


def reworded_game(game: str, instructions: str, rules: str, names: Sequence[str]) -> Variant:
    """Returns the game in a visitor's words. Raises `UserError` for texts that are too long and names that do not parse."""
    own = registered_game(game)
    text = players.text(instructions, LONGEST_TEXT, "instructions").strip()
    lines = players.text(rules, LONGEST_TEXT, "rules").strip()
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
    return Variant(own, f"{own.id}:told", names=changed, instructions=text, rules=tuple(lines.splitlines()))


def control_games(game: str, told: Variant) -> list[Variant]:
    """Returns the game with as many other words as the visitor's, in the same places, for each of the neutral sentences.

    The length and the place of new words disturb a small model as much as their meaning.
    """
    own, games = registered_game(game), []
    longer = len("\n".join(told.rules)) - len("\n".join(own.rules))
    for sentence in NEUTRAL:
        instructions = _irrelevant(told.instructions, own.instructions, sentence)
        added = max(round(longer / len(sentence)), int(instructions == own.instructions))  # at least one sentence in all
        rules = (*own.rules[:-1], *[sentence] * added, own.rules[-1])
        games.append(Variant(own, f"{own.id}:control", instructions=instructions, rules=rules))
    return games


def _irrelevant(told: str, own: str, sentence: str) -> str:
    """Replaces every sentence that is not the game's own by an irrelevant sentence, repeated to about its length.

    >>> _irrelevant("You steer a snake. Apples kill, so do not eat them.", "You steer a snake. Eat.", "It rains today.")
    'You steer a snake. It rains today. It rains today.'
    """
    of_game = _SENTENCE_END.split(own)
    return " ".join(
        each if each in of_game else " ".join([sentence] * max(1, round(len(each) / len(sentence))))
        for each in _SENTENCE_END.split(told)
    )


def change_rules(
    game: str, seed: int, player: str, instructions: str, rules: str, names: list[str], expected: Expected, episodes: int
) -> Iterator[dict[str, Any]]:
    """Plays the same starts with the game's own words, with neutral sentences in turn, and with other words.

    Yields the scores so far, about every 25 starts.

    Args:
        game: id of a registered game, without a variant.
        seed: number of the first test episode; the others follow it.
        player: as for watch; scripted players do not read.
        instructions: up to 4,000 characters.
        rules: up to 4,000 characters, one rule a line.
        names: new names of the actions Left, Down, Right, Up; an empty one keeps the old name.
        expected: how often an agent that reads the rules would collect rewards: less, or the same.
        episodes: number of starts, 1 to 100.

    Yields:
        `film` (the replay of the first start with the game's own words and with yours); `told` (the new prompt); `episodes` and
        `wanted`; `own`, `control` and `changed`, each with the apples eaten or goals reached per game (`per_game`) and the share
        of unparsed replies (`unreadable`); `difference` (changed − control), `change` (changed − own) and `disturbance` (control
        − own), with interval and p; `by_sentence` (`difference` after each neutral sentence); `verdict` and the `sentence` that
        explains it.
    """
    own, told = registered_game(game), reworded_game(game, instructions, rules, names)
    first, wanted = players.number(seed), players.number(episodes, 1, MOST_STARTS, "number of episodes")
    players.check_player(player, own)
    if expected not in ("less", "same"):
        raise unknown("expectation", str(expected)[:40], ("less", "same"))
    asked = Asked(
        expected=expected,
        reads=player not in players.SCRIPTED,
        renamed=bool(told.names),
        changed=bool(told.names) or (told.instructions, told.rules) != (own.instructions, own.rules),
    )
    arms = Arms(own=[], control=[], changed=[])
    neutral = control_games(game, told)
    shown: replay.Data | None = None
    with players.line(player).place():
        for batch in batches(first, wanted, [player]):
            seeds = [episode_seed(own.id, "test", number) for number in batch]
            for each, played in ((own, arms.own), (told, arms.changed)):
                played += players.play(player, each, seeds)
            turns = [(number - first) % len(neutral) for number in batch]  # start after start, another sentence
            of_turn = {turn: [seed for seed, its in zip(seeds, turns, strict=True) if its == turn] for turn in turns}
            parts = {turn: iter(players.play(player, neutral[turn], some)) for turn, some in of_turn.items()}
            arms.control.extend(next(parts[turn]) for turn in turns)
            titled = {"as written": (own, arms.own), "in your words": (told, arms.changed)}
            tracks = [replay.player_data(of, player, arm[0]) | {"player": title} for title, (of, arm) in titled.items()]
            if expected == "less":  # the best moves are those of the game's own words
                tracks[1]["steps"] = [step | {"optimal": [], "best": [], "regret": None} for step in tracks[1]["steps"]]
            shown = shown or replay.combine(first, tracks)
            yield {"film": shown, "told": shown["players"][1]["system"], "wanted": wanted, **judged(asked, arms)}


def told_film(answers: Mapping[str, dict[str, Any]]) -> replay.Data:
    """The replay that goes with the answers of `change_rules` about one or two players.

    Of one player, both episodes on the first start; of two, those in the visitor's words.
    """
    first, *others = answers.values()
    if not others:
        found: replay.Data = first["film"]
        return found
    shown = [{**answer["film"]["players"][1], "player": name} for name, answer in answers.items()]
    return replay.combine(first["film"]["number"], shown)


ASKED_FIRST: dict[str, Any] = {"game": OPENING[0], "seed": OPENING[1], **words(OPENING[0], OPENING[2]), "episodes": OPENING[3]}
"""The arguments of `change_rules` for the bundled results, without the player."""
