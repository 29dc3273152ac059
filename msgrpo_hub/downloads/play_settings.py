"""Play settings: the file beside an adapter with the prompt format and the switches of the chat template it was trained with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgrpo_hub.errors import UserError

PLAY_SETTINGS = "msgrpo.json"
"""The name of the file. PEFT ignores it."""

Scalar = str | int | float | bool
"""The value of a variable of a chat template."""

_FORMAT = re.compile(r"[A-Za-z0-9][\w.:-]{0,199}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z]\w{0,63}", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no file can hold
_MOST_VARIABLES = 20
_LONGEST_VALUE = 1000  # characters
_LARGEST_NUMBER = 1e15
_RESERVED = (
    "messages",
    "conversations",
    "tools",
    "documents",
    "chat_template",
    "add_generation_prompt",
    "continue_final_message",
    "return_assistant_tokens_mask",
)
"""Names that transformers itself gives a template, or that choose what is rendered."""


@dataclass(frozen=True, kw_only=True)
class PlaySettings:
    """How a model was prompted while its adapter was trained."""

    prompt_format: str
    """Name of the prompt format."""
    chat_template_kwargs: dict[str, Scalar] = field(default_factory=dict)
    """Variables of the chat template."""

    def record(self) -> dict[str, Any]:
        """The content of the file. Without variables it holds only the format."""
        switches = {"chat_template_kwargs": self.chat_template_kwargs} if self.chat_template_kwargs else {}
        return {"prompt_format": self.prompt_format, **switches}


def play_settings_of(settings: Mapping[str, Any], source: str) -> PlaySettings:
    """The play settings that an adapter stores; `agent` resolves the name of the format.

    Raises:
        UserError: the file holds other content.
    """
    name, switches = settings.get("prompt_format"), settings.get("chat_template_kwargs", {})
    known = settings.keys() <= {"prompt_format", "chat_template_kwargs"}
    if not known or not isinstance(name, str) or not _FORMAT.fullmatch(name) or not isinstance(switches, dict):
        raise UserError(
            f'the adapter {source!r} is not loaded: expected {{"prompt_format": NAME}} in its msgrpo.json, and at most '
            '"chat_template_kwargs": {VARIABLE: VALUE} besides'
        )
    check_switches(switches, f"in the msgrpo.json of {source!r}")
    return PlaySettings(prompt_format=name, chat_template_kwargs=switches)


def read_switches(text: str) -> dict[str, Scalar]:
    """Variables of a chat template, typed as JSON.

    Raises:
        UserError: the text is not a JSON object of plain values.

    >>> read_switches('{"enable_thinking": false}')
    {'enable_thinking': False}
    """
    switches = read_object(text, "chat_template_kwargs", '{"enable_thinking": false}')
    check_switches(switches, "in chat_template_kwargs")
    return switches


def read_object(text: str, name: str, example: str) -> dict[str, Any]:
    """A JSON object. Raises `UserError` with its name and an example if the text is none."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UserError(f"{name} = {text[:80]!r}: expected a JSON object such as '{example}', in quotes")
    return values


def check_switches(switches: Mapping[str, Any], where: str) -> None:
    """Raises `UserError` unless all variables have plain names and plain values: texts, numbers, true or false."""
    if len(switches) > _MOST_VARIABLES:
        raise UserError(f"{len(switches)} variables {where}: expected at most {_MOST_VARIABLES}")
    for name, value in switches.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name) or name in _RESERVED:
            raise UserError(f"the variable {str(name)[:80]!r} {where} cannot be set: expected a variable of the chat template")
        if not _is_scalar(value):
            kinds = f"a text of up to {_LONGEST_VALUE} characters, a number, true or false"
            raise UserError(f"{name} = {str(value)[:80]!r} {where}: expected {kinds}")


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_VALUE and not _SURROGATE.search(value)
    return isinstance(value, bool | int | float) and abs(value) <= _LARGEST_NUMBER  # false for infinity and NaN
