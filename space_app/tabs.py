"""The tabs of the page: their inputs, and what happens with them."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from html import escape
from typing import Any

import gradio as gr
import names
import opening
import players
import present
from compare import MOST_EPISODES, OPENING, compare
from human import play_result, play_step
from leaderboard import leaderboard, leaderboard_page
from replay import FIRST, film, opens_with, side_by_side
from rules import ASKED_FIRST, MOST_STARTS, OPENING_PLAYERS, PRESETS, change_rules, told_film, words
from rules import OPENING as RULES_OPENING

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES

Function = Callable[..., Any]

QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
"""Settings of an event that programs do not see."""

page_html = partial(gr.HTML, apply_default_css=False)
board_input = partial(gr.Number, value=FIRST[1], label="Board", min_width=70, scale=1)
go_button = partial(gr.Button, variant="primary", min_width=110, scale=1)
note = partial(gr.Markdown, elem_classes="note")


def guarded(function: Function) -> Function:
    """The function, which reports an error that a visitor can fix as one line. Any other error keeps its traceback."""

    def error_of(text: str) -> gr.Error:  # gradio shows an error as HTML
        return gr.Error(escape(text, quote=False), duration=20, print_exception=False)

    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def yields(*given: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from function(*given, **named)
            except UserError as error:
                raise error_of(str(error)) from error

        return yields

    @wraps(function)
    def returns(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except UserError as error:
            raise error_of(str(error)) from error

    return returns


def answering(function: Function) -> Function:
    """The function for a script of the page, which gives its arguments as one object, and shows `error` as text."""

    def answer(given: Any) -> dict[str, Any]:
        try:
            inspect.signature(function).bind(**given)
        except TypeError as error:  # a TypeError of the function itself is a bug
            return {"error": str(error)}
        try:
            return dict(function(**given))
        except UserError as error:
            return {"error": str(error)}

    answer.__name__ = function.__name__  # as the script calls it
    return answer


# ---- inputs and outputs


def replay_player(value: str | None, name: str) -> gr.HTML:
    """A place for a replay; its value is the replay's data as JSON."""
    mount = f"msgrpo.mountReplay(element, props, watch, '{name}');"
    return page_html(value, elem_id=name, html_template='<div class="stage"></div>', js_on_load=mount)


def grey_when_changed(inputs: Sequence[Any], name: str) -> None:
    """Greys a result while the inputs differ from those it was made with. This happens in the page."""
    js = f"(...given) => {{ msgrpo.changed('{name}', given); }}"
    gr.on([each.change for each in inputs], None, list(inputs), None, js=js, **QUIET)


def named(choices: Sequence[tuple[str, str]]) -> str:
    """A JavaScript function from a name, in any case, to its id; it returns anything else unchanged."""
    ids = {name.lower(): value for name, value in choices}
    return f"(given) => ({json.dumps(ids)})[String(given).toLowerCase()] ?? given"


def dropdown(choices: Sequence[tuple[str, str]], value: str, label: str, *, custom: bool = True, **look: Any) -> gr.Dropdown:
    """A list that takes names; if `custom`, also values that it does not offer."""
    box = gr.Dropdown(list(choices), value=value, label=label, allow_custom_value=custom, **look)
    if custom:
        box.change(None, box, box, js=named(choices), **QUIET)
    return box


def game_input(value: str = FIRST[0], registered: bool = False) -> gr.Dropdown:
    ids = [each for of in names.groups().values() for each in of if each in names.GAMES or not registered]
    choices = [(names.game(each), each) for each in ids]
    return dropdown(choices, value, "Game", custom=not registered, min_width=210, scale=3, elem_classes="games-list")


def player_input(value: str, label: str = "Player", nobody: bool = False) -> gr.Dropdown:
    own = run.sources if (run := players.own_run()) else [players.shown_first()]
    offered = [(names.player(each), each) for each in dict.fromkeys([*own, *names.PLAYERS])]
    choices = [*([("nobody", "")] if nobody else []), *offered]
    return dropdown(choices, value, label, min_width=190, scale=2, elem_classes="players-list")


