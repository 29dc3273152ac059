"""Errors of the Hub as readable messages, for loading and pushing."""

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
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from msgrpo_hub.errors import UserError

AGAIN = "run the same command again; it resumes where it stopped"
LONGEST_WAIT = 300
"""Longest wait for a rate limit, in seconds: the window of the Hub's rate limits."""
WAITS = 3
"""Number of waits for a rate limit."""

log = logging.getLogger(__name__)
T = TypeVar("T")


@contextmanager
def hub_errors(repo_id: str) -> Iterator[None]:
    """Turns errors of the Hub's client into a `UserError` that says what was refused and what to do."""
    try:
        yield
    except HfHubHTTPError as error:
        raise UserError(_answer(repo_id, error)) from error
    except OfflineModeIsEnabled as error:
        raise UserError(f"{repo_id!r} cannot be reached while HF_HUB_OFFLINE is set: unset it") from error
    except HTTPError as error:
        raise UserError(f"the Hub cannot be reached ({first_line(error)}): check the network, then {AGAIN}") from error
    except EntryNotFoundError as error:  # not cached and no network, or caused by a response of the Hub
        if isinstance(error.__cause__, HfHubHTTPError):
            raise UserError(_answer(repo_id, error.__cause__)) from error
        if isinstance(error.__cause__, FileMetadataError):  # as of a mirror that redirects elsewhere; the client says what to do
            raise UserError(f"{repo_id!r} cannot be loaded: {first_line(error.__cause__)}") from error
        raise UserError(f"a file of {repo_id!r} is not in the cache and the Hub cannot be reached: check the network") from error
    except (ConnectionError, RuntimeError) as error:  # of the clients for large files; the cause is what the Hub answered
        if isinstance(error, RuntimeError) and "Error while uploading" not in str(error):
            raise
        why = first_line(error.__cause__ or error)
        raise UserError(f"a transfer with {repo_id!r} failed ({why}): check the network, then {AGAIN}") from error
    except OSError as error:
        if "Consistency check failed" not in str(error):  # the client's words for a file of another size than announced
            raise
        raise UserError(f"a file of {repo_id!r} arrived incomplete: check the network, then {AGAIN}") from error
    except ValueError as error:
        if "Invalid metadata in README.md" not in str(error):
            raise
        raise UserError(
            f"the Hub refuses the card of {repo_id!r} ({' '.join(str(error).split())[:300]}): correct its metadata"
        ) from error


def retry_rate_limit(ask: Callable[[], T]) -> T:
    """Calls the Hub. After a rate limit, logs a warning, waits and retries, up to `WAITS` times."""
    for _ in range(WAITS):
        try:
            return ask()
        except (HfHubHTTPError, EntryNotFoundError) as error:
            cause = error if isinstance(error, HfHubHTTPError) else error.__cause__
            if not (isinstance(cause, HfHubHTTPError) and cause.response.status_code == 429):
                raise
            seconds = seconds_to_wait(cause)
            log.warning("the Hub's rate limit is reached: waiting %d s", seconds)
            time.sleep(seconds)
    return ask()


def seconds_to_wait(error: HfHubHTTPError) -> int:
    """Seconds to wait for a rate limit, as the Hub asks, plus one."""
    headers = error.response.headers
    seconds = re.search(r"\bt=(\d+)", headers.get("RateLimit", "")) or re.fullmatch(r"(\d+)", headers.get("Retry-After", ""))
    return min(int(seconds[1]) if seconds else 30, LONGEST_WAIT) + 1


def first_line(error: object) -> str:
    """The first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _answer(repo_id: str, error: HfHubHTTPError) -> str:
    status, message = error.response.status_code, first_line(error.server_message or error)
    if isinstance(error, GatedRepoError):
        return f"{repo_id!r} is gated: request access on its page, log in with `hf auth login`, then {AGAIN}"
    if isinstance(error, RevisionNotFoundError):
        return f"{repo_id!r} has no such branch or commit ({message}): expected the name of a branch"
    if status == 401 and not get_token():
        return f"{repo_id!r} is missing or private, and no token was found: check the name, run `hf auth login`, or set HF_TOKEN"
    if status == 401 and not isinstance(error, RepositoryNotFoundError):
        return "the Hub does not accept the token (HTTP 401): run `hf auth login` with a new one"
    if isinstance(error, RepositoryNotFoundError):
        return f"{repo_id!r} does not exist, or the token has no access: check the name and the token"
    if status == 402:
        return f"the Hub requires a paid plan for {repo_id!r} ({message}): expected a plan that covers it"
    if status == 403:
        act = "read" if error.response.request.method in ("GET", "HEAD") else "write to"
        return f"the token may not {act} {repo_id!r} ({message}): use a token with that permission, or your own repository"
    if status in (409, 412):
        return f"concurrent changes to {repo_id!r} (HTTP {status}): {AGAIN}"
    if status == 429:
        return f"the Hub's rate limit is reached: wait {seconds_to_wait(error)} s, then {AGAIN}"
    if status >= 500:
        return f"the Hub returned a server error (HTTP {status}, {message}): {AGAIN}"
    return f"the Hub refuses the request for {repo_id!r} (HTTP {status}): {message}"
