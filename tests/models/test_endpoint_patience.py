"""Waiting for a server that asks for a pause, fails or hangs."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.models import endpoint
from tests.models.endpoint_players import SNAKE, ask_once, first_prompts, model, player
from tests.models.openai_server import (
    Body,
    Fault,
    OpenAIServer,
    always,
    at_first,
    hang,
    send,
)


@pytest.mark.parametrize("header", ["1", "1.0", lambda: formatdate(time.time() + 2, usegmt=True)])
def test_a_retry_waits_as_long_as_the_server_asks(header: Any) -> None:
    """The date has whole seconds and lies between one and two seconds ahead."""
    value = header if isinstance(header, str) else header()
    with OpenAIServer(model(), at_first(send(429, b"", {"Retry-After": value}))) as server:
        assert ask_once(player(server)).error == ""
    first, second = (asked.at for asked in server.asked)
    assert second - first > 0.9


@pytest.mark.parametrize(
    ("header", "attempts"),
    [("3600", "1 attempt (the server asked to wait 3600 s)"), ("inf", "1 attempt (the server asked to wait inf s)")],
)
def test_a_wait_beyond_the_patience_does_not_start(header: str, attempts: str) -> None:
    began = time.monotonic()
    with OpenAIServer(model(), always(send(503, b"", {"Retry-After": header}))) as server:
        assert ask_once(player(server)).error == f"HTTP 503 after {attempts}"
    assert time.monotonic() - began < 30


def test_a_wait_of_an_hour_is_told_at_once_and_once(caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    with OpenAIServer(model(), always(send(429, b"quota spent", {"Retry-After": "3600"}))) as server:
        completions = player(server).complete(*first_prompts(SNAKE, 20))
    assert {completion.error for completion in completions} == {
        "HTTP 429 after 1 attempt (the server asked to wait 3600 s): quota spent"
    }
    assert caplog.messages == [
        f"endpoint:{server.url}#m: HTTP 429 (quota spent): the server asks to wait 3600 s, and a reply may take 600 s; "
        "episodes that need it now stop unscored"
    ]
    assert time.monotonic() - began < 30


def test_a_long_wait_is_told_before_it_is_slept(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LONG_PAUSE", 0.5)  # seconds, so that one second is long
    seen = []

    def fault(body: Body, before: int) -> Fault | None:  # noqa: ARG001
        seen.append(list(caplog.messages))
        return None if before else send(503, b"starting", {"Retry-After": "1"})

    with OpenAIServer(model(), fault) as server:
        assert ask_once(player(server)).error == ""
    told = f"endpoint:{server.url}#m: HTTP 503 (starting): next attempt in 1 s, as the server asks"
    assert seen == [[], [told]]
    assert caplog.messages == [told]


@pytest.mark.parametrize("header", ["soon", "-5", "nan", ""])
def test_a_malformed_wait_is_ignored(header: str) -> None:
    with OpenAIServer(model(), at_first(send(503, b"", {"Retry-After": header}))) as server:
        assert ask_once(player(server)).error == ""


def test_pauses_double() -> None:
    with OpenAIServer(model(), always(send(500))) as server:
        ask_once(player(server, backoff=0.04, attempts=5))
    pauses = np.diff([asked.at for asked in server.asked])
    assert len(pauses) == 4
    assert all(0.02 * 2**k <= pause < 0.04 * 2**k + 5 for k, pause in enumerate(pauses))


@pytest.mark.parametrize("fault", [send(500), hang(60)], ids=["fails", "hangs"])
def test_patience_bounds_all_attempts_together(fault: Fault) -> None:
    began = time.monotonic()
    with OpenAIServer(model(), always(fault)) as server:
        completion = ask_once(player(server, attempts=10**6, patience=0.4, timeout=60.0))
    assert completion.error
    assert time.monotonic() - began < 30