def run_until_stopped(go: Any, stop: Any, run: Function, inputs: Sequence[Any], scores: Any, stage: Any) -> None:
    """Runs a generator at a button until it ends, or until another button stops it."""
    js = f"(...given) => {{ msgrpo.running('{scores.elem_id}', true); return given; }}"
    visible: dict[str, Any] = {"api_visibility": "private", "show_progress": "minimal"}
    event = go.click(guarded(run), list(inputs), [scores, stage], js=js, **visible)
    event.then(None, None, None, js=f"() => {{ msgrpo.running('{scores.elem_id}', false); }}", api_visibility="private")
    stopping = f"() => {{ msgrpo.stopping('{scores.elem_id}'); }}"
    stop.click(None, None, None, cancels=[event], js=stopping, api_visibility="private")


# ---- the tabs


def watch_tab() -> None:
    first = opens_with()
    with gr.Row(elem_classes="asks"):
        game, board = game_input(first[0]), board_input(value=first[1])
        roll = gr.Button("Random board", elem_classes="dice", min_width=44, scale=0)
        player, beside = player_input(first[2]), player_input(first[3], "Next to", nobody=True)
        go = go_button("Watch")
    stage = replay_player(json.dumps(next(side_by_side(*first))), "watch-stage")
    links = "".join(f'<li><a href="{escape(address)}">{escape(said)}</a></li>' for said, address in opening.examples())
    mount = "msgrpo.mountExamples(() => trigger('open'));"
    examples = page_html(f'<ul aria-label="Examples">{links}</ul>', elem_id="examples", js_on_load=mount)
    inputs = [game, board, player, beside]
    latest: dict[str | None, object] = {}  # of each page that waits for a model

    def shown(game: str, board: int, player: str, beside: str, request: gr.Request) -> Iterator[Any]:
        players.number(board, what="board")
        given, page, mine = (game, board, player, beside), request.session_hash, object()
        latest[page] = mine
        for found in side_by_side(*given):
            if latest.get(page) is not mine:  # the visitor has asked for another replay
                return
            filled = [gr.skip()] * len(given) if found["grows"] else given
            yield *filled, json.dumps({**found, "at": time.monotonic()})  # the same replay again is another value
        latest.pop(page, None)

    events: dict[str, Any] = {**QUIET, "trigger_mode": "multiple", "show_progress": "minimal", "show_progress_on": stage}
    asked = ("given", "given", "msgrpo.wanted.inputs(given)", "msgrpo.rolled(given)")
    for event, values in zip((go.click, board.submit, examples.open, roll.click), asked, strict=True):
        event(guarded(shown), inputs, [*inputs, stage], js=f"(...given) => {values}", **events)
    grey_when_changed(inputs, "watch-stage")
    note(
        "**Player**: choose one, or type the name of a model or an adapter on the Hub, `USER/NAME` or `BASE+ADAPTER`. It needs "
        f"safetensors of at most {players.LARGEST / 1e9:.0f} GB and a chat template. The Space loads one model at a time, so you "
        "may have to wait. *Regret* is the expected reward that a move gives away; it is known if the game is solved."
    )


