"""The README of an adapter: its front matter, with the results as a `model-index`, above its card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgrpo_hub.hub.adapter_card import AdapterCard, Figure, TaskScore
from msgrpo_hub.hub.cards import checked, front_matter, render


def render_adapter(card: AdapterCard) -> str:
    """The checked README of an adapter."""
    return checked(render("adapter.md.jinja", {"card": card, "front_matter": front_matter(adapter_metadata(card))}))


def adapter_metadata(card: AdapterCard) -> dict[str, Any]:
    """The front matter of an adapter's card."""
    metadata: dict[str, Any] = {
        "base_model": card.base.repo_id,
        "base_model_relation": "adapter",
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "language": "en",
        **card.base.metadata,
        "tags": ["msgrpo", "reinforcement-learning", "text-games", "lora", *card.weights],
    }
    if card.rollouts:
        metadata["datasets"] = [card.rollouts]
    if results := [*_own_results(card), *map(task_result, card.scores)]:
        metadata |= model_index(card.name, results)
    return metadata


def model_index(name: str, results: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The results part of a model card's front matter."""
    return {"model-index": [{"name": name, "results": list(results)}]}


def _own_results(card: AdapterCard) -> Iterator[dict[str, Any]]:
    """One result per game on the run's own test episodes."""
    config = card.config
    for table in card.games:
        if table.adapter:
            yield _result(
                {"type": table.game.id, "name": table.game.id, "split": "test", "revision": table.game_hash},
                (table.adapter.reward, table.adapter.success),
                {"episodes": config.test_episodes, "temperature": config.eval_temperature},
            )


def task_result(score: TaskScore) -> dict[str, Any]:
    """A finished run of `msgrpo eval` as an entry of `model-index`."""
    arguments = {"episodes": score.episodes, "mode": score.mode, "temperature": score.temperature}
    return _result(
        {"type": score.task, "name": score.task, "config": score.suite, "split": score.split, "revision": score.task_hash},
        (score.reward, score.success),
        {key: value for key, value in arguments.items() if value is not None},
    )


def rounded(value: float | None) -> float | None:
    """A figure with the digits that a reader needs; results.json has all of them."""
    return None if value is None else round(value, 4)


def _result(dataset: dict[str, Any], figures: tuple[Figure, Figure], arguments: dict[str, Any]) -> dict[str, Any]:
    def metric(kind: str, figure: Figure) -> dict[str, Any]:
        has_interval = None not in (figure.low, figure.high)
        interval = {"interval_95": [rounded(figure.low), rounded(figure.high)]} if has_interval else {}
        return {"type": kind, "name": kind.replace("_", " "), "value": rounded(figure.mean), "args": {**arguments, **interval}}

    reward, success = figures
    return {
        "task": {"type": "reinforcement-learning", "name": "text game"},
        "dataset": dataset,
        "metrics": [metric("mean_reward", reward), metric("success_rate", success)],
    }
