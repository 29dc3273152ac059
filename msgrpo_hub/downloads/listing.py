"""The files of a source, with their sizes, at one commit: from the Hub, from its cache while it is out of reach, or a folder."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]

from msgrpo_hub.downloads.hub_errors import first_line, hub_errors, retry_rate_limit
from msgrpo_hub.downloads.inspection import is_revision
from msgrpo_hub.downloads.names import adapter_inside, exists, is_folder
from msgrpo_hub.errors import UserError

LARGEST_SETTINGS = 1_000_000
"""Largest size of a file of settings, in bytes."""

ADAPTER_SETTINGS, CONFIG = "adapter_config.json", "config.json"
"""The files that make a source an adapter or a base."""

_REPOSITORY = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of a source, before any download."""

    source: str
    """The name of a repository, or the path of a folder."""
    commit: str
    """The commit of a repository; empty for a folder."""
    sizes: Mapping[str, int]
    """Sizes of the top-level files, in bytes."""
    folder: Path | None = None
    """The local folder of the files, if they need no download: a folder, or the cache while the Hub cannot be reached."""

    @property
    def is_adapter(self) -> bool:
        return ADAPTER_SETTINGS in self.sizes


def list_files(source: str, revision: str | None = None) -> Listing:
    """Lists commit and files of a source. The Hub comes before the cache, because its client would return a cached file anyway.

    Args:
        source: the name of a repository, or a folder.
        revision: a branch, tag or commit of a repository; None is main.

    Raises:
        UserError: the source cannot be found.
    """
    if is_folder(source):
        folder = Path(source)
        return Listing(source=source, commit="", sizes=_sizes(folder), folder=folder)
    if not is_repository(source) or exists(source):
        raise no_folder(source, "not a folder")
    if revision is not None and not is_revision(revision):
        raise UserError(f"{source!r} has no revision {revision!r}: expected the name of a branch, a tag or a commit")
    with hub_errors(source):
        try:
            info = retry_rate_limit(partial(HfApi().model_info, source, revision=revision, files_metadata=True))
        except HfHubHTTPError:
            raise
        except HFValidationError as error:
            raise no_folder(source, first_line(error)) from error
        except (HTTPError, OfflineModeIsEnabled) as error:  # raised by the client without a network
            return _in_cache(source, revision, error)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or [] if "/" not in file.rfilename}
    listing = Listing(source=source, commit=str(info.sha), sizes=sizes)
    _cache_revision(listing, revision)
    return listing


def cached_commit(source: str, revision: str | None = None) -> str:
    """The commit that the cache holds for a revision of a repository; empty if the cache holds none."""
    folder = _cached(source, revision)
    return folder.name if folder else ""


def is_repository(name: str) -> bool:
    """Whether a name can be that of a repository."""
    return bool(_REPOSITORY.fullmatch(name))


def no_folder(source: str, why: str) -> UserError:
    """The error for a folder without a model."""
    hint = adapter_inside(source)
    return UserError(f"no model in the folder {source!r}: expected config.json, tokenizer and weights there ({why}){hint}")


def _cache_revision(found: Listing, revision: str | None) -> None:
    """Records the commit of a branch or tag in the cache, for later offline use. The client records it with a file."""
    name = ADAPTER_SETTINGS if found.is_adapter else CONFIG
    if revision != found.commit and found.sizes.get(name, LARGEST_SETTINGS) < LARGEST_SETTINGS:
        with hub_errors(found.source):
            retry_rate_limit(partial(hf_hub_download, found.source, name, revision=revision))


def _in_cache(source: str, revision: str | None, error: Exception) -> Listing:
    """The listing of an earlier download, if the Hub cannot be reached."""
    folder = _cached(source, revision)
    if not folder:
        at = f" at revision {revision!r}" if revision else ""
        raise UserError(
            f"cannot load {source!r}{at}: expected 'pocket', a folder, or a Hub id that can be reached or is cached "
            f"({first_line(error)})"
        ) from error
    log.warning("the Hub cannot be reached: using %s from the cache, at commit %s", source, folder.name)
    return Listing(source=source, commit=folder.name, sizes=_sizes(folder), folder=folder)


def _cached(source: str, revision: str | None) -> Path | None:
    paths = (try_to_load_from_cache(source, name, revision=revision) for name in (ADAPTER_SETTINGS, CONFIG))
    return next((Path(path).parent for path in paths if isinstance(path, str)), None)


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