def compare_tab() -> None:
    note("Two players on the same boards: where do they first differ, and which is better?", elem_classes="lead")
    with gr.Row(elem_classes="asks"):
        game, board = game_input(OPENING[0]), board_input(value=OPENING[1])
        a, b = player_input(OPENING[2], "Player A"), player_input(OPENING[3], "Player B")
    with gr.Row(elem_classes="asks"):
        episodes = gr.Slider(1, MOST_EPISODES, value=OPENING[4], step=1, label="Episodes", min_width=220, scale=3)
        go, stop = go_button("Compare"), gr.Button("Stop", elem_classes="stop", min_width=90, scale=1)
    found = players.bundled("compare")
    html = present.comparison(found) + present.BUNDLED.format(button="Compare")
    scores = page_html(html, elem_id="compare-scores", elem_classes="told")
    stage = replay_player(json.dumps(film(found["film"], OPENING)), "compare-stage")
    inputs = [game, board, a, b, episodes]

    def run(*given: Any) -> Iterator[Any]:
        players.number(given[1], what="board")
        for index, found in enumerate(compare(*given)):  # the replay must not restart while a visitor watches it
            yield present.comparison(found), gr.skip() if index else json.dumps(film(found["film"], given))

    run_until_stopped(go, stop, run, inputs, scores, stage)
    grey_when_changed(inputs, "compare-stage")
    note(
        "Both players get the same boards and the same random numbers. Brackets are 95 % intervals; a mean reward and a "
        "difference have none under 30 episodes. **Stop** keeps the episodes played so far. Stop because you have seen enough, "
        "not because you like the result."
    )


def play_tab() -> None:
    first = opens_with()[:3]

    def begin(game: str, board: int, player: str) -> str:
        players.check_player(player, players.game_of(game))
        players.number(board, what="board")
        shown = play_step(game, board, []) | {"player": player, "asked": [game, board, player]}
        return json.dumps(shown | {"caption": [f"{names.game(game)}, board {shown['number']}", game]})

    with gr.Row(elem_classes="asks"):
        game, board = game_input(first[0]), board_input(value=first[1])
        roll = gr.Button("Random board", elem_classes="dice", min_width=44, scale=0)
        player, go = player_input(first[2], "Against"), go_button("New game")
    stage = page_html(
        begin(*first),
        elem_id="play-board",
        html_template='<div class="stage"></div>',
        js_on_load="msgrpo.mountGame(element, props, server, watch);",
        server_functions=[answering(play_step), answering(named_result)],
    )
    inputs = [game, board, player]
    gr.on([go.click, board.submit], guarded(begin), inputs, [stage], trigger_mode="always_last", **QUIET)
    opened, js = guarded(lambda *given: (*given, begin(*given))), "(...given) => msgrpo.rolled(given)"
    roll.click(opened, inputs, [*inputs, stage], js=js, trigger_mode="always_last", **QUIET)
    grey_when_changed(inputs, "play-board")
    note("Use the arrow keys or the buttons. Then the agent and the best player that knows the game play the same board.")


def named_result(game: str, seed: int, player: str) -> dict[str, Any]:
    """The answer of `play_result` with readable names."""
    found = play_result(game, seed, player)
    titled = {role: found[role] | {"title": names.player(found[role]["player"])} for role in ("agent", "best")}
    return {**titled, "film": film(found["film"], (game, seed, player))}


