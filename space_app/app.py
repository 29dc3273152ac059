"""The Space: watch, compare and play agents, change their rules, and see the leaderboard. `python app.py` starts it.

Every tab is also an endpoint for programs and a tool for language models; both call the same function. The server keeps nothing
about a visitor: the state of a tab is in the visitor's page.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "100")  # after each request gradio makes a table of so many before it
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "100")

import gradio as gr
import gradio.mcp
import opening
import players
import tabs
import theme
from compare import MOST_EPISODES, compare
from human import play_result, play_step
from leaderboard import leaderboard
from replay import LAKE, watch
from rules import LONGEST_TEXT, MOST_STARTS, PRESETS, change_rules, words
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from msgrpo_hub.games import make_game

TITLE = "Small models that act"

LARGEST_REQUEST = 2**17
"""Bytes of a request's body: two of the longest texts, written as JSON."""

CLOSED = ("upload", "file=http:", "file=https:", "file/", "proxy=", "process_recording", "stream/", "deep_link")
"""Beginnings of paths under /gradio_api/ that are not served: they store a visitor's files or fetch a visitor's URL."""


def options() -> dict[str, Any]:
    """Returns the choices of a request: games, built-in players, prepared changes of the rules, and the limits."""
    return {
        "games": players.GAME_IDS,
        "players": list(players.BUILT_IN),
        "changes": {name: description for name, (description, _) in PRESETS.items()},
        "largest_model_bytes": players.LARGEST,
        "most_episodes": MOST_EPISODES,
        "most_starts": MOST_STARTS,
        "longest_text": LONGEST_TEXT,
        "highest_seed": players.LAST_EPISODE,
    }


ENDPOINTS = (watch, compare, play_step, play_result, words, change_rules, leaderboard, options)
"""What programs can call."""

CALL = re.compile(rf".*/gradio_api/call/(v2/)?({'|'.join(each.__name__ for each in ENDPOINTS)})/?")
"""The path of a call of an endpoint, whose parameters are given by name under `v2`."""

TABS = {
    "Watch": tabs.watch_tab,
    "Compare": tabs.compare_tab,
    "Play": tabs.play_tab,
    "Rules": tabs.rules_tab,
    "Leaderboard": tabs.leaderboard_tab,
}


class JsonTools(gradio.mcp.GradioMCPServer):
    """Gradio's tools with answers in JSON; gradio's own answers are Python's text of a value."""

    def postprocess_output_data(self, data: Sequence[Any], root_url: str) -> list[Any]:  # noqa: ARG002
        return [self.types.TextContent(type="text", text=json.dumps(each, ensure_ascii=False)) for each in data]


def door(app: ASGIApp) -> ASGIApp:
    """Middleware that refuses large requests and closed paths unread, and calls of an endpoint without its parameters."""

    async def refuse_or_pass(scope: Scope, receive: Receive, send: Send) -> None:
        refused = None
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            length = headers.get("content-length", "")
            if scope["path"].partition("/gradio_api/")[2].startswith(CLOSED):
                refused = JSONResponse({"detail": "the Space takes no files and fetches none"}, 403)
            elif scope["method"] == "POST" and (not length.isdecimal() or "transfer-encoding" in headers):  # the latter counts
                refused = JSONResponse({"detail": "expected a request with its length"}, 411)
            elif scope["method"] == "POST" and (len(length) > 9 or int(length) > LARGEST_REQUEST):
                refused = JSONResponse({"detail": f"{length[:20]} bytes: expected at most {LARGEST_REQUEST:,}"}, 413)
            elif scope["method"] == "POST" and (call := CALL.fullmatch(scope["path"])):
                receive, body = await read(receive)
                if wrong := misfit(call[2], body, by_name=bool(call[1])):
                    refused = JSONResponse({"detail": wrong}, 422)
        await (refused or app)(scope, receive, send)

    return refuse_or_pass


async def read(receive: Receive) -> tuple[Receive, bytes]:
    """The body of a request, and what gives its messages once more."""
    messages: list[Message] = []
    while not messages or messages[-1].get("more_body"):
        messages.append(await receive())
    left = iter(messages)

    async def again() -> Message:
        return next(left, None) or await receive()

    return again, b"".join(message.get("body", b"") for message in messages)


def misfit(name: str, body: bytes, *, by_name: bool) -> str:
    """The fault in the parameters of a call, which gradio does not name; empty if there is none, or the body is no call."""
    parameters = inspect.signature({each.__name__: each for each in ENDPOINTS}[name])
    try:
        given = json.loads(body)
        values = given if by_name else given.get("data") if isinstance(given, dict) else None
        if by_name and isinstance(values, dict):
            parameters.bind(**values)
        elif not by_name and isinstance(values, list):
            parameters.bind(*values)
    except ValueError:
        return ""
    except RecursionError:
        return f"{name}: expected JSON that is not nested so deeply"
    except TypeError as error:
        return f"{name}: {error}; expected {', '.join(parameters.parameters) or 'no parameters'}"
    return ""


def build() -> gr.Blocks:
    """The page and its endpoints."""
    page: gr.Blocks
    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        masthead = f"{theme.REPLAY['shapes']}<header><h1>{TITLE}</h1><p>{opening.sentence()}</p></header>"
        gr.HTML(masthead, apply_default_css=False, elem_classes="masthead")
        with gr.Tabs():
            for name, tab in TABS.items():
                with gr.Tab(name):
                    tab()
        for function in ENDPOINTS:
            gr.api(tabs.guarded(function), api_name=function.__name__)  # type: ignore[attr-defined]
        tabs.note(
            "Trained with [multi-step group-relative policy optimisation](https://arxiv.org/abs/2508.10839). Every tab is an "
            "endpoint for programs, under a stable name: `/watch`, `/compare`, `/play_step`, `/change_rules` …"
        )
    # Requests wait in the lines of players.py, so that a bundled replay does not wait behind a model.
    page.queue(default_concurrency_limit=None, max_size=200, api_open=False)
    return page


def main() -> None:
    """Serves the page at GRADIO_SERVER_NAME and GRADIO_SERVER_PORT."""
    gradio.mcp.GradioMCPServer = JsonTools  # type: ignore[misc]
    page, first, run = build(), players.shown_first(), players.own_run()
    if run or first in players.BUILT_IN:  # loaded here, so that no visitor waits for the import of torch
        players.MODELS.threads.submit(players.load, first, make_game(run.game if run else LAKE))
    page.launch(
        theme=theme.theme(),
        head=theme.head(),
        ssr_mode=False,
        mcp_server=True,
        footer_links=["api"],
        max_threads=80,
        state_session_capacity=200,  # pages whose components gradio remembers
        app_kwargs={"middleware": [Middleware(door)]},
    )


if __name__ == "__main__":
    main()
