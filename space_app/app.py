"""The Space: watch, compare and play agents, change their rules, and see the leaderboard. `python app.py` starts it.

Every tab is also an endpoint for programs (see README.md); both call the same function. The server keeps nothing about a
visitor: what a tab shows lives in the visitor's page.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "100")  # after each request gradio makes a table of so many before it
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "100")

import gradio as gr
import lines
import players
import present
import theme
import validation
from compare import MOST_EPISODES, compare
from components import answer, endpoint, game_input, lead, note, player_input, replay_player, seed_input, show_user_errors
from door import Door
from human import play_result, play_step
from leaderboard import leaderboard, table
from rules import LONGEST_TEXT, MOST_STARTS, OPENING, PRESETS, asked_first, bundled, change_rules, words
from starlette.middleware import Middleware
from unread import Unread
from watch import FIRST, watch

from msgrpo_hub.games import GAMES

TITLE = "Small models that act"

MOST_WAITING = 200
"""Requests that gradio keeps waiting while it works on `lines.MOST_THREADS` others."""

MOST_SESSIONS = 200
"""Pages whose components gradio remembers, about a hundred kilobytes each. Nothing is lost with one: the page has it all."""


def watch_tab() -> None:
    with gr.Row(elem_classes="asks"):
        game, seed, player = game_input(validation.game_ids(), FIRST[0]), seed_input(), player_input(players.shown_first())
        go = gr.Button("Watch", variant="primary", min_width=110, scale=1)
    stage = replay_player(json.dumps(watch(*FIRST)), "watch-stage")
    gr.on(
        [go.click, seed.submit],
        show_user_errors(lambda *given: json.dumps(watch(*given))),
        [game, seed, player],
        stage,
        api_visibility="private",
        show_progress="minimal",
    )
    note(
        "**Player**: choose a built-in player, or type the name of a model or an adapter on the Hub, `USER/NAME` or "
        f"`BASE+ADAPTER`. It needs safetensors of at most {players.LARGEST / 1e9:.0f} GB and a chat template. The Space loads "
        "one model at a time, so you may have to wait. `pocket` is the built-in base model with 0.8 million parameters; "
        "`lake-adapter` and `snake-adapter` were trained on it in minutes. **On the board**: the arrow is the chosen move, rings "
        "are optimal moves, dots are legal moves. *Regret* is the expected reward that a move gives away; it is known if the "
        "game is solved."
    )
    endpoint(watch)


def compare_tab() -> None:
    lead("Two players on the same boards: where do they first differ, and which is better?")
    with gr.Row(elem_classes="asks"):
        game, seed = game_input(validation.game_ids(), FIRST[0]), seed_input()
        a, b = player_input("pocket", "Player A"), player_input(players.shown_first(), "Player B")
    with gr.Row(elem_classes="asks"):
        episodes = gr.Slider(1, MOST_EPISODES, value=50, step=1, label="Episodes", min_width=220, scale=3)
        go = gr.Button("Compare", variant="primary", min_width=110, scale=1)
        stop = gr.Button("Stop", min_width=90, scale=1)
    scores = gr.HTML(elem_id="compare-scores", elem_classes="told", apply_default_css=False)
    stage = replay_player(None, "compare-stage")

    def run(*given: Any) -> Iterator[Any]:
        yield from _shown(compare(*given), present.comparison)

    event = gr.on(
        [go.click],
        show_user_errors(run),
        [game, seed, a, b, episodes],
        [scores, stage],
        api_visibility="private",
        show_progress="minimal",
    )
    stop.click(None, None, None, cancels=[event], api_visibility="private")
    note(
        "Both players get the same boards and the same random numbers. Brackets are 95 % intervals; a mean reward has none under "
        "30 episodes. **Stop** keeps the episodes played so far. Stop because you have seen enough, not because you like the "
        "result."
    )
    endpoint(compare)


def _shown(steps: Iterator[dict[str, Any]], as_html: Callable[[dict[str, Any]], str]) -> Iterator[Any]:
    """Scores each time, the replay only the first time: it must not restart while a visitor watches it."""
    for index, found in enumerate(steps):
        yield as_html(found), gr.skip() if index else json.dumps(found["film"])


def play_tab() -> None:
    lead("Play the same boards as the agents.")
    with gr.Row(elem_classes="asks"):
        game, seed, player = (
            game_input(validation.game_ids(), FIRST[0]),
            seed_input(),
            player_input(players.shown_first(), "Against"),
        )
        go = gr.Button("New game", variant="primary", min_width=130, scale=1)

    def begin(game: str, seed: int, player: str) -> str:
        players.check_player(player, validation.game(game))
        return json.dumps(play_step(game, seed, []) | {"player": player})

    def step(asked: dict[str, Any]) -> dict[str, Any]:
        return answer(play_step, asked)

    def result(asked: dict[str, Any]) -> dict[str, Any]:
        return answer(play_result, asked)

    board = gr.HTML(
        begin(*FIRST),
        elem_id="play-board",
        html_template='<div class="stage"></div>',
        js_on_load="msgrpo.mountGame(element, props, server, watch);",
        apply_default_css=False,
        server_functions=[step, result],
    )
    gr.on(
        [go.click, seed.submit],
        show_user_errors(begin),
        [game, seed, player],
        board,
        api_visibility="private",
        show_progress="hidden",
    )
    note("Use the arrow keys or the buttons. Then the agent and the best player that knows the game play the same board.")
    endpoint(play_step)
    endpoint(play_result)


def rules_tab() -> None:
    lead("Change what the agent is told about the game. Does it read the rules, or follow a habit?")
    first, opening = asked_first(), bundled()
    names = GAMES[first["game"]].actions
    with gr.Row(elem_classes="asks"):
        game, seed, player = game_input(list(GAMES), first["game"]), seed_input(first["seed"]), player_input(first["player"])
        change = gr.Dropdown(list(PRESETS), value=OPENING[3], label="Prepared changes", min_width=170, scale=2)
    with gr.Row(equal_height=True):
        instructions = gr.Textbox(first["instructions"], label="Instructions", lines=3, max_lines=8, min_width=280)
        rules = gr.Textbox(first["rules"], label="Rules, one per line", lines=3, max_lines=12, min_width=280)
    with gr.Row(elem_classes="asks"):
        renamed = [
            gr.Textbox(new, label=f"{name} is called", min_width=110, max_lines=1)
            for name, new in zip(names, first["names"], strict=True)
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
        stop = gr.Button("Stop", min_width=90, scale=1)
    verdict = gr.HTML(present.bundled(opening), elem_id="rules-verdict", elem_classes="told", apply_default_css=False)
    stage = replay_player(json.dumps(opening["film"]), "rules-stage")

    def fill(game: str, change: str) -> list[Any]:
        found = words(game, change)
        return [found["instructions"], found["rules"], *found["names"], found["expected"]]

    def run(game: str, seed: int, player: str, instructions: str, rules: str, *rest: Any) -> Iterator[Any]:
        *given, expected, episodes = rest
        played = change_rules(game, seed, player, instructions, rules, given, expected, episodes)
        yield from _shown(played, present.judgement)

    gr.on(
        [game.change, change.change],
        show_user_errors(fill),
        [game, change],
        [instructions, rules, *renamed, expected],
        api_visibility="private",
        show_progress="hidden",
    )
    event = go.click(
        show_user_errors(run),
        [game, seed, player, instructions, rules, *renamed, expected, episodes],
        [verdict, stage],
        api_visibility="private",
        show_progress="minimal",
    )
    stop.click(None, None, None, cancels=[event], api_visibility="private")
    note(
        "Only the words change; the game, its random numbers and its rewards stay. The score counts rewards collected: apples "
        "eaten, or the goal reached. Any new text disturbs a small model. So each start is also played with *The weather is nice "
        "today.* in the place of your words, as often as it takes to be as long. Only a difference from that, beyond its 95 % "
        "interval, is a sign of reading or of habit."
    )
    endpoint(words)
    endpoint(change_rules)


def leaderboard_tab() -> None:
    rows = leaderboard()
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    with gr.Row(elem_classes="asks"):
        game = gr.Dropdown([("all games", ""), *tasks], value="", label="Game", min_width=230, scale=2, allow_custom_value=True)
        results = gr.Textbox(
            "", label="Results dataset", placeholder="USER/NAME, or empty for the bundled results", min_width=230, scale=3
        )
        go = gr.Button("Show", variant="primary", min_width=110, scale=1)
    shown = gr.HTML(
        table(rows), elem_id="leaderboard", elem_classes="told", js_on_load="msgrpo.mountTable(element);", apply_default_css=False
    )
    gr.on(
        [game.input, go.click, results.submit],
        show_user_errors(lambda *given: table(leaderboard(*given))),
        [game, results],
        shown,
        api_visibility="private",
        show_progress="minimal",
    )
    note(
        "Mean reward and success over fixed test episodes, with 95 % intervals. *Normalised*: 0 is random play, 1 the best known "
        "play. *Silent*: the reward of doing nothing. A player with under half of its replies parsed does not play and has no "
        "rank. Every run was replayed; who gave the replies cannot be checked. Click a heading to sort. The bundled results are "
        "from before boards had splits, and are to be made anew."
    )
    endpoint(leaderboard)


def options() -> dict[str, Any]:
    """Returns what a request may contain: games, built-in players, prepared changes of the rules, and the limits."""
    return {
        "games": validation.game_ids(),
        "players": list(players.BUILT_IN),
        "changes": {name: description for name, (description, _) in PRESETS.items()},
        "largest_model_bytes": players.LARGEST,
        "most_episodes": MOST_EPISODES,
        "most_starts": MOST_STARTS,
        "longest_text": LONGEST_TEXT,
        "highest_seed": validation.LAST_EPISODE,
    }


TABS = {
    "Watch": watch_tab,
    "Compare": compare_tab,
    "Play": play_tab,
    "Rules": rules_tab,
    "Leaderboard": leaderboard_tab,
}


def build() -> gr.Blocks:
    """The page and its endpoints."""
    page: gr.Blocks
    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        gr.HTML(theme.masthead(TITLE), apply_default_css=False, elem_classes="masthead")
        with gr.Tabs():
            for name, tab in TABS.items():
                with gr.Tab(name):
                    tab()
        endpoint(options)
        note("Every tab is an endpoint for programs, under a stable name: `/watch`, `/compare`, `/play_step`, `/change_rules` …")
    # Requests wait in the lines of lines.py, not in the queue, where a bundled replay would wait behind a model.
    page.queue(default_concurrency_limit=None, max_size=MOST_WAITING, api_open=False)
    page._queue.pending_messages_per_session = Unread(page._queue)
    return page


def main() -> None:
    """Serves the page at GRADIO_SERVER_NAME and GRADIO_SERVER_PORT."""
    build().launch(
        theme=theme.theme(),
        head=theme.head(),
        ssr_mode=False,
        footer_links=["api"],
        max_threads=lines.MOST_THREADS,
        state_session_capacity=MOST_SESSIONS,
        app_kwargs={"middleware": [Middleware(Door)]},
    )


if __name__ == "__main__":
    main()
