"""The components of the tabs: inputs, places for replays, and how errors and endpoints are handled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial, wraps
from html import escape
from typing import Any

import gradio as gr
import lines
import players
import validation
from gradio.context import LocalContext
from watch import FIRST

from msgrpo_hub.errors import UserError

Function = Callable[..., Any]


def show_user_errors(function: Function, as_shown: Callable[[str], str] = escape) -> Function:
    """Shows the visitor an error they can fix, as one line. Any other error is ours and keeps its traceback.

    Args:
        function: answers a request; it may yield.
        as_shown: what becomes of the line. The page shows it as HTML, so names in it are escaped.
    """
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def yields(*given: Any, **named: Any) -> Iterator[Any]:
            lines.visitor.set(address())
            try:
                yield from function(*given, **named)
            except UserError as error:
                raise shown_error(as_shown(str(error))) from error

        return yields

    @wraps(function)
    def returns(*given: Any, **named: Any) -> Any:
        lines.visitor.set(address())
        try:
            return function(*given, **named)
        except UserError as error:
            raise shown_error(as_shown(str(error))) from error

    return returns


shown_error = partial(gr.Error, duration=None, print_exception=False)


def answer(function: Function, given: Any) -> dict[str, Any]:
    """Answers a script of the page, which shows `error` to the visitor as text."""
    lines.visitor.set(address())
    try:
        inspect.signature(function).bind(**given)
    except TypeError:
        return {"error": "expected the names and values that the page sends"}
    try:
        found: dict[str, Any] = function(**given)
    except UserError as error:
        return {"error": str(error)}
    return found


def address() -> str:
    """The address of the visitor whose request is answered. On a Space a proxy stands between, and says whose it was."""
    request = LocalContext.request.get()
    if request is None or request.client is None:
        return ""
    forwarded = str(request.headers.get("x-forwarded-for", "")).partition(",")[0].strip()
    return forwarded[:50] or str(request.client.host)


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
    gr.api(show_user_errors(function, as_shown=str), api_name=function.__name__)  # type: ignore[attr-defined]