def rules_tab() -> None:
    lead = "Tell an agent something else about the same game. Does it read the rules, or follow a habit?"
    note(lead, elem_classes="lead")
    first, found, shown_players = ASKED_FIRST, players.bundled("rules"), OPENING_PLAYERS
    with gr.Row(elem_classes="asks"):
        game, board = game_input(first["game"], registered=True), board_input(value=first["seed"])
        player, beside = player_input(shown_players[0]), player_input(shown_players[1], "Beside it", nobody=True)
    with gr.Row(elem_classes="asks"):
        change = gr.Dropdown(list(PRESETS), value=RULES_OPENING[2], label="Prepared changes", min_width=170, scale=2)
    with gr.Row(equal_height=True):
        instructions = gr.Textbox(first["instructions"], label="Instructions", lines=3, max_lines=8, min_width=280)
        rules = gr.Textbox(first["rules"], label="Rules, one per line", lines=3, max_lines=12, min_width=280)
    with gr.Row(elem_classes="asks"):
        renamed = [
            gr.Textbox(new, label=f"{name} is called", min_width=110, max_lines=1)
            for name, new in zip(GAMES[first["game"]].actions, first["names"], strict=True)
        ]
        answers = [("less", "less"), ("the same", "same")]
        expected = gr.Radio(answers, value=first["expected"], label="An agent that reads would collect", min_width=220)
    with gr.Row(elem_classes="asks"):
        episodes = gr.Slider(1, MOST_STARTS, value=first["episodes"], step=1, label="Starts", min_width=220, scale=3)
        go, stop = go_button("Try it"), gr.Button("Stop", elem_classes="stop", min_width=90, scale=1)
    html = present.judgements(found) + present.BUNDLED.format(button="Try it")
    verdict = page_html(html, elem_id="rules-verdict", elem_classes="told")
    inputs = [game, board, player, beside, instructions, rules, *renamed, expected, episodes]
    asked = [first["game"], first["seed"], *shown_players, first["instructions"], first["rules"]]
    asked += [*first["names"], first["expected"], first["episodes"]]
    stage = replay_player(json.dumps(film(told_film(found), asked)), "rules-stage")

    def fill(game: str, change: str) -> tuple[Any, ...]:
        own = words(game, change)
        return own["instructions"], own["rules"], *own["names"], own["expected"]

    def run(game: str, seed: int, player: str, beside: str, *told: Any) -> Iterator[Any]:
        instructions, rules, *given, expected, episodes = told
        players.number(seed, what="board")
        answers: dict[str, dict[str, Any]] = {}
        for name in dict.fromkeys(each for each in (player, beside) if each):
            for index, found in enumerate(change_rules(game, seed, name, instructions, rules, given, expected, episodes)):
                answers[name] = found
                shown = gr.skip() if index else json.dumps(film(told_film(answers), (game, seed, player, beside, *told)))
                yield present.judgements(answers), shown

    # a prepared change can be chosen again after an edit
    filled = [instructions, rules, *renamed, expected]
    gr.on([game.change, change.input], guarded(fill), [game, change], filled, trigger_mode="always_last", **QUIET)
    run_until_stopped(go, stop, run, inputs, verdict, stage)
    grey_when_changed(inputs, "rules-stage")
    note(
        "Only the words change; the game, its random numbers and its rewards stay. The score counts rewards collected: apples "
        "eaten, or the goal reached. Any new text disturbs a small model. So each start is also played with a sentence such as "
        "*The train arrives at noon.* in the place of your words, repeated to the same length; five sentences take turns. A "
        "verdict needs 95 % intervals that separate your words from these and from the game's own. *Trained on a trap too* has "
        "learned the words that the page opens with. With other words of the same meaning it may fail: try *avoid the goal*."
    )


def leaderboard_tab() -> None:
    rows = leaderboard()
    tasks = [(names.game(task), task) for task in dict.fromkeys(row["task"] for row in rows)]
    with gr.Row(elem_classes="asks"):
        game = gr.Dropdown([("all games", ""), *tasks], value="", label="Game", min_width=230, scale=2, allow_custom_value=True)
        hint = "USER/NAME, or empty for the bundled results"
        results = gr.Textbox("", label="Results dataset", placeholder=hint, min_width=230, scale=3)
        go = go_button("Show")
    mount = "msgrpo.mountTable(element);"
    shown = page_html(leaderboard_page(rows), elem_id="leaderboard", elem_classes="told", js_on_load=mount)
    gr.on(
        [game.input, go.click, results.submit],
        guarded(lambda *given: leaderboard_page(leaderboard(*given))),
        [game, results],
        [shown],
        js=f"(game, results) => [({named(tasks)})(game), results]",
        api_visibility="private",
        show_progress="minimal",
    )
    note(
        "Mean reward and success over fixed test episodes, with 95 % intervals. *Normalised*: 0 is random play, and 1 is optimal "
        "play on average, or the planner's reward in a game that is not solved; a lucky player on slippery ice gets above 1. "
        "*Silent*: the reward of doing nothing. A player with under half of its replies parsed does not play and has no rank. "
        "Every run was replayed; who gave the replies cannot be checked. ▶ opens a replay of the first board."
    )
