"""The Space: watch, compare and play agents, change their rules, and see the leaderboard. `python app.py` starts it.

Every tab is also an endpoint for programs (see README.md); both call the same function. The server keeps nothing about a
visitor: what a tab shows lives in the visitor's page.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "100")  # after each request gradio makes a table of so many before it
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "100")

import gradio as gr
import lines
import opening
import players
import theme
import tools
import validation
from compare import MOST_EPISODES, compare
from components import endpoint, note
from door import Door
from human import play_result, play_step
from leaderboard import leaderboard
from rules import LONGEST_TEXT, MOST_STARTS, PRESETS, change_rules, words
from starlette.middleware import Middleware
from tabs import compare_tab, leaderboard_tab, rules_tab
from tabs_to_play import play_tab, watch_tab
from unread import Unread
from watch import watch

TITLE = "Small models that act"

MOST_WAITING = 200
"""Requests that gradio keeps waiting while it works on `lines.MOST_THREADS` others."""

MOST_SESSIONS = 200
"""Pages whose components gradio remembers, about a hundred kilobytes each. Nothing is lost with one: the page has it all."""


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


ENDPOINTS = (watch, compare, play_step, play_result, words, change_rules, leaderboard, options)
"""What programs can call."""

TABS = {
    "Watch": watch_tab,
    "Compare": compare_tab,
    "Play": play_tab,
    "Rules": rules_tab,
    "Leaderboard": leaderboard_tab,
}


class Page(gr.Blocks):
    """A page that has a picture where a link to it is shared: gradio's template reads it from the configuration."""

    def get_config_file(self) -> Any:
        return {**super().get_config_file(), "thumbnail": theme.share_address()}


def build() -> gr.Blocks:
    """The page and its endpoints."""
    page: gr.Blocks
    with Page(title=TITLE, analytics_enabled=False) as page:
        gr.HTML(theme.masthead(TITLE, opening.sentence()), apply_default_css=False, elem_classes="masthead")
        with gr.Tabs():
            for name, tab in TABS.items():
                with gr.Tab(name):
                    tab()
        for function in ENDPOINTS:
            endpoint(function)
        note(
            "Trained with [multi-step group-relative policy optimisation](https://arxiv.org/abs/2508.10839). Every tab is an "
            "endpoint for programs, under a stable name: `/watch`, `/compare`, `/play_step`, `/change_rules` …"
        )
    # Requests wait in the lines of lines.py, not in the queue, where a bundled replay would wait behind a model.
    page.queue(default_concurrency_limit=None, max_size=MOST_WAITING, api_open=False)
    page._queue.pending_messages_per_session = Unread(page._queue)
    return page


def main() -> None:
    """Serves the page at GRADIO_SERVER_NAME and GRADIO_SERVER_PORT."""
    page = build()
    players.warm_up()
    served = tools.mounted(TITLE, ENDPOINTS)
    served["routes"].append(theme.share_route())
    page.launch(
        theme=theme.theme(),
        head=theme.head(),
        ssr_mode=False,
        footer_links=["api"],
        max_threads=lines.MOST_THREADS,
        state_session_capacity=MOST_SESSIONS,
        app_kwargs={
            "middleware": [Middleware(Door, endpoints={each.__name__: each for each in ENDPOINTS})],
            **served,
        },
    )


if __name__ == "__main__":
    main()
