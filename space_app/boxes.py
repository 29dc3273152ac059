"""What the tabs are made of: boxes to ask in, places for films, and the way errors and endpoints are dealt with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import checks
import gradio as gr
import players
from watch import FIRST

from msgrpo_hub.errors import UserError

Function = Callable[..., Any]


def in_words(asked: Function) -> Function:
    """What a visitor can mend is told them in one line; anything else is a fault of ours and stays one."""
    if inspect.isgeneratorfunction(asked):

        @wraps(asked)
        def answers(*given: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from asked(*given, **named)
            except UserError as error:
                raise gr.Error(str(error), duration=None, print_exception=False) from error

        return answers

    @wraps(asked)
    def answered(*given: Any, **named: Any) -> Any:
        try:
            return asked(*given, **named)
        except UserError as error:
            raise gr.Error(str(error), duration=None, print_exception=False) from error

    return answered


def film(value: str | None, name: str) -> gr.HTML:
    """A place for a film; its value is the film's data as JSON."""
    return gr.HTML(
        value,
        elem_id=name,
        html_template='<div class="stage"></div>',
        js_on_load="msgrpo.mount(element, props, watch);",
        apply_default_css=False,
    )


def game_box(games: list[str], value: str) -> gr.Dropdown:
    return gr.Dropdown(games, value=value, label="Game", min_width=230, scale=3)


def seed_box(value: int = FIRST[1]) -> gr.Number:
    return gr.Number(value, label="Seed", precision=0, minimum=0, maximum=checks.HIGHEST, min_width=80, scale=1)


def player_box(value: str, label: str = "Player") -> gr.Dropdown:
    names = list(dict.fromkeys([*players.BUILT_IN, players.shown_first()]))
    return gr.Dropdown(names, value=value, label=label, allow_custom_value=True, min_width=170, scale=2)


def note(text: str) -> None:
    gr.Markdown(text, elem_classes="note")


def lead(text: str) -> None:
    gr.Markdown(text, elem_classes="lead")


def endpoint(asked: Function) -> None:
    """A function for programs, under its own name; its docstring is its description."""
    gr.api(in_words(asked), api_name=asked.__name__)  # type: ignore[attr-defined]
