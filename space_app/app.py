"""The Space: watch, compare and play agents, change their rules, and see the leaderboard. `python app.py` starts it.

Every tab is also an endpoint of the same name for programs (see README.md); both call the same function. Nothing of a
visitor is kept on the server: what a tab shows lives in the visitor's page.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import checks
import gradio as gr
import look
import players
import present
import rules as retold
from boxes import Function, endpoint, film, game_box, in_words, lead, note, player_box, seed_box
from compare import MOST, compare
from human import play_result, play_step
from leaderboard import leaderboard, table
from watch import FIRST, watch

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES

TITLE = "Small models that act"


def watch_tab() -> None:
    with gr.Row(elem_classes="asks"):
        game, seed, player = game_box(checks.game_ids(), FIRST[0]), seed_box(), player_box(players.shown_first())
        go = gr.Button("Watch", variant="primary", min_width=110, scale=1)
    stage = film(json.dumps(watch(*FIRST)), "watch-stage")
    gr.on(
        [go.click, seed.submit],
        in_words(lambda *given: json.dumps(watch(*given))),
        [game, seed, player],
        stage,
        api_visibility="private",
        show_progress="minimal",
    )
    note(
        "**Player**: choose a built-in one, or type a model of the Hub, `USER/NAME`, an adapter, or `BASE+ADAPTER`. It must have "
        f"safetensors of at most {players.LARGEST / 1e9:.0f} GB and a chat template; models are loaded one at a time, so you may "
        "have to wait. `pocket` is the built-in base of 0.8 million parameters; `lake-adapter` and `snake-adapter` were trained "
        "on it in minutes. **On the board**: an arrow is its move, rings are optimal moves, dots are legal ones. *Regret* is the "
        "reward that its moves gave away, where the game is solved."
    )
    endpoint(watch)


def compare_tab() -> None:
    lead("Two players on the same boards: where do they part, and who is better?")
    with gr.Row(elem_classes="asks"):
        game, seed = game_box(checks.game_ids(), FIRST[0]), seed_box()
        a, b = player_box("pocket", "Player A"), player_box(players.shown_first(), "Player B")
    with gr.Row(elem_classes="asks"):
        episodes = gr.Slider(1, MOST, value=50, step=1, label="Episodes", min_width=220, scale=3)
        go = gr.Button("Compare", variant="primary", min_width=110, scale=1)
        stop = gr.Button("Stop", min_width=90, scale=1)
    scores = gr.HTML(elem_id="compare-scores", elem_classes="told", apply_default_css=False)
    stage = film(None, "compare-stage")

    def run(*given: Any) -> Iterator[Any]:
        yield from _shown(compare(*given), present.comparison)

    event = gr.on(
        [go.click],
        in_words(run),
        [game, seed, a, b, episodes],
        [scores, stage],
        api_visibility="private",
        show_progress="minimal",
    )
    stop.click(None, None, None, cancels=[event], api_visibility="private")
    note(
        "Both play the same boards with the same chance. Brackets are 95 % intervals: for mean rewards there is none under 30 "
        "episodes. **Stop** keeps what was played; stop because you have seen enough, not because you like the figures."
    )
    endpoint(compare)


def _shown(steps: Iterator[dict[str, Any]], told: Callable[[dict[str, Any]], str]) -> Iterator[Any]:
    """Figures each time, the film only the first time: it must not begin again under a reader's eyes."""
    for index, found in enumerate(steps):
        yield told(found), gr.skip() if index else json.dumps(found["film"])


def play_tab() -> None:
    lead("Play it yourself, on the very boards that the agents play.")
    with gr.Row(elem_classes="asks"):
        game, seed, player = game_box(checks.game_ids(), FIRST[0]), seed_box(), player_box(players.shown_first(), "Against")
        go = gr.Button("New game", variant="primary", min_width=130, scale=1)

    def begin(game: str, seed: int, player: str) -> str:
        players.check_player(player, checks.game(game))
        return json.dumps(play_step(game, seed, []) | {"player": player})

    def step(asked: dict[str, Any]) -> dict[str, Any]:
        return _plainly(play_step, asked)

    def result(asked: dict[str, Any]) -> dict[str, Any]:
        return _plainly(play_result, asked)

    board = gr.HTML(
        begin(*FIRST),
        elem_id="play-board",
        html_template='<div class="stage"></div>',
        js_on_load="msgrpo.playing(element, props, server, watch);",
        apply_default_css=False,
        server_functions=[step, result],
    )
    gr.on([go.click, seed.submit], in_words(begin), [game, seed, player], board, api_visibility="private", show_progress="hidden")
    note("Arrow keys or buttons. The agent and the best player that knows the game then play the very same board.")
    endpoint(play_step)
    endpoint(play_result)


def _plainly(asked: Function, given: Any) -> dict[str, Any]:
    """An answer to the page's own script, which shows `error` to the visitor."""
    try:
        inspect.signature(asked).bind(**given)
    except TypeError:
        return {"error": "expected the names and values that the page sends"}
    try:
        found: dict[str, Any] = asked(**given)
    except UserError as error:
        return {"error": str(error)}
    return found


