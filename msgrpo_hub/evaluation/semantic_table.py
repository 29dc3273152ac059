"""Semantic scores as tables, for below the results of the suite `semantic`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import fill

from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.semantic import SemanticScore, semantic_scores
from msgrpo_hub.evaluation.tables import Row, aligned, markdown, noted, short, with_interval

HEAD = ("player", "semantic score")

MEANING = (
    "semantic score: the share of what following the words is worth; 1: follows them everywhere; habit, silence and random play "
    "score at most 0. Worth of the words, as a share of the way from random play to the reference: "
)
"""What the score means, before the worth of each task that counts."""


def semantic_table(results: Sequence[Result], name: Callable[[Result], str] = lambda result: short(result.player)) -> str:
    """A line for every player that has played the whole suite, the best first; empty if there are none."""
    scores = semantic_scores(results)
    if not scores:
        return ""
    return noted(f"{aligned([HEAD, *_rows(scores, name)])}\n{fill(meaning(scores), 120, break_on_hyphens=False)}")


def semantic_markdown(results: Sequence[Result], name: Callable[[Result], str]) -> str:
    """The same in Markdown."""
    scores = semantic_scores(results)
    if not scores:
        return ""
    return noted(f"{markdown(HEAD, _rows(scores, name))}\n\n{meaning(scores)}.\n").rstrip()


def _rows(scores: Sequence[SemanticScore], name: Callable[[Result], str]) -> list[Row]:
    return [[name(score.player), with_interval(score.figure)] for score in scores]


def meaning(scores: Sequence[SemanticScore]) -> str:
    """What the score means, with the worth of each task that counts."""
    return MEANING + ", ".join(f"{task} {worth:.2f}" for task, worth in scores[0].worth.items())
