"""How the player of a run acted, as a table shows it: temperature, token limit, prompt format, engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.suites import suite_names

NONE = "–"
"""Shown for a player that has no such setting."""

HEADS = ("temperature", "token limit", "prompt format", "engine")
"""The columns, in the order of `acting`."""

_MODELS = ("language model", "endpoint")


def acting(result: Result) -> dict[str, str]:
    """Column → what it shows. A player that reads no prompt has no such settings."""
    identity = result.config["identity"]
    if identity.get("kind") not in _MODELS:
        return dict.fromkeys(HEADS, NONE)
    engine = "server" if identity["kind"] == "endpoint" else identity.get("engine", "not recorded")
    limit = identity.get("max_new_tokens")
    shown = (_temperature(identity), NONE if limit is None else str(limit), result.prompt_format, str(engine))
    return dict(zip(HEADS, shown, strict=True))


def _temperature(identity: Mapping[str, object]) -> str:
    if identity.get("mode") == "score":
        return "actions scored"
    limits = [f"{name.replace('_', '-')} {identity[name]}" for name in ("top_k", "top_p") if name in identity]
    temperature = identity.get("temperature")
    return ", ".join([NONE if temperature is None else f"{temperature:g}", *limits])


def shown_columns(results: Sequence[Result]) -> list[str]:
    """The columns in which any of the results has something to show."""
    rows = [acting(result) for result in results]
    return [head for head in HEADS if any(row[head] != NONE for row in rows)]


def eval_command(results: Sequence[Result], output_dir: str) -> str:
    """The command that plays a model with the suite and the settings that most models of a table share.

    The runs may be foreign: only settings that are numbers, and only built-in suites and prompt formats, get into it.
    """
    models = [result for result in results if result.config["identity"].get("kind") in _MODELS]
    [(suite, _)] = Counter(result.config["suite"] for result in models or results).most_common(1) or [("standard", 0)]
    settings = Counter(map(_flags, models)).most_common(1)
    flags = [f"--{name} {value}" for name, value in (settings[0][0] if settings else ())]
    known = suite if suite in suite_names() else "standard"
    return " ".join(["msgrpo eval PLAYER --suite", known, *flags, "--output-dir", output_dir])


def _flags(result: Result) -> tuple[tuple[str, object], ...]:
    """The flags of a run's settings, as far as they are not the defaults of every player."""
    identity = result.config["identity"]
    numbers = {name: identity.get(name) for name in ("temperature", "max_new_tokens", "top_k", "top_p")}
    flags = {name.replace("_", "-"): value for name, value in numbers.items() if isinstance(value, (int, float))}
    chosen = {"mode": "score"} if identity.get("mode") == "score" else {}
    if result.prompt_format in PROMPT_FORMATS and result.prompt_format != THINK_ACTION.name:
        chosen["prompt-format"] = result.prompt_format
    return (*flags.items(), *chosen.items())
