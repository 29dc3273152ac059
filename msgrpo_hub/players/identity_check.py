"""Checks of a stored identity: it says all that decides the replies of its kind of player, and it fits the player's name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgrpo_hub.players.identity import VERSION
from msgrpo_hub.players.registry import SCRIPTED

Identity = Mapping[str, Any]

_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
"""A commit of the Hub, or the hash of a folder's content."""
_REVISION = "(?:@[^@+]+)?"


def identity_problems(name: str, identity: object) -> list[str]:
    """What is missing or wrong in a player's identity, as readable messages.

    >>> identity_problems("greedy", {"kind": "scripted", "player": "random", "version": 1})
    ["the player is called 'greedy', but its identity is that of 'random'"]
    >>> identity_problems("dqn:lake", {"kind": "dqn"})
    ['its identity is incomplete: dqn without a valid weights']
    """
    if not isinstance(identity, Mapping) or identity.get("kind") not in list(KINDS):
        return [f"its identity does not say what kind of player it is: expected one of {', '.join(KINDS)}"]
    kind = KINDS[identity["kind"]]
    adapter = _ADAPTER if _ADAPTER.keys() & identity.keys() else {}
    scored = dict.fromkeys(_SAMPLING, _is_none) if identity.get("mode") == "score" else {}
    valid = {**kind.fields, **adapter, **scored}
    if missing := [field for field, is_valid in valid.items() if not is_valid(identity.get(field))]:
        return [f"its identity is incomplete: {identity['kind']} without a valid {', '.join(missing)}"]
    if not kind.fits(name, identity):
        return [f"the player is called {name[:80]!r}, but its identity is that of {kind.name_of(identity)[:80]!r}"]
    return []


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_none(value: object) -> bool:
    return value is None


def _is_scripted(value: object) -> bool:
    return value in list(SCRIPTED)


def _is_version(value: object) -> bool:
    return is_count(value) and value in range(1, VERSION + 1)


def _is_commit(value: object) -> bool:
    return isinstance(value, str) and bool(_COMMIT.fullmatch(value))


def _is_temperature(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A kind of player."""

    fields: Mapping[str, Callable[[object], bool]]
    """What its identity must have → whether a value is valid."""
    name_of: Callable[[Identity], str]
    """The name that follows from an identity."""
    fits: Callable[[str, Identity], bool]
    """Whether a player of this identity can have a name."""


def _model_name(identity: Identity) -> str:
    return "+".join(str(identity[field]) for field in ("base", "adapter") if field in identity)


def _is_name_of_model(name: str, identity: Identity) -> bool:
    """`BASE`, `ADAPTER` or `BASE+ADAPTER`, each with or without a revision; a full commit must be that of the identity."""
    base, adapter = (re.escape(str(identity.get(field, ""))) for field in ("base", "adapter"))
    form = rf"(?:{base}{_REVISION}\+)?{adapter}{_REVISION}" if adapter else base + _REVISION
    revisions = re.findall(r"@([0-9a-f]{40})(?:\+|$)", name)
    return bool(re.fullmatch(form, name)) and set(revisions) <= {identity["base_commit"], identity.get("adapter_commit")}


def _dqn_name(identity: Identity) -> str:
    return f"dqn:FOLDER, weights {identity['weights']}"


_SAMPLING = {"temperature": _is_temperature, "max_new_tokens": is_count}
"""Settings of a player that samples its replies; a player that scores given replies has none."""
_ADAPTER = {"adapter": _is_text, "adapter_commit": _is_commit}

KINDS: dict[str, _Kind] = {
    "scripted": _Kind(
        fields={"player": _is_scripted, "version": _is_version},
        name_of=lambda identity: str(identity["player"]),
        fits=lambda name, identity: name == identity["player"],
    ),
    "dqn": _Kind(
        fields={"weights": _is_commit},
        name_of=_dqn_name,
        fits=lambda name, _: name.startswith("dqn:"),
    ),
    "entry point": _Kind(
        fields=dict.fromkeys(("player", "package", "version"), _is_text),
        name_of=lambda identity: str(identity["player"]),
        fits=lambda name, identity: name == identity["player"],
    ),
    "endpoint": _Kind(
        fields={"server": _is_text, **_SAMPLING},
        name_of=lambda identity: str(identity["server"]),
        fits=lambda name, identity: name == identity["server"],
    ),
    "language model": _Kind(
        fields={
            "base": _is_text,
            "base_commit": _is_commit,
            "mode": lambda mode: mode in ("generate", "score"),
            **_SAMPLING,
            **dict.fromkeys(("chat_template", "dtype", "device", "torch", "transformers", "peft"), _is_text),
        },
        name_of=_model_name,
        fits=_is_name_of_model,
    ),
}
"""Kind of player → what its identity must have, and which names it can have."""
