"""What exact drafts could gain at most: `python -m benchmark.throughput.drafts OUTPUT.json`.

A draft is a guess of the next tokens of a reply: here those that followed the same two to six tokens before, in replies of the
last update or of earlier turns. A token is the inverse of the cumulative distribution at its own uniform number, so a guess is
right or wrong without another draw, and one step computes the logits after all guessed tokens, each in a row of its own. Counted
here, on replies of the built-in adapters and of one that is taught to reply at length (`long_replies`): the steps and their rows,
with and without guesses, where logits that are known are not computed again, as the engine has it. Their price is a decoding step
of the engine with so many rows. To guess, to compare and to forget wrong tokens costs nothing here, so that a real implementation
gains less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from benchmark.throughput.long_replies import TOKENS, long_player
from benchmark.throughput.machine import clock
from benchmark.throughput.rows import Key, Row, asked
from benchmark.throughput.shapes import model_folder
from msgrpo_hub.downloads.names import POCKET, pocket_path
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.games import make_game
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.players.identity import identify
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_groups

LENGTHS = range(6, 1, -1)
"""Tokens that a guess follows, the most first."""
GUESSED = (1, 2, 4, 8)
"""Tokens of a guess."""
LONG = "long"
"""The player that replies at length."""
CASES = {
    "lake, 8 groups of 32": ("FrozenLake-NotSlippery-v1", "lake", 8, 32),
    "Snake, 8 groups of 16": ("Snake-Solo-v1", "snake", 8, 16),
    "Snake, one group of 8": ("Snake-Solo-v1", "snake", 1, 8),
    "Snake, one episode": ("Snake-Solo-v1", "snake", 1, 1),
    "at length, 8 groups of 8": ("Snake-Standard-v1", LONG, 8, 8),
    "at length, one group of 8": ("Snake-Standard-v1", LONG, 1, 8),
    "at length, one episode": ("Snake-Standard-v1", LONG, 1, 1),
}
"""Game, player, groups and their size."""
ROWS = tuple(2**power for power in range(12))
STEPS = {
    "built-in": (POCKET, torch.float32, ROWS),
    "0.5B": ("qwen2.5-0.5b", torch.float32, ROWS[:8]),
    "0.5B in bfloat16": ("qwen2.5-0.5b", torch.bfloat16, ROWS[:8]),
}
MEASURED = 16
"""Tokens of a measured reply."""

Turn = Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
"""(prompt, reply) of the live episodes of a turn, in token ids."""


class Guesses:
    """What followed the last tokens of a reply when they were last seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, ...], tuple[int, ...]] = {}

    def add(self, reply: tuple[int, ...]) -> None:
        for end in range(2, len(reply)):
            for length in (length for length in LENGTHS if length <= end):
                self._seen[reply[end - length : end]] = reply[end : end + max(GUESSED)]

    def of(self, begun: tuple[int, ...], most: int) -> tuple[int, ...]:
        """At most so many tokens after the beginning of a reply; none where its last two were never seen."""
        found = (self._seen.get(begun[-length:]) for length in LENGTHS if length <= len(begun))
        return next((guess[:most] for guess in found if guess), ())


def steps(turns: Iterable[Turn], guesses: Guesses, most: int) -> list[int]:
    """Rows of each decoding step of an update: the logits that are computed in it. The first token of a reply needs none.

    Guesses come from replies of earlier turns, and the replies of this update are added to them.
    """
    known: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    rows = []
    for turn in turns:
        at = dict.fromkeys(turn, 1)
        while True:
            for (prompt, reply), done in at.items():
                while done < len(reply) and (prompt, reply[:done]) in known:
                    done += 1
                at[prompt, reply] = done
            begun = {(prompt, reply[:done]) for (prompt, reply), done in at.items() if done < len(reply)}
            if not begun:
                break
            drafted = {
                (prompt, so_far + guess[:end])
                for prompt, so_far in begun
                for guess in [guesses.of(so_far, most)]
                for end in range(len(guess) + 1)
            }
            rows.append(len(drafted - known))
            known |= drafted
        for _, reply in turn:
            guesses.add(reply)
    return rows


