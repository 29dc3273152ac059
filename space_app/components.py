"""The components of the tabs: inputs, places for replays, and how errors and endpoints are handled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import gradio as gr
import players
import validation
from watch import FIRST

from msgrpo_hub.errors import UserError

Function = Callable[..., Any]


def show_user_errors(function: Function) -> Function:
    """Shows the visitor an error they can fix, as one line. Any other error is ours and keeps its traceback."""
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def yields(*given: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from function(*given, **named)
            except UserError as error:
                raise gr.Error(str(error), duration=None, print_exception=False) from error

        return yields

    @wraps(function)
    def returns(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except UserError as error:
            raise gr.Error(str(error), duration=None, print_exception=False) from error

    return returns


def replay_player(value: str | None, name: str) -> gr.HTML:
    """A place for a replay; its value is the replay's data as JSON."""
    return gr.HTML(
        value,
        elem_id=name,
        html_template='<div class="stage"></div>',
        js_on_load="msgrpo.mountReplay(element, props, watch);",
        apply_default_css=False,
    )


def game_input(games: list[str], value: str) -> gr.Dropdown:
    return gr.Dropdown(games, value=value, label="Game", min_width=230, scale=3)


def seed_input(value: int = FIRST[1]) -> gr.Number:
    return gr.Number(value, label="Seed", precision=0, minimum=0, maximum=validation.LAST_EPISODE, min_width=80, scale=1)


def player_input(value: str, label: str = "Player") -> gr.Dropdown:
    names = list(dict.fromkeys([*players.BUILT_IN, players.shown_first()]))
    return gr.Dropdown(names, value=value, label=label, allow_custom_value=True, min_width=170, scale=2)


def note(text: str) -> None:
    gr.Markdown(text, elem_classes="note")


def lead(text: str) -> None:
    gr.Markdown(text, elem_classes="lead")


def endpoint(function: Function) -> None:
    """Publishes a function for programs under its own name; its docstring becomes the endpoint's description."""
    gr.api(show_user_errors(function), api_name=function.__name__)  # type: ignore[attr-defined]
