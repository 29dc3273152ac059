"""Command-line flags made from a configuration dataclass, and parsing errors of one line."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints, is_typeddict

from msgrpo_hub.downloads.inspection import read_object
from msgrpo_hub.errors import UserError, shown, unknown
from msgrpo_hub.fields import misfit


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")


def add_fields(
    parser: argparse.ArgumentParser,
    config: Any,
    title: str,
    choices: Mapping[str, Iterable[str]] = MappingProxyType({}),
    remarks: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Adds one flag for each field; its help is the documentation line under the field. A flag not given stays absent.

    Args:
        parser: gets the flags.
        config: the dataclass.
        title: heading of these flags in the help.
        choices: fields that name a variant, with the built-in names; `module:object` is allowed besides.
        remarks: field → what its help says after the default.
    """
    hints, docs = get_type_hints(config), field_docs(config)
    group = parser.add_argument_group(title)
    for field in dataclasses.fields(config):
        hint, flag = hints[field.name], f"--{field.name.replace('_', '-')}"
        built_in = f" One of {', '.join(choices[field.name])}, or module:object." if field.name in choices else ""
        default = "none" if field.default in ("", dataclasses.MISSING) else field.default
        text = f"{docs[field.name]}{built_in} Default: {default}. {remarks.get(field.name, '')}".rstrip().replace("%", "%%")
        common: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS, "help": text}
        if hint is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
        elif get_origin(hint) is dict:
            group.add_argument(flag, type=partial(_read_json, field.name), metavar="JSON", **common)
        elif get_origin(hint) is Literal:
            group.add_argument(flag, choices=get_args(hint), **common)
        else:
            kind = str if field.default == "" else read_as(hint)
            group.add_argument(flag, type=kind, metavar="|".join(_names(hint)), **common)


def _parts(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a type hint: itself, unless it is a union."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _kind(hint: Any) -> Any:
    """The class of a type hint without its range."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _names(hint: Any) -> list[str]:
    """The values of a flag: the name of a class, and further words."""
    parts = [get_args(part) if get_origin(part) is Literal else (_kind(part).__name__,) for part in _parts(hint)]
    return [name for part in parts for name in part]


def read_as(hint: Any) -> Callable[[str], Any]:
    """Reads the text of a flag as a number or a text, which must be in the range of its type hint, if that has one.

    >>> read_as(float | Literal["adaptive"])("adaptive"), read_as(float | Literal["adaptive"])("2")
    ('adaptive', 2.0)
    """
    kind, *words = (_kind(part) for part in _parts(hint))

    def read(text: str) -> Any:
        if any(text in get_args(word) for word in words):
            return text
        try:
            value = kind(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"expected {' or '.join(_names(hint))}, not {shown(text)}") from error
        if expected := misfit(value, hint):
            raise argparse.ArgumentTypeError(f"{shown(value)}: expected {expected}")
        return value

    return read


def read_path(text: str) -> Path:
    """Reads the text of a flag as a path that a file or a folder can have."""
    try:
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # opening it raises an error later
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise argparse.ArgumentTypeError(f"{shown(text)} is no path ({why})") from error
    return Path(text)


def _read_json(name: str, text: str) -> dict[str, Any]:
    try:
        example = '{"enable_thinking": false}' if name == "chat_template_kwargs" else '{"reasoning_effort": "low"}'
        return read_object(text, name, example)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def given_fields(options: argparse.Namespace, config: type[Any]) -> dict[str, Any]:
    """Field → value, for the fields whose flags were given."""
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(config) if hasattr(options, field.name)}


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Field → value as the flags that give them.

    >>> as_flags({"top_k": 5, "load_in_4bit": True, "chat_template_kwargs": {"enable_thinking": False}})
    ['--top-k', '5', '--load-in-4bit', '--chat-template-kwargs', '{"enable_thinking": false}']
    """
    flags = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags


@cache
def field_docs(config: Any) -> dict[str, str]:
    """Field → the string under it in the source of a dataclass or `TypedDict` and its bases."""
    if not (dataclasses.is_dataclass(config) or is_typeddict(config)):
        return {}
    docs: dict[str, str] = {}
    for parent in reversed(getattr(config, "__orig_bases__", config.__mro__[1:])):  # the classes of a TypedDict are only there
        docs |= field_docs(parent)
    [node] = ast.parse(inspect.getsource(config)).body
    assert isinstance(node, ast.ClassDef)
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            docs[ast.unparse(field.target)] = str(text.value.value)
    return docs


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The flags and arguments of a parser and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def check_flags(given: list[str], parser: argparse.ArgumentParser) -> None:
    """Refuses flags that do not exist, naming the nearest, and empty texts, unless the flag's default is one."""
    actions = list(_actions(parser))
    known = [option for action in actions for option in action.option_strings]
    for argument in given:
        name = argument.partition("=")[0]
        if name == "--":  # only arguments follow
            break
        if name.startswith("--") and name not in known:
            raise unknown("flag", name, known)
    may_be_empty = [option for action in actions if action.type is str for option in action.option_strings]
    for before, argument in pairwise(["", *given]):
        flag, equals, value = argument.partition("=") if argument.startswith("--") else (before, "=", argument)
        if equals and not value and flag not in may_be_empty:
            where = f"an empty text after {flag}" if flag in known else "an empty argument"
            raise UserError(f"{where}: expected a value; see {parser.prog} --help")
