"""Flags made from a configuration dataclass, parsing errors of one line, and the output of all commands."""

from __future__ import annotations

import argparse
import ast
import csv
import dataclasses
import inspect
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from msgrpo_hub.errors import UserError, plain, shown, unknown
from msgrpo_hub.fields import misfit


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line. It refuses empty values, and names the nearest flag for an unknown one."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        for argument in () if self._subparsers else args or ():
            flag, equals, value = argument.partition("=") if argument.startswith("--") else ("", "=", argument)
            if flag == "--" and not equals:  # only arguments follow
                break
            if flag and flag not in self._option_string_actions:
                raise unknown("flag", flag, self._option_string_actions)
            if equals and not value:
                self.error(f"an empty text{f' after {flag}' if flag else ''}: expected a value")
        return super().parse_known_args(args, namespace)


def add_fields(
    parser: argparse.ArgumentParser,
    config: type[Any],
    title: str,
    choices: Mapping[str, Iterable[str]] = MappingProxyType({}),
    remarks: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Adds one flag per field, absent if not given. `choices` has the names of variants, `remarks` the end of a help."""
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
            group.add_argument(flag, type=read_json, metavar="JSON", **common)
        elif get_origin(hint) is Literal:
            group.add_argument(flag, choices=get_args(hint), **common)
        else:
            kind = str if field.default == "" else read_as(hint)
            group.add_argument(flag, type=kind, metavar="|".join(_alternatives(hint)[1]), **common)


def _alternatives(hint: Any) -> tuple[list[Any], list[str]]:
    """The classes of a type hint without their ranges, and the values of a flag in words: class names and literals."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts]
    names = [get_args(kind) if get_origin(kind) is Literal else (kind.__name__,) for kind in kinds]
    return kinds, [name for several in names for name in several]


def read_as(hint: Any) -> Callable[[str], Any]:
    """Reads the text of a flag as a number or a text, which must be in the range of its type hint, if that has one.

    >>> read_as(float | Literal["adaptive"])("adaptive"), read_as(float | Literal["adaptive"])("2")
    ('adaptive', 2.0)
    """
    (kind, *_), (_, *words) = _alternatives(hint)

    def read(text: str) -> Any:
        if text in words:
            return text
        try:
            value = kind(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"expected {' or '.join([kind.__name__, *words])}, not {shown(text)}") from error
        if expected := misfit(value, hint):
            raise argparse.ArgumentTypeError(f"{shown(value)}: expected {expected}")
        return value

    return read


def read_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(
            f"{shown(text)}: expected a JSON object in quotes, such as '{{\"enable_thinking\": false}}'"
        )
    return value


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


def field_docs(config: type[Any]) -> dict[str, str]:
    """Field → the string under it in the source of a dataclass and its bases."""
    docs = {}
    for parent in filter(dataclasses.is_dataclass, reversed(config.__mro__)):
        [node] = ast.parse(inspect.getsource(parent)).body
        assert isinstance(node, ast.ClassDef)
        for field, text in pairwise(node.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                docs[ast.unparse(field.target)] = str(text.value.value)
    return docs


# ---- output: data on standard output, the next command on standard error


def add_json(parser: argparse._ActionsContainer, text: str = "print JSON instead of text") -> None:
    """`--json`, the flag of every command that prints data."""
    parser.add_argument("--json", action="store_true", help=text)


def add_format(parser: argparse._ActionsContainer) -> None:
    """`--json` and `--format`, the flags of the commands that print tables of results."""
    add_json(parser)
    text = "how to print tables; csv has a line per result, with the numbers of --json. Default: table"
    parser.add_argument("--format", choices=("table", "markdown", "csv", "latex"), default="table", help=text)


def show(data: Any, text: str, *, as_json: bool, sort_keys: bool = False, layout: str = "table") -> None:
    """Prints data as JSON or, with the layout `csv`, its rows; or else text without control characters."""
    if as_json:
        print(json.dumps(data, indent=2, sort_keys=sort_keys))
    elif layout == "csv":
        rows = [dict(_flat(row)) for row in (data["results"] if isinstance(data, dict) else data)]
        names = sorted(dict.fromkeys(name for row in rows for name in row), key=lambda name: name not in ("task", "player"))
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        if layout == "latex":  # all but the tables becomes comments
            parts = re.split(r"(\\begin{tabular}.*?\\end{tabular})", text, flags=re.DOTALL)
            parts[::2] = [re.sub(r"^(?=.)", "% ", part, flags=re.MULTILINE) for part in parts[::2]]
            text = "".join(parts)
        print("\n".join(map(plain, text.strip("\n").split("\n"))))


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values below a mapping, each with its path, such as `reward.mean`; a list is JSON."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", json.dumps(value) if isinstance(value, (list, tuple)) else value


def print_next(*commands: str) -> None:
    """The commands to try next, one a line, as this shell finds `msgrpo`, with the games that were imported."""
    from msgrpo_hub.games.registry import TYPED

    script, on_path = sys.argv[0], shutil.which("msgrpo")
    known = Path(script).stem != "msgrpo" or (on_path and Path(on_path).resolve() == Path(script).resolve())
    program = "msgrpo" if known else shlex.quote(min(script, os.path.relpath(script), key=len))
    own = "".join(f" --import {name}" for name in TYPED.values())  # `play` and `games` take the game itself
    commands = tuple(f"{line}{own if re.search('msgrpo (?!play|games)[a-z]', line) else ''}" for line in commands)
    text = re.sub(r"\bmsgrpo (?=[a-z])", lambda _: f"{program} ", "\n      ".join(commands))
    print(f"\nNext: {text}", file=sys.stderr)
