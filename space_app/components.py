"""The components of the tabs: inputs, places for replays, and how errors and endpoints are handled."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any

import gradio as gr
import lines
import names
import troubles
from answers import ANSWERS
from gradio.context import LocalContext
from validation import LAST_EPISODE
from watch import FIRST

from msgrpo_hub.errors import UserError

Function = Callable[..., Any]


def show_user_errors(function: Function) -> Function:
    """Answers a program with an error it can fix, as one line. Any other error is ours and keeps its traceback."""
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def yields(*given: Any, **named: Any) -> Iterator[Any]:
            lines.visitor.set(address())
            try:
                yield from function(*given, **named)
            except UserError as error:
                raise shown_error(str(error)) from error

        return yields

    @wraps(function)
    def returns(*given: Any, **named: Any) -> Any:
        lines.visitor.set(address())
        try:
            return function(*given, **named)
        except UserError as error:
            raise shown_error(str(error)) from error

    return returns


shown_error = partial(gr.Error, duration=None, print_exception=False)


def in_tab(function: Function, labels: Sequence[str], outputs: int) -> Function:
    """What a tab does with its inputs. An error that the visitor can fix goes beside the input it is about.

    Args:
        function: takes the values of the inputs, returns or yields those of the outputs, which it may also give as one value.
        labels: of the inputs.
        outputs: number of the outputs; before them comes the tab's `trouble`.
    """

    def answers(*given: Any) -> Iterator[Any]:
        lines.visitor.set(address())
        try:
            found = function(*given)
            for each in found if inspect.isgenerator(found) else [found]:
                yield "", *(each if isinstance(each, tuple) else (each,))
        except UserError as error:
            field = troubles.field_of(str(error), dict(zip(labels, given, strict=True)))
            message = f"Board: expected a whole number from 0 to {LAST_EPISODE}" if field == "Board" else str(error)
            said = {"message": message, "field": field, "at": time.monotonic()}  # `at`: the same error again is another value
            yield json.dumps(said), *[gr.skip()] * outputs

    return answers


def trouble(tab: str) -> gr.HTML:
    """Where a tab says what a visitor can fix; its script puts the words beside the input that they are about."""
    return gr.HTML(
        "",
        elem_id=f"{tab}-trouble",
        html_template="<div></div>",
        js_on_load="msgrpo.mountTrouble(element, props, watch);",
        apply_default_css=False,
    )


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


def address(request: Any = None) -> str:
    """The address of the visitor whose request is answered. On a Space a proxy stands between, and says whose it was."""
    request = request or LocalContext.request.get()
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
        js_on_load=f"msgrpo.mountReplay(element, props, watch, '{name}');",
        apply_default_css=False,
    )


def grey_when_changed(inputs: Sequence[Any], name: str) -> None:
    """Greys what `name` shows while the inputs are not those it was made with. Only the page does this."""
    gr.on(
        [each.change for each in inputs],
        None,
        list(inputs),
        None,
        js=f"(...given) => {{ msgrpo.changed('{name}', given); }}",
        api_visibility="private",
        show_progress="hidden",
    )


def game_input(value: str = FIRST[0], registered: bool = False) -> gr.Dropdown:
    """A list of games by their names; it takes other ids too, unless only registered games are asked for."""
    choices = [each for each in names.games() if each[1] in names.GAMES or not registered]
    box = gr.Dropdown(
        choices, value=value, label="Game", allow_custom_value=not registered, min_width=210, scale=3, elem_classes="games-list"
    )
    return box if registered else _takes_names(box, choices)


def board_input(value: int = FIRST[1]) -> gr.Number:
    return gr.Number(value, label="Board", min_width=70, scale=1)


def dice() -> gr.Button:
    """Chooses a board at random."""
    return gr.Button("Random board", elem_classes="dice", min_width=44, scale=0)


def player_input(value: str, label: str = "Player", nobody: bool = False) -> gr.Dropdown:
    choices = [*([("nobody", "")] if nobody else []), *names.player_choices()]
    box = gr.Dropdown(
        choices, value=value, label=label, allow_custom_value=True, min_width=190, scale=2, elem_classes="players-list"
    )
    return _takes_names(box, choices)


def named(choices: Sequence[tuple[str, str]]) -> str:
    """A JavaScript function that gives the id of a name, whatever its case, and anything else as it is."""
    ids = {name.lower(): value for name, value in choices}
    return f"(given) => ({json.dumps(ids)})[String(given).toLowerCase()] ?? given"


def _takes_names(box: gr.Dropdown, choices: Sequence[tuple[str, str]]) -> gr.Dropdown:
    """Chooses what is typed by its name. Only the page does this."""
    box.change(None, box, box, js=named(choices), api_visibility="private", show_progress="hidden")
    return box


def note(text: str) -> None:
    gr.Markdown(text, elem_classes="note")


def lead(text: str) -> None:
    gr.Markdown(text, elem_classes="lead")


def endpoint(function: Function) -> None:
    """Publishes a function for programs under its own name; its docstring becomes the endpoint's description."""
    published = show_user_errors(function)
    given = inspect.signature(function, eval_str=True)
    published.__signature__ = given.replace(return_annotation=ANSWERS[function.__name__])  # type: ignore[attr-defined]
    gr.api(published, api_name=function.__name__)  # type: ignore[attr-defined]