def played(game_id: str, player: str, groups: int, group_size: int) -> list[list[Episode]]:
    """The episodes of two updates, the second of which is counted."""
    policy = identify(player, PlayerSettings(temperature=1.0, max_new_tokens=TOKENS)).policy

    def episodes(first_seed: int) -> list[Episode]:
        seeds = range(first_seed, first_seed + groups)
        return [episode for group in play_groups(make_game(game_id), policy, seeds, group_size) for episode in group.episodes]

    return [episodes(0), episodes(groups)]


def turns(episodes: Sequence[Episode]) -> list[Turn]:
    """What the live episodes of each turn were asked and replied."""
    longest = max(len(episode.steps) for episode in episodes)
    return [[_ids(e.steps[turn].completion) for e in episodes if turn < len(e.steps)] for turn in range(longest)]


def _ids(completion: Completion) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return completion.prompt_ids, completion.token_ids


def step_seconds(engine: Engine, rows: int, repeats: int) -> float:
    """Seconds of one decoding step of so many different rows after short prompts."""
    prompts = [tuple(np.random.default_rng(row).integers(0, 500, 2).tolist()) for row in range(rows)]

    def seconds(tokens: int) -> float:
        began = clock()
        engine.sample(prompts, [np.random.default_rng(row) for row in range(rows)], 1.0, tokens)
        return clock() - began

    with engine.choose(prompts[0], 1 + MEASURED).acting():
        seconds(2)  # copies weights
        return (min(seconds(1 + MEASURED) for _ in range(repeats)) - min(seconds(1) for _ in range(repeats))) / MEASURED


def gains(counted: Mapping[int, Sequence[int]], sizes: Sequence[int], times: Sequence[float]) -> dict[int, float]:
    """How many times less an update takes with guesses of so many tokens, if a step of `sizes` rows takes `times`."""
    price = {most: np.interp(rows, sizes, times).sum() for most, rows in counted.items()}
    return {most: round(float(price[0] / each), 2) for most, each in price.items() if most}


def main() -> None:
    """Measures the missing rows of the file and prints what drafts gain."""
    options, file = asked("drafts", __doc__)
    engines: dict[str, Engine] = {}

    def row(key: Key) -> Row:
        kind, name, *rest = key
        if kind == "step":
            if name not in engines:
                shape, dtype, _ = STEPS[name]
                folder = pocket_path() if shape == POCKET else model_folder(shape, options.models, dtype)
                engines[name] = Engine(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval(), frozenset())
            return {"milliseconds": round(1e3 * step_seconds(engines[name], rest[0], options.repeats), 3)}
        game_id, player, groups, group_size = CASES[name]
        last, this = played(game_id, long_player(options.models / LONG) if player == LONG else player, groups, group_size)
        counted = {}
        for most in (0, *GUESSED):
            guesses = Guesses()
            steps(turns(last), guesses, most)
            counted[most] = steps(turns(this), guesses, most)
        replies = [step.completion for episode in this for step in episode.steps]
        found: dict[str, Any] = {
            "tokens": round(float(np.mean([len(reply.token_ids) for reply in replies])), 1),
            "reward": round(float(np.mean([episode.reward for episode in this])), 2),
            "steps": {most: len(rows) for most, rows in counted.items()},
        }
        found["rows"] = {most: round(float(np.mean(rows)), 1) for most, rows in counted.items()}
        for model, (_, _, sizes) in STEPS.items():
            if max(map(max, counted.values())) <= max(sizes):
                times = [each["milliseconds"] for size in sizes for each in file.rows if each["key"] == ["step", model, size]]
                found[model] = gains(counted, sizes, times)
        return found

    file.measure([*(("step", name, rows) for name, (_, _, sizes) in STEPS.items() for rows in sizes)], row)
    file.measure([("replies", case) for case in CASES], row)
    for each in file.rows:
        if each["key"][0] == "replies":
            print(each["key"][1], {name: value for name, value in each.items() if name != "key"})


if __name__ == "__main__":
    main()
