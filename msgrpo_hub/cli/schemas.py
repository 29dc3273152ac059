"""JSON Schemas of what `--json` prints, made from its types: `python -m msgrpo_hub.cli.schemas NAME` prints one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from msgrpo_hub.cli.flags import field_docs
from msgrpo_hub.cli.outputs import evaluation, games, hub, training
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.evaluation.estimate import Estimate
from msgrpo_hub.evaluation.methods import MethodComparison
from msgrpo_hub.evaluation.paired import Comparison, TaskComparison

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

PROPERTIES: Mapping[type, Sequence[str]] = {Comparison: ("verdict",), MethodComparison: ("difference", "verdict")}
"""Properties of records that are printed with their fields."""

REST: Mapping[type, type] = {training.GameTable: training.PlayerScores, training.TrainSummary: training.PlayerScores}
"""Types with further keys, which are names → the type of their values."""

_SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null", Path: "string"}


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a command prints with `--json`."""

    command: str
    """The command, with the flag that changes what it prints."""
    kind: Any
    """Its type."""


@cache
def all_outputs() -> Mapping[str, Output]:
    """Name → output, of every command that has `--json`."""
    from msgrpo_hub.hub.uploading import Pushed  # needs huggingface_hub, for which no other output has to wait

    return {
        "games": Output(command="games", kind=list[games.GameRules]),
        "play": Output(command="play", kind=games.PlayedEpisode),
        "train": Output(command="train", kind=training.TrainSummary),
        "train-seeds": Output(command="train --seeds", kind=training.VariantData),
        "curves": Output(command="curves", kind=training.DrawnCurves),
        "eval": Output(command="eval", kind=list[evaluation.EvaluatedRun]),
        "eval-estimate": Output(command="eval --estimate", kind=list[Estimate]),
        "compare": Output(command="compare", kind=list[TaskComparison]),
        "compare-methods": Output(command="compare --methods", kind=list[MethodComparison]),
        "verify": Output(command="verify", kind=list[evaluation.CheckedRun]),
        "report": Output(command="report", kind=evaluation.WrittenReport),
        "push": Output(command="push", kind=Pushed),
        "push-dry-run": Output(command="push --dry-run", kind=hub.Staged),
        "jobs": Output(command="jobs", kind=hub.JobData),
        "leaderboard": Output(command="leaderboard", kind=evaluation.Board),
        "export": Output(command="export", kind=list[str]),
    }


def schema(name: str) -> Schema:
    """The JSON Schema (draft 2020-12) of an output. Every field is listed, and no other is allowed.

    Raises:
        UserError: there is no such output.
    """
    if name not in all_outputs():
        raise unknown("output", name, all_outputs())
    output = all_outputs()[name]
    types: dict[str, Schema] = {}
    whole = schema_of(output.kind, types)
    return {"$schema": DIALECT, "title": f"msgrpo {output.command} --json", **whole, "$defs": dict(sorted(types.items()))}


def schema_of(hint: Any, types: dict[str, Schema]) -> Schema:
    """The schema of a type hint; named types are collected in `types`.

    >>> schema_of(list[int | None], {})
    {'type': 'array', 'items': {'type': ['integer', 'null']}}
    """
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Annotated, NotRequired):
        return schema_of(parts[0], types)
    if kind in (Union, UnionType):
        return _one_of([schema_of(part, types) for part in parts])
    if kind is Literal:
        return {"enum": list(parts)}
    if is_dataclass(kind) or is_typeddict(kind):
        return _named(kind, types)
    if kind is Any:
        return {}
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    if issubclass(kind, Mapping):
        return {"type": "object", "additionalProperties": schema_of(parts[1], types)}
    assert issubclass(kind, Sequence), hint
    if kind is tuple and ... not in parts:
        items = [schema_of(part, types) for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    return {"type": "array", "items": schema_of(parts[0], types)}


def _one_of(parts: Sequence[Schema]) -> Schema:
    if all(part.keys() == {"type"} for part in parts):
        return {"type": [part["type"] for part in parts]}
    return {"anyOf": list(parts)}


def _named(kind: Any, types: dict[str, Schema]) -> Schema:
    name = kind.__name__
    if name not in types:
        types[name] = {}  # in case it contains itself
        hints, docs = fields_of(kind), field_docs(kind)
        described = {field: {"description": docs[field]} if field in docs else {} for field in hints}
        values = {field: schema_of(hint, types) | described[field] for field, hint in hints.items()}
        rest = schema_of(REST[kind], types) if kind in REST else False
        types[name] = {
            "type": "object",
            "description": (kind.__doc__ or "").partition("\n")[0],
            "properties": values,
            "required": [field for field, hint in hints.items() if get_origin(hint) is not NotRequired],
            "additionalProperties": rest,
        }
    return {"$ref": f"#/$defs/{name}"}


def fields_of(kind: Any) -> dict[str, Any]:
    """Field → type hint of a named type, and of the properties that are printed with its fields."""
    hints = get_type_hints(kind, include_extras=True)
    more = {name: get_type_hints(getattr(kind, name).fget)["return"] for name in PROPERTIES.get(kind, ())}
    return hints | more


def main(names: Iterable[str]) -> None:
    """Prints the schema of each output, or without any their names."""
    try:
        chosen = [schema(name) for name in names]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print("\n".join(json.dumps(one, indent=2) for one in chosen) if chosen else "\n".join(all_outputs()))


if __name__ == "__main__":
    main(sys.argv[1:])