def rules_tab() -> None:
    lead("Change the rules: tell the agent something else about the same game. Does it follow the words, or its habit?")
    names = GAMES["Snake-Solo-v1"].actions
    first = retold.words("Snake-Solo-v1", "poisoned")
    with gr.Row(elem_classes="asks"):
        game, seed, player = game_box(list(GAMES), "Snake-Solo-v1"), seed_box(0), player_box("snake-adapter")
        change = gr.Dropdown(list(retold.PRESETS), value="poisoned", label="Ready changes", min_width=170, scale=2)
    with gr.Row(equal_height=True):
        instructions = gr.Textbox(first["instructions"], label="Instructions", lines=3, max_lines=8, min_width=280)
        rules = gr.Textbox(first["rules"], label="Rules, one a line", lines=3, max_lines=12, min_width=280)
    with gr.Row(elem_classes="asks"):
        renamed = [
            gr.Textbox(new, label=f"{name} is called", min_width=110, max_lines=1)
            for name, new in zip(names, first["names"], strict=True)
        ]
        expected = gr.Radio(
            [("less of it", "less"), ("the same", "same")],
            value=first["expected"],
            label="A reader of these words would do",
            min_width=220,
        )
    with gr.Row(elem_classes="asks"):
        episodes = gr.Slider(1, retold.MOST, value=40, step=1, label="Starts", min_width=220, scale=3)
        go = gr.Button("Try it", variant="primary", min_width=110, scale=1)
        stop = gr.Button("Stop", min_width=90, scale=1)
    verdict = gr.HTML(elem_id="rules-verdict", elem_classes="told", apply_default_css=False)
    stage = film(None, "rules-stage")

    def fill(game: str, change: str) -> list[Any]:
        found = retold.words(game, change)
        return [found["instructions"], found["rules"], *found["names"], found["expected"]]

    def run(game: str, seed: int, player: str, instructions: str, rules: str, *rest: Any) -> Iterator[Any]:
        *given, expected, episodes = rest
        told = retold.change_rules(game, seed, player, instructions, rules, given, expected, episodes)
        yield from _shown(told, present.judgement)

    gr.on(
        [game.change, change.change],
        in_words(fill),
        [game, change],
        [instructions, rules, *renamed, expected],
        api_visibility="private",
        show_progress="hidden",
    )
    event = go.click(
        in_words(run),
        [game, seed, player, instructions, rules, *renamed, expected, episodes],
        [verdict, stage],
        api_visibility="private",
        show_progress="minimal",
    )
    stop.click(None, None, None, cancels=[event], api_visibility="private")
    note(
        "Only the words change; the game, its chance and what it pays stay. Counted is what the game pays for: apples eaten, the "
        "goal reached. A small model may also be disturbed by any text that it has never seen: try *other words*, which mean "
        "the same, before you believe that it reads."
    )
    endpoint(retold.words)
    endpoint(retold.change_rules)


def leaderboard_tab() -> None:
    rows = leaderboard()
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    with gr.Row(elem_classes="asks"):
        game = gr.Dropdown([("all games", ""), *tasks], value="", label="Game", min_width=230, scale=2, allow_custom_value=True)
        results = gr.Textbox(
            "", label="Results dataset", placeholder="USER/NAME; empty: the bundled results", min_width=230, scale=3
        )
        go = gr.Button("Show", variant="primary", min_width=110, scale=1)
    shown = gr.HTML(
        table(rows), elem_id="leaderboard", elem_classes="told", js_on_load="msgrpo.sortable(element);", apply_default_css=False
    )
    gr.on(
        [game.input, go.click, results.submit],
        in_words(lambda *given: table(leaderboard(*given))),
        [game, results],
        shown,
        api_visibility="private",
        show_progress="minimal",
    )
    note(
        "Mean reward and success over fixed test episodes, with 95 % intervals. *Normalised*: 0 is random play, 1 is the best "
        "that is known. A click on a heading sorts."
    )
    endpoint(leaderboard)


def options() -> dict[str, Any]:
    """What can be asked for: games, built-in players, ready changes of rules, and the limits."""
    return {
        "games": checks.game_ids(),
        "players": list(players.BUILT_IN),
        "changes": {name: told for name, (told, _) in retold.PRESETS.items()},
        "largest_model_bytes": players.LARGEST,
        "most_episodes": MOST,
        "most_starts": retold.MOST,
        "longest_text": retold.LONGEST,
        "highest_seed": checks.HIGHEST,
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
        gr.HTML(look.all_shapes() + look.masthead(TITLE), apply_default_css=False, elem_classes="masthead")
        with gr.Tabs():
            for name, tab in TABS.items():
                with gr.Tab(name):
                    tab()
        endpoint(options)
        note(
            "For programs every tab is an endpoint, with a name that stays: `/watch`, `/compare`, `/play_step`, `/change_rules` …"
        )
    page.queue(default_concurrency_limit=4, max_size=64)
    return page


def main() -> None:
    """Serves the page; GRADIO_SERVER_NAME and GRADIO_SERVER_PORT say where."""
    build().launch(theme=look.theme(), head=look.head(), ssr_mode=False, footer_links=["api"], max_file_size="1mb")


if __name__ == "__main__":
    main()
