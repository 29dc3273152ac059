"""The rules of a training run's updates: how advantages and selection came about. The schema of its rollouts stores them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import get_type_hints

import pyarrow as pa

from msgrpo_hub.errors import UserError

_KEY = b"update_rules"


@dataclass(frozen=True, kw_only=True)
class UpdateRules:
    """How the updates of a run turn episodes into advantages, and select those that they learn from."""

    seed: int
    """Seed of the run, from which initial states and selections are drawn."""
    groups: int
    """Groups per update."""
    group_size: int
    """Episodes per group [G]."""
    selected_per_group: int
    """Episodes of each group that the update learns from [G']."""
    format_penalty: float
    """Taken from the return for each unparsed reply [-Φ]."""
    advantage_scale: str
    """Name of what a group's centred returns are divided by."""
    credit: str
    """Name of what gives each step its advantage."""
    sampler: str
    """Name of what selects episodes."""
    base: str
    """The base model, whose tokenizer the tokens are of."""
    base_revision: str
    """Its commit, or the hash of its folder."""
    max_new_tokens: int
    """Limit of a reply, in tokens."""
    torch: str
    """Version of torch, whose random numbers select episodes."""
    machine: str
    """Kind of processor, on which random numbers depend too."""


def with_rules(schema: pa.Schema, rules: UpdateRules | None) -> pa.Schema:
    """A schema that also stores the rules of the updates."""
    if rules is None:
        return schema
    return schema.with_metadata({**(schema.metadata or {}), _KEY: json.dumps(asdict(rules), sort_keys=True).encode()})


def rules_of(schema: pa.Schema) -> UpdateRules | None:
    """The rules that a schema stores; None if it stores none. Raises `UserError` if they cannot be read."""
    stored = (schema.metadata or {}).get(_KEY)
    if stored is None:
        return None
    try:
        values = json.loads(stored)
        types = get_type_hints(UpdateRules)
        if values.keys() != {field.name for field in fields(UpdateRules)}:
            raise ValueError("other keys")
        if any(type(value) is not types[name] for name, value in values.items()):
            raise ValueError("other types")
    except (ValueError, AttributeError) as error:
        raise UserError(
            f"the rules of its updates cannot be read ({error}): expected those that `msgrpo train` writes"
        ) from error
    return UpdateRules(**values)
