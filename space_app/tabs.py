"""The Compare, Rules and Leaderboard tabs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr
import names
import opening
import present
from compare import MOST_EPISODES, OPENING, compare
from components import (
    board_input,
    game_input,
    grey_when_changed,
    in_tab,
    lead,
    named,
    note,
    player_input,
    replay_player,
    trouble,
)
from films import film
from leaderboard import leaderboard
from leaderboard_page import leaderboard_page
from rules import MOST_STARTS, OPENING_PLAYERS, PRESETS, asked_first, bundled, change_rules, told_film, words
from rules import OPENING as RULES_OPENING

from msgrpo_hub.games import GAMES


def compare_tab() -> None:
    lead("Two players on the same boards: where do they first differ, and which is better?")
    with gr.Row(elem_classes="asks"):
        game, board = game_input(OPENING[0]), board_input(OPENING[1])
        a, b = player_input(OPENING[2], "Player A"), player_input(OPENING[3], "Player B")
    with gr.Row(elem_classes="asks"):
        episodes = gr.Slider(1, MOST_EPISODES, value=OPENING[4], step=1, label="Episodes", min_width=220, scale=3)
        go = gr.Button("Compare", variant="primary", min_width=110, scale=1)
        stop = gr.Button("Stop", elem_classes="stop", min_width=90, scale=1)
    said = trouble("compare")
    found = opening.compared()
    scores = gr.HTML(
        present.bundled(present.comparison(found), "Compare"),
        elem_id="compare-scores",
        elem_classes="told",
        apply_default_css=False,
    )
    stage = replay_player(json.dumps(film(found["film"], OPENING)), "compare-stage")
    inputs = [game, board, a, b, episodes]

    def run(*given: Any) -> Iterator[Any]:
        yield from _shown(compare(*given), present.comparison, given)

    _run(go, stop, run, ("Game", "Board", "Player A", "Player B", "Episodes"), inputs, [said, scores, stage])
    grey_when_changed(inputs, "compare-stage")
    note(
        "Both players get the same boards and the same random numbers. Brackets are 95 % intervals; a mean reward and a "
        "difference have none under 30 episodes. **Stop** keeps the episodes played so far. Stop because you have seen enough, "
        "not because you like the result."
    )


def _run(
    go: Any, stop: Any, run: Callable[..., Any], labels: Sequence[str], inputs: Sequence[Any], outputs: Sequence[Any]
) -> None:
    """Runs a generator at a button until it ends, or until another button stops it."""
    place = outputs[1].elem_id
    event = go.click(
        in_tab(run, labels, len(outputs) - 1),
        list(inputs),
        list(outputs),
        js=f"(...given) => {{ msgrpo.running('{place}', true); return given; }}",
        api_visibility="private",
        show_progress="minimal",
    )
    event.then(None, None, None, js=f"() => {{ msgrpo.running('{place}', false); }}", api_visibility="private")
    stopping = f"() => {{ msgrpo.stopping('{place}'); }}"
    stop.click(None, None, None, cancels=[event], js=stopping, api_visibility="private")


def _shown(steps: Iterator[dict[str, Any]], as_html: Callable[[dict[str, Any]], str], asked: Sequence[Any]) -> Iterator[Any]:
    """Scores each time, the replay only the first time: it must not restart while a visitor watches it."""
    for index, found in enumerate(steps):
        yield as_html(found), gr.skip() if index else json.dumps(film(found["film"], asked))


def rules_tab() -> None:
    lead("Change what the agent is told about the game. Does it read the rules, or follow a habit?")
    first, found, beside_it = asked_first(), bundled(), OPENING_PLAYERS
    actions = GAMES[first["game"]].actions
    with gr.Row(elem_classes="asks"):
        game, board = game_input(first["game"], registered=True), board_input(first["seed"])
        player, beside = player_input(beside_it[0]), player_input(beside_it[1], "Beside it", nobody=True)
    with gr.Row(elem_classes="asks"):
        change = gr.Dropdown(list(PRESETS), value=RULES_OPENING[2], label="Prepared changes", min_width=170, scale=2)
    with gr.Row(equal_height=True):
        instructions = gr.Textbox(first["instructions"], label="Instructions", lines=3, max_lines=8, min_width=280)
        rules = gr.Textbox(first["rules"], label="Rules, one per line", lines=3, max_lines=12, min_width=280)
    with gr.Row(elem_classes="asks"):
        renamed = [
            gr.Textbox(new, label=f"{name} is called", min_width=110, max_lines=1)
            for name, new in zip(actions, first["names"], strict=True)
        ]
        expected = gr.Radio(
            [("less", "less"), ("the same", "same")],
            value=first["expected"],
            label="An agent that reads would collect",
            min_width=220,
        )
    with gr.Row(elem_classes="asks"):
        episodes = gr.Slider(1, MOST_STARTS, value=first["episodes"], step=1, label="Starts", min_width=220, scale=3)
        go = gr.Button("Try it", variant="primary", min_width=110, scale=1)
        stop = gr.Button("Stop", elem_classes="stop", min_width=90, scale=1)
    said = trouble("rules")
    verdict = gr.HTML(
        present.bundled(present.judgements(found), "Try it"),
        elem_id="rules-verdict",
        elem_classes="told",
        apply_default_css=False,
    )
    inputs = [game, board, player, beside, instructions, rules, *renamed, expected, episodes]
    asked = [first["game"], first["seed"], *beside_it, first["instructions"], first["rules"]]
    asked += [*first["names"], first["expected"], first["episodes"]]
    stage = replay_player(json.dumps(film(told_film(found), asked)), "rules-stage")

    def fill(game: str, change: str) -> tuple[Any, ...]:
        own = words(game, change)
        return own["instructions"], own["rules"], *own["names"], own["expected"]

    def run(game: str, seed: int, player: str, beside: str, *told: Any) -> Iterator[Any]:
        instructions, rules, *given, expected, episodes = told
        answers: dict[str, dict[str, Any]] = {}
        for name in dict.fromkeys(each for each in (player, beside) if each):
            for index, found in enumerate(change_rules(game, seed, name, instructions, rules, given, expected, episodes)):
                answers[name] = found
                shown = gr.skip() if index else json.dumps(film(told_film(answers), (game, seed, player, beside, *told)))
                yield present.judgements(answers), shown

    gr.on(
        [game.change, change.input],  # a prepared change can be chosen again after an edit
        in_tab(fill, ("Game", "Prepared changes"), len(renamed) + 3),
        [game, change],
        [said, instructions, rules, *renamed, expected],
        trigger_mode="always_last",
        api_visibility="private",
        show_progress="hidden",
    )
    labels = [str(each.label) for each in inputs]
    _run(go, stop, run, labels, inputs, [said, verdict, stage])
    grey_when_changed(inputs, "rules-stage")
    note(
        "Only the words change; the game, its random numbers and its rewards stay. The score counts rewards collected: apples "
        "eaten, or the goal reached. Any new text disturbs a small model. So each start is also played with *The weather is nice "
        "today.* in the place of your words, as often as it takes to be as long. Only what the 95 % interval "
        "of the difference from that shows is a sign of reading or of habit. *Trained on a trap too* has learned "
        "the very words that the page opens with. In others that mean the same it may fail: try some, such as *avoid the goal*."
    )


def leaderboard_tab() -> None:
    rows = leaderboard()
    tasks = [(names.game(task), task) for task in dict.fromkeys(row["task"] for row in rows)]
    with gr.Row(elem_classes="asks"):
        game = gr.Dropdown(
            [("all games", ""), *tasks],
            value="",
            label="Game",
            min_width=230,
            scale=2,
            allow_custom_value=True,
        )
        results = gr.Textbox(
            "", label="Results dataset", placeholder="USER/NAME, or empty for the bundled results", min_width=230, scale=3
        )
        go = gr.Button("Show", variant="primary", min_width=110, scale=1)
    said = trouble("leaderboard")
    shown = gr.HTML(
        leaderboard_page(rows),
        elem_id="leaderboard",
        elem_classes="told",
        js_on_load="msgrpo.mountTable(element);",
        apply_default_css=False,
    )
    gr.on(
        [game.input, go.click, results.submit],
        in_tab(lambda *given: leaderboard_page(leaderboard(*given)), ("Game", "Results dataset"), 1),
        [game, results],
        [said, shown],
        js=f"(game, results) => [({named(tasks)})(game), results]",
        api_visibility="private",
        show_progress="minimal",
    )
    note(
        "Mean reward and success over fixed test episodes, with 95 % intervals. *Normalised*: 0 is what random play is worth, "
        "and 1 what optimal play is worth on average, or what the planner got in a game that is not solved. With luck, a player "
        "on slippery ice gets above 1. *Silent*: the reward of doing nothing. A player with under half of its replies parsed "
        "does not play and has no rank. Every run was replayed; who gave the replies cannot be checked. ▶ opens a "
        "replay of the first board."
    )
