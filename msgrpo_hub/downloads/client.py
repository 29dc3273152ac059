"""Requests to the Hub: pinned downloads, and the client's errors as one line that says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import get_token, snapshot_download
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is httpx's, re-exported
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RevisionNotFoundError,
)

from msgrpo_hub.errors import UserError

AGAIN = "run the same command again; it resumes where it stopped"


@contextmanager
def hub_errors(repo_id: str, again: str = AGAIN) -> Iterator[None]:
    """Turns errors of the Hub's client into a `UserError` with the reason and the remedy, which ends in `again`."""
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise UserError(f"{repo_id!r} cannot be reached while HF_HUB_OFFLINE is set: unset it") from error
    except (HfHubHTTPError, EntryNotFoundError) as error:
        answer = error if isinstance(error, HfHubHTTPError) else error.__cause__
        if isinstance(answer, HfHubHTTPError):
            raise UserError(_refusal(repo_id, answer, again)) from error
        why = first_line(answer or error)  # the file is not cached and the Hub did not answer
        raise UserError(f"a file of {repo_id!r} cannot be loaded ({why}): check the network, then {again}") from error
    except HTTPError as error:
        raise UserError(f"the Hub cannot be reached ({first_line(error)}): check the network, then {again}") from error
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ValueError) and "Invalid metadata in README.md" in str(error):
            why = " ".join(str(error).split())[:300]
            raise UserError(f"the Hub refuses the card of {repo_id!r} ({why}): correct its metadata") from error
        if not isinstance(error, ConnectionError) and not re.search("Consistency check failed|Error while uploading", str(error)):
            raise
        why = first_line(error.__cause__ or error)
        raise UserError(f"a transfer with {repo_id!r} failed ({why}): check the network, then {again}") from error


def _refusal(repo_id: str, error: HfHubHTTPError, again: str) -> str:
    """The message for an HTTP error status."""
    status, why = error.response.status_code, first_line(error.server_message or error)
    if isinstance(error, GatedRepoError):
        return f"{repo_id!r} is gated: request access on its page, log in with `hf auth login`, then {again}"
    if isinstance(error, RevisionNotFoundError):
        return f"{repo_id!r} has no such branch or commit ({why}): expected the name of a branch"
    if status == 401 and not get_token():
        return f"{repo_id!r} is missing or private, and no token was found: check the name, run `hf auth login`, or set HF_TOKEN"
    first = f"another change came first: {again}"
    remedies = {
        401: "the token is not accepted: run `hf auth login` with a new one",
        402: "a paid plan is required: expected one, or `msgrpo push … --dry-run FOLDER` to run the files elsewhere",
        403: "the token may not do this: use a token with that permission, or your own repository",
        404: "it does not exist, or the token has no access: check the name and the token",
        409: first,
        412: first,
        429: f"the rate limit is reached: wait five minutes, then {again}",
    }
    remedy = remedies.get(status, f"the Hub has a problem: {again}" if status >= 500 else "the Hub refuses the request")
    return f"{repo_id!r}, HTTP {status} ({why}): {remedy}"


def first_line(error: object) -> str:
    """The first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def snapshot(repo_id: str, commit: str, sizes: Mapping[str, int], *, kind: str = "model", token: str | None = None) -> Path:
    """Downloads files (path → size in bytes) of a repository at one commit, and returns the cache folder with them.

    Raises `UserError` if the Hub refuses, or a file is missing or has another size, which the client does not check.
    """
    with hub_errors(repo_id):
        folder = Path(snapshot_download(repo_id, repo_type=kind, revision=commit, allow_patterns=[*sizes], token=token))
    for name, size in sizes.items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != size:
            raise UserError(f"{name!r} of {repo_id!r} arrived incomplete: check the network, then {AGAIN}")
    return folder
