"""Bad values for every flag that is made from a field: they follow from the field's type and range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgrpo_hub.fields import Count, Number, Price, Range
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.training.config import CHOICES, TrainConfig

LONG, DIGITS = "a" * 300, "9" * 400

WORDS = {"a word": "many", "nothing": "", "NaN": "nan", "infinity": "inf", "400 digits": DIGITS, "5000 digits": "9" * 5000}
OF_A_KIND = {int: {"a fraction": "1.5", "hexadecimal": "0x10"}, float: {"too large for a float": "1e400", "a comma": "0,5"}}

OWN = {
    "play": {"seed": Number},
    "eval": {"repeats": Count, "batch_size": Count, "price_in": Price, "price_out": Price},
}
"""Command → its numbers that are not fields."""


def bad_values(name: str, hint: Any) -> Iterator[tuple[str, str]]:
    """What a value is → the value, for a field."""
    hint = get_args(hint)[0] if get_origin(hint) is Union else hint  # a number, or a word
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if kind in OF_A_KIND:
        yield from (WORDS | OF_A_KIND[kind]).items()
        [limits] = [part for part in get_args(hint) if isinstance(part, Range)]
        yield "below the range", str(kind(limits.least) if limits.open else kind(limits.least) - 1)
        yield "above the range", str(kind(limits.most) + 1 if kind is int else limits.most * 2)
    elif kind is Literal or get_origin(kind) is Literal or name in CHOICES:
        yield from {"unknown": "unheard-of", "a long name": LONG, "two lines": "a\nb"}.items()
    elif kind is bool:
        yield "a value", "yes"


def bad_flags(command: str) -> Iterator[tuple[str, str, str]]:
    """(what is wrong, flag, value) for all fields of a command."""
    fields = get_type_hints(TrainConfig if command == "train" else PlayerSettings, include_extras=True)
    for name, hint in (fields | OWN.get(command, {})).items():
        for what, value in bad_values(name, hint):
            yield f"{name}: {what}", f"--{name.replace('_', '-')}", value
