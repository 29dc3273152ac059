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

_SUBFOLDER = re.compile(r"(?!.*\.\.)([A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*)?", re.ASCII)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of a source, before any download."""

    source: str
    """The name of a repository, `USER/REPO/folder` for an adapter in one of its folders, or the path of a folder."""
    commit: str
    """The commit of a repository; empty for a folder."""
    sizes: Mapping[str, int]
    """Sizes of the files in this folder, in bytes."""
    original: str = ""
    """The repository that the card of this one names as its base: of a quantised copy, the original."""
    folder: Path | None = None
    """The local folder of the files, if they need no download: a folder, or the cache while the Hub cannot be reached."""

    @property
    def is_adapter(self) -> bool:
        return ADAPTER_SETTINGS in self.sizes

    @property
    def repository(self) -> str:
        """The repository of the files, unless they are in a folder."""
        return split_subfolder(self.source)[0]

    def path(self, name: str) -> str:
        """The path of a file in the repository."""
        return f"{split_subfolder(self.source)[1]}/{name}".lstrip("/")


def list_files(source: str, revision: str | None = None) -> Listing:
    """Lists commit and files of a source. The Hub comes before the cache, because its client would return a cached file anyway.

    Args:
        source: the name of a repository, a folder, or `USER/REPO/folder`, which must hold an adapter.
        revision: a branch, tag or commit of a repository; None is main.

    Raises:
        UserError: the source cannot be found.
    """
    if is_folder(source):
        folder = Path(source)
        return Listing(source=source, commit="", sizes=_sizes(folder), folder=folder)
    repo, subfolder = split_subfolder(source)
    if source.lower().endswith(".gguf"):
        raise gguf_error(source)
    if not is_repository(repo) or not _SUBFOLDER.fullmatch(subfolder) or source.endswith("/") or exists(source):
        raise no_folder(source, "not a folder")
    if revision is not None and not is_revision(revision):
        raise UserError(f"{source!r} has no revision {revision!r}: expected the name of a branch, a tag or a commit")
    with hub_errors(source):
        try:
            info = retry_rate_limit(partial(HfApi().model_info, repo, revision=revision, files_metadata=True))
        except HfHubHTTPError:
            raise
        except HFValidationError as error:
            raise no_folder(source, first_line(error)) from error
        except (HTTPError, OfflineModeIsEnabled) as error:  # raised by the client without a network
            return _in_cache(source, revision, error)
    paths = {file.rfilename.rpartition("/"): file.size or 0 for file in info.siblings or []}
    sizes = {name: size for (folder, _, name), size in paths.items() if folder == subfolder}
    named = getattr(info.card_data, "base_model", None)
    original = named[0] if isinstance(named, list) and named else named
    original = original if isinstance(original, str) and is_repository(original) else ""
    listing = Listing(source=source, commit=str(info.sha), sizes=sizes, original=original)
    if subfolder and not listing.is_adapter:
        raise UserError(f"no adapter in the folder {subfolder!r} of {repo!r}: expected {ADAPTER_SETTINGS} there")
    _cache_revision(listing, revision)
    return listing


def cached_commit(source: str, revision: str | None = None) -> str:
    """The commit that the cache holds for a revision of a repository; empty if the cache holds none."""
    folder = _cached(source, revision)
    return folder.name if folder else ""


def split_subfolder(source: str) -> tuple[str, str]:
    """The repository and the folder in it, which is empty for the top.

    >>> split_subfolder("ada/lake"), split_subfolder("ada/lake/checkpoints/step-20")
    (('ada/lake', ''), ('ada/lake', 'checkpoints/step-20'))
    """
    parts = source.split("/")
    return "/".join(parts[:2]), "/".join(parts[2:])


def is_repository(name: str) -> bool:
    """Whether a name can be that of a repository."""
    return bool(_REPOSITORY.fullmatch(name))


def gguf_error(source: str, original: str = "") -> UserError:
    """The error for a model in llama.cpp's format."""
    such_as = f", such as {original!r}" if original else ""
    return UserError(f"{source!r} holds GGUF files, which cannot be trained on: use the original model in safetensors{such_as}")


def no_folder(source: str, why: str) -> UserError:
    """The error for a folder without a model."""
    hint = adapter_inside(source)
    return UserError(f"no model in the folder {source!r}: expected config.json, tokenizer and weights there ({why}){hint}")


def _cache_revision(found: Listing, revision: str | None) -> None:
    """Records the commit of a branch or tag in the cache, for later offline use. The client records it with a file."""
    name = ADAPTER_SETTINGS if found.is_adapter else CONFIG
    if revision != found.commit and found.sizes.get(name, LARGEST_SETTINGS) < LARGEST_SETTINGS:
        with hub_errors(found.source):
            retry_rate_limit(partial(hf_hub_download, found.repository, found.path(name), revision=revision))


def _in_cache(source: str, revision: str | None, error: Exception) -> Listing:
    """The listing of an earlier download, if the Hub cannot be reached."""
    folder = _cached(source, revision)
    if not folder:
        at = f" at revision {revision!r}" if revision else ""
        raise UserError(
            f"cannot load {source!r}{at}: expected 'pocket', a folder, or a Hub id that can be reached or is cached "
            f"({first_line(error)})"
        ) from error
    top = [folder, *folder.parents][source.count("/", len(split_subfolder(source)[0]))]
    log.warning("the Hub cannot be reached: using %s from the cache, at commit %s", source, top.name)
    return Listing(source=source, commit=top.name, sizes=_sizes(folder), folder=folder)


def _cached(source: str, revision: str | None) -> Path | None:
    repo, subfolder = split_subfolder(source)
    names = [f"{subfolder}/{ADAPTER_SETTINGS}"] if subfolder else [ADAPTER_SETTINGS, CONFIG]
    paths = (try_to_load_from_cache(repo, name, revision=revision) for name in names)
    return next((Path(path).parent for path in paths if isinstance(path, str)), None)


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
