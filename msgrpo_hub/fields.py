"""Settings: types and ranges of fields and arguments, checked alike for flags, TOML and Python; variants by name."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from msgrpo_hub.errors import UserError, shown, unknown

P = ParamSpec("P")
T = TypeVar("T")

_hints = functools.cache(functools.partial(get_type_hints, include_extras=True))


@dataclass(frozen=True)
class Range:
    """The allowed numbers of a field, as in `Annotated[int, Range(1, 100)]`; infinity and NaN are never allowed."""

    least: float
    most: float
    open: bool = False
    """Whether the smallest number itself is excluded."""

    def misfit(self, value: float) -> str:
        """The expectation that a number misses; empty if it is in the range."""
        if not (value > self.least if self.open else value >= self.least):  # also for NaN
            return f"{'more than' if self.open else 'at least'} {self.least}"
        return "" if value <= self.most else f"at most {self.most}"


Count = Annotated[int, Range(1, 1_000_000)]
"""A positive count."""
Number = Annotated[int, Range(0, 2**63 - 1)]
"""A zero-based index that fits a 64-bit column."""
Price = Annotated[float, Range(0, 1_000_000)]
"""Dollars per million tokens."""
Seed = Annotated[int, Range(0, 2**64 - 1)]
"""A seed of torch."""


def misfit(value: object, hint: Any) -> str:
    """The expectation of a type hint that a value misses; empty if the value fits or the hint cannot be checked.

    >>> misfit(0, Annotated[int, Range(1, 9)]), misfit("3", int), misfit(3, float), misfit(True, int | None)
    ('at least 1', 'int', '', 'int or None')
    """
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Annotated:
        ranges = [part for part in parts[1:] if isinstance(part, Range)]
        return misfit(value, parts[0]) or next(filter(None, (part.misfit(value) for part in ranges)), "")  # type: ignore[arg-type]
    if kind in (Union, UnionType):
        expected = [misfit(value, part) for part in parts]
        return " or ".join(expected) if all(expected) else ""
    if kind is Literal:
        return "" if value in parts else f"one of {', '.join(map(str, parts))}"
    only_typed = getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)
    if not isinstance(kind, type) or kind is Any or only_typed:
        return ""
    is_number = kind in (int, float)  # an int passes as float; a bool does not pass as a number
    if not isinstance(value, (int, float) if kind is float else kind) or (is_number and isinstance(value, bool)):
        return "None" if kind is NoneType else str(kind.__name__)
    if parts and isinstance(value, list | tuple) and (kind is Sequence or parts[1:] == (...,)):
        wrong = next(filter(None, (misfit(item, parts[0]) for item in value)), "")
        return f"{kind.__name__} of {wrong}" if wrong else ""
    return ""


def check(name: str, value: object, hint: Any, where: str = "") -> None:
    """Raises `UserError` unless a value fits its type hint."""
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise unknown(name.replace("_", "-"), str(value), get_args(hint))
    if expected := misfit(value, hint):
        raise UserError(f"{name} = {shown(value)}{where}: expected {expected}")


def check_fields(config: Any) -> None:
    """Checks the fields of a dataclass against their type hints. Raises `UserError` for one that does not fit."""
    kind: Any = type(config)
    for field in fields(kind):
        if field.init:
            check(field.name, getattr(config, field.name), _hints(kind)[field.name])


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: the function checks its arguments against their type hints and raises `UserError` for a misfit."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        for name, value in signature.bind(*arguments, **named).arguments.items():
            check(name, value, _hints(function)[name])
        return function(*arguments, **named)

    return call


# ---- variants by name: built-in ones from a dictionary, your own as `module:object`


def is_import(name: str) -> bool:
    """Whether a name is `module:object`; resolving it runs the code of that module."""
    return ":" in name


def names_code(name: str) -> bool:
    """Whether the name of a game or a player is `module:object`, and no variant, folder or server.

    >>> names_code("lamp:Lamp"), names_code("Snake-Solo-v1:reflected"), names_code("dqn:runs")
    (True, False, False)
    """
    module, colon, attribute = name.partition(":")
    return bool(colon) and module != "dqn" and attribute.isidentifier() and all(map(str.isidentifier, module.split(".")))


def imported(kind: str, name: str) -> Any:
    """Imports `module:object`, which runs code; a class is called without arguments. Raises `UserError` if that fails."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the current folder, as with `python -m`
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"cannot import the {kind} {name!r} ({error}): expected module:object, found from this folder") from error
    if isinstance(found, type) and (why := _refusal(found, ())):
        raise UserError(f"cannot create the {kind} {name!r} ({why}): expected a class without arguments, or an object")
    return found() if isinstance(found, type) else found


def resolve(kind: str, name: str, built_in: Mapping[str, T], *, may_import: bool = False) -> T:
    """Resolves the name of a variant.

    Args:
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
    example: Any = next(iter(built_in.values()), None)
    given = inspect.signature(example).parameters.values() if callable(example) else ()
    names = [parameter.name for parameter in given if parameter.default is parameter.empty]
    variant: T = imported(kind, name)
    if names and (why := _refusal(variant, names)):
        raise UserError(f"the {kind} {name!r} cannot be called with {', '.join(names)} ({why}): expected a function of these")
    return variant


def _refusal(function: Any, arguments: Sequence[object]) -> str:
    """Why an object cannot be called with so many arguments; empty if it can, or if compiled code does not tell."""
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        return str(error) if isinstance(error, TypeError) else ""
    return ""
