"""What the Hub answers when it does not do what was asked, in a person's words: for loading, for pushing, for all."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from huggingface_hub import get_token
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is that of httpx2 or of httpx
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from msgrpo_hub.errors import UserError

AGAIN = "run the same command again, it goes on where it stopped"
LONGEST_WAIT = 300
"""Seconds: the window of the Hub's rate limits."""
WAITS = 3
"""How often a rate limit is waited for."""

log = logging.getLogger(__name__)
T = TypeVar("T")


@contextmanager
def hub_errors(repo_id: str) -> Iterator[None]:
    """Turns errors of the Hub's client into `UserError`s: what was refused, and what to do."""
    try:
        yield
    except HfHubHTTPError as error:
        raise UserError(_answer(repo_id, error)) from error
    except OfflineModeIsEnabled as error:
        raise UserError(f"{repo_id!r} cannot be reached while HF_HUB_OFFLINE is set: unset it") from error
    except HTTPError as error:
        raise UserError(f"the Hub cannot be reached ({first_line(error)}): check the network, then {AGAIN}") from error
    except EntryNotFoundError as error:  # not in the cache, and no network; or the Hub's answer is its cause
        if isinstance(error.__cause__, HfHubHTTPError):
            raise UserError(_answer(repo_id, error.__cause__)) from error
        raise UserError(f"a file of {repo_id!r} is not in the cache and the Hub cannot be reached: check the network") from error
    except ValueError as error:
        if "Invalid metadata in README.md" not in str(error):
            raise
        raise UserError(f"the Hub refuses the card of {repo_id!r} ({' '.join(str(error).split())[:300]}): mend it") from error


def retry_rate_limit(ask: Callable[[], T]) -> T:
    """Asks the Hub, and asks again, up to `WAITS` times, after a rate limit has passed: says so and waits."""
    for _ in range(WAITS):
        try:
            return ask()
        except (HfHubHTTPError, EntryNotFoundError) as error:
            answer = error if isinstance(error, HfHubHTTPError) else error.__cause__
            if not (isinstance(answer, HfHubHTTPError) and answer.response.status_code == 429):
                raise
            seconds = seconds_to_wait(answer)
            log.warning("the Hub limits how often it may be asked: waiting %d s", seconds)
            time.sleep(seconds)
    return ask()


def seconds_to_wait(error: HfHubHTTPError) -> int:
    """How long a rate limit asks to wait, and a second more."""
    headers = error.response.headers
    told = re.search(r"\bt=(\d+)", headers.get("RateLimit", "")) or re.fullmatch(r"(\d+)", headers.get("Retry-After", ""))
    return min(int(told[1]) if told else 30, LONGEST_WAIT) + 1


def first_line(error: object) -> str:
    """What an error says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _answer(repo_id: str, error: HfHubHTTPError) -> str:
    status, said = error.response.status_code, first_line(error.server_message or error)
    if isinstance(error, GatedRepoError):
        return f"{repo_id!r} is gated: ask for access on its page, log in with `hf auth login`, then {AGAIN}"
    if isinstance(error, RevisionNotFoundError):
        return f"{repo_id!r} has no such branch or commit ({said}): expected the name of a branch"
    if status == 401 and not get_token():
        return f"{repo_id!r} is missing or private, and no token was found: check the name, run `hf auth login`, or set HF_TOKEN"
    if status == 401 and not isinstance(error, RepositoryNotFoundError):
        return "the Hub does not accept the token (HTTP 401): run `hf auth login` with a new one"
    if isinstance(error, RepositoryNotFoundError):
        return f"there is no {repo_id!r}, or the token may not see it: check the name and the token"
    if status == 402:
        return f"the Hub asks for a paid plan for {repo_id!r} ({said}): expected a plan that covers it"
    if status == 403:
        act = "read" if error.response.request.method in ("GET", "HEAD") else "write to"
        return f"the token may not {act} {repo_id!r} ({said}): take a token that may, or a repository of your own"
    if status in (409, 412):
        return f"others keep changing {repo_id!r} (HTTP {status}): {AGAIN}"
    if status == 429:
        return f"the Hub limits how often it may be asked: wait {seconds_to_wait(error)} s, then {AGAIN}"
    if status >= 500:
        return f"the Hub has a fault of its own (HTTP {status}, {said}): {AGAIN}"
    return f"the Hub refuses this for {repo_id!r} (HTTP {status}): {said}"
