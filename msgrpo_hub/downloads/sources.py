"""Resolves a player's name to pinned weights: base, adapter and their commits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgrpo_hub.downloads.fetching import base_errors, base_of, read_settings
from msgrpo_hub.downloads.hashes import content_hash
from msgrpo_hub.downloads.listing import Listing, list_files
from msgrpo_hub.downloads.names import is_folder, located, named, public_name
from msgrpo_hub.errors import UserError

SHORT = 12
"""Characters of a commit in folder names; the files hold the full commit."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """A base model and an optional adapter, each with its commit (for a folder: its content hash)."""

    base: str
    base_commit: str
    adapter: str = ""
    adapter_commit: str = ""

    @property
    def pinned(self) -> str:
        """A name for `make_player` that loads exactly these commits."""
        base = _at(self.base, self.base_commit)
        return f"{base}+{_at(self.adapter, self.adapter_commit)}" if self.adapter else base

    @property
    def commits(self) -> str:
        """Both commits, shortened."""
        return self.base_commit[:SHORT] + (f"+{self.adapter_commit[:SHORT]}" if self.adapter else "")

    def identity(self) -> dict[str, str]:
        """The sources as plain data. A folder is named by its last part, because its path may hold private names."""
        base = {"base": public_name(self.base), "base_commit": self.base_commit}
        return base | ({"adapter": public_name(self.adapter), "adapter_commit": self.adapter_commit} if self.adapter else {})


def resolve(name: str, largest: int | None = None) -> Sources:
    """The sources of `model`, `adapter` or `base+adapter`, each with an optional `@revision`.

    Args:
        name: the name of a player.
        largest: largest size of the weights of each source, in bytes, if the limit is below that of loading.

    Raises:
        UserError: as loading does; also if the weights are not safetensors or exceed the limit.
    """
    (base, revision), (adapter, adapter_revision), *_ = [*named(name), ("", None)]
    base, adapter = located(base), located(adapter)
    listing = _listed(base, revision, largest)
    if not adapter and listing.is_adapter:
        settings = read_settings(listing)
        with base_errors(base):
            named_base = _listed(base_of(settings, base), settings.get("revision"), largest)
        return Sources(base=named_base.source, base_commit=_commit(named_base), adapter=base, adapter_commit=_commit(listing))
    if not adapter:
        return Sources(base=base, base_commit=_commit(listing))
    adapter_listing = _listed(adapter, adapter_revision, largest)
    if largest is not None:  # the caller loads the adapter later: refuse its settings now
        read_settings(adapter_listing)
    return Sources(base=base, base_commit=_commit(listing), adapter=adapter, adapter_commit=_commit(adapter_listing))


def _listed(source: str, revision: str | None, largest: int | None) -> Listing:
    """The listing of a source. Raises `UserError` if its weights are not safetensors or exceed the limit."""
    listing = list_files(source, revision)
    if largest is None:
        return listing
    weights = sum(size for name, size in listing.sizes.items() if name.endswith(".safetensors"))
    if not weights:
        raise UserError(f"{source!r} has no safetensors: expected weights that cannot run code when loaded")
    if weights > largest:
        raise UserError(f"{source!r} has {weights / 1e9:.1f} GB of weights: expected at most {largest / 1e9:.0f} GB here")
    return listing


def commit_of(source: str, revision: str | None) -> str:
    """The current commit of a revision; without a network, the commit in the cache; for a folder, its content hash."""
    return _commit(list_files(source, revision))


def _commit(listing: Listing) -> str:
    return listing.commit or content_hash(Path(listing.source))


def _at(source: str, commit: str) -> str:
    return source if is_folder(source) else f"{source}@{commit}"
