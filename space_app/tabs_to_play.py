"""The Watch and the Play tab: the board first, then what one can choose."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr
import names
import opening
import players
import validation
from components import (
    answer,
    board_input,
    dice,
    game_input,
    grey_when_changed,
    in_tab,
    note,
    player_input,
    replay_player,
    trouble,
)
from films import caption, film, side_by_side
from human import play_result, play_step
from watch import BASE, FIRST

ASKED = ("Game", "Board", "Player", "Next to")


def watch_tab() -> None:
    first = (FIRST[0], FIRST[1], players.shown_first(), BASE)
    stage = replay_player(json.dumps(side_by_side(*FIRST, BASE)), "watch-stage")
    with gr.Row(elem_classes="asks"):
        game, board, roll = game_input(), board_input(), dice()
        player, beside = player_input(first[2]), player_input(BASE, "Next to", nobody=True)
        go = gr.Button("Watch", variant="primary", min_width=110, scale=1)
    said = trouble("watch")
    examples = gr.HTML(
        _links(opening.examples()),
        elem_id="examples",
        js_on_load="msgrpo.mountExamples(() => trigger('open'));",
        apply_default_css=False,
    )
    inputs = [game, board, player, beside]

    def shown(*given: Any) -> str:
        return json.dumps({**side_by_side(*given), "at": time.monotonic()})  # the same replay again is another value

    def opened(*given: Any) -> tuple[Any, ...]:
        return *given, shown(*given)

    gr.on(
        [go.click, board.submit],
        in_tab(shown, ASKED, 1),
        inputs,
        [said, stage],
        trigger_mode="always_last",
        api_visibility="private",
        show_progress="minimal",
    )
    for event, values in ((examples.open, "msgrpo.wanted.inputs(given)"), (roll.click, "msgrpo.rolled(given)")):
        event(
            in_tab(opened, ASKED, len(inputs) + 1),
            inputs,
            [said, *inputs, stage],
            js=f"(...given) => {values}",
            trigger_mode="always_last",
            api_visibility="private",
            show_progress="minimal",
        )
    grey_when_changed(inputs, "watch-stage")
    note(
        "**Player**: choose one, or type the name of a model or an adapter on the Hub, `USER/NAME` or `BASE+ADAPTER`. It needs "
        f"safetensors of at most {players.LARGEST / 1e9:.0f} GB and a chat template. The Space loads one model at a time, so you "
        "may have to wait. *Regret* is the expected reward that a move gives away; it is known if the game is solved."
    )


def _links(examples: Sequence[tuple[str, str]]) -> str:
    links = "".join(f'<li><a href="{escape(address)}">{escape(words)}</a></li>' for words, address in examples)
    return f'<ul aria-label="Examples">{links}</ul>'


def play_tab() -> None:
    first = (FIRST[0], FIRST[1], players.shown_first())

    def begin(game: str, board: int, player: str) -> str:
        players.check_player(player, validation.game(game))
        shown = play_step(game, board, []) | {"player": player, "asked": [game, board, player]}
        return json.dumps(shown | {"caption": caption(game, shown["number"])})

    def step(asked: dict[str, Any]) -> dict[str, Any]:
        return answer(play_step, asked)

    def result(asked: dict[str, Any]) -> dict[str, Any]:
        return answer(named_result, asked)

    stage = gr.HTML(
        begin(*first),
        elem_id="play-board",
        html_template='<div class="stage"></div>',
        js_on_load="msgrpo.mountGame(element, props, server, watch);",
        apply_default_css=False,
        server_functions=[step, result],
    )
    with gr.Row(elem_classes="asks"):
        game, board, roll = game_input(), board_input(), dice()
        player = player_input(first[2], "Against")
        go = gr.Button("New game", variant="primary", min_width=130, scale=1)
    said, inputs = trouble("play"), [game, board, player]
    labels = ("Game", "Board", "Against")

    def opened(*given: Any) -> tuple[Any, ...]:
        return *given, begin(*given)

    gr.on(
        [go.click, board.submit],
        in_tab(begin, labels, 1),
        inputs,
        [said, stage],
        trigger_mode="always_last",
        api_visibility="private",
        show_progress="hidden",
    )
    roll.click(
        in_tab(opened, labels, len(inputs) + 1),
        inputs,
        [said, *inputs, stage],
        js="(...given) => msgrpo.rolled(given)",
        trigger_mode="always_last",
        api_visibility="private",
        show_progress="hidden",
    )
    grey_when_changed(inputs, "play-board")
    note("Use the arrow keys or the buttons. Then the agent and the best player that knows the game play the same board.")


def named_result(game: str, seed: int, player: str) -> dict[str, Any]:
    """The answer of `play_result` with the names that visitors see."""
    found = play_result(game, seed, player)
    named = {role: found[role] | {"title": names.player(found[role]["player"])} for role in ("agent", "best")}
    return {**named, "film": film(found["film"], (game, seed, player))}
