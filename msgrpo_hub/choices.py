"""Variants by name: built-in ones from a dictionary, your own as `module:object`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import TypeVar

from msgrpo_hub.errors import UserError, unknown

T = TypeVar("T")


def is_import(name: str) -> bool:
    """Whether a name is `module:object`; resolving it runs the code of that module."""
    return ":" in name


def resolve(kind: str, name: str, built_in: Mapping[str, T], *, may_import: bool = False) -> T:
    """Resolves the name of a variant.

    Args:
        kind: the kind of variant for messages, such as `sampler`.
        name: a key of `built_in`, or `module:object`; a class is called without arguments.
        built_in: name → variant.
        may_import: whether `module:object` is allowed. Importing runs code: pass True only for a name typed on this machine,
            never for a name from an adapter, a dataset, a result or a configuration file.

    >>> resolve("number", "two", {"one": 1, "two": 2})
    2
    >>> resolve("number", "math:pi", {}, may_import=True)
    3.141592653589793
    """
    if not is_import(name):
        if name not in built_in:
            raise unknown(kind, name, built_in, "(or module:object for your own)" if may_import else "")
        return built_in[name]
    if not may_import:
        raise UserError(
            f"the {kind} {name!r} would import code: expected one of {', '.join(built_in)}, or {name!r} typed on the command line"
        )
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the current folder, as with `python -m`
    try:
        imported = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"cannot import the {kind} {name!r} ({error}): expected module:object, found from this folder") from error
    variant: T = imported() if isinstance(imported, type) else imported
    if all(map(callable, built_in.values())) and built_in and not callable(variant):
        raise UserError(f"the {kind} {name!r} is of type {type(variant).__name__}: expected a function")
    return variant
