"""From a player's name to pinned weights: which base and which adapter, at which commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgrpo_hub.downloads.fetching import Listing, base_of, list_files, read_settings
from msgrpo_hub.downloads.hashes import content_hash
from msgrpo_hub.downloads.names import POCKET, named, pocket_path, public_name
from msgrpo_hub.errors import UserError

SHORT = 12
"""Characters of a commit in folder names; the files hold all of it."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """A base model and perhaps an adapter, each with its commit (of a folder: the hash of its content)."""

    base: str
    base_commit: str
    adapter: str = ""
    adapter_commit: str = ""

    @property
    def pinned(self) -> str:
        """A name for `make_player` that loads just these commits."""
        base = _at(self.base, self.base_commit)
        return f"{base}+{_at(self.adapter, self.adapter_commit)}" if self.adapter else base

    @property
    def commits(self) -> str:
        """Both commits, shortened."""
        return self.base_commit[:SHORT] + (f"+{self.adapter_commit[:SHORT]}" if self.adapter else "")

    def identity(self) -> dict[str, str]:
        """As plain data; a folder goes by its last part, since paths differ between machines and may tell names."""
        base = {"base": public_name(self.base), "base_commit": self.base_commit}
        return base | ({"adapter": public_name(self.adapter), "adapter_commit": self.adapter_commit} if self.adapter else {})


def resolve(name: str, largest: int | None = None) -> Sources:
    """The sources of `model`, `adapter` or `base+adapter`, with `@revision` at each.

    Args:
        name: as a player is named.
        largest: the most bytes of weights that either may have, if there is a limit below that of loading.

    Raises:
        UserError: as loading does, and for weights that are no safetensors or larger than the limit.
    """
    (base, revision), (adapter, adapter_revision), *_ = [*named(name), ("", None)]
    base = str(pocket_path()) if base == POCKET else base
    found = _listed(base, revision, largest)
    if not adapter and found.is_adapter:
        settings = read_settings(found)
        named_base = _listed(base_of(settings, base), settings.get("revision"), largest)
        return Sources(base=named_base.source, base_commit=_commit(named_base), adapter=base, adapter_commit=_commit(found))
    if not adapter:
        return Sources(base=base, base_commit=_commit(found))
    added = _listed(adapter, adapter_revision, largest)
    if largest is not None:  # the caller will load it later: what can be refused now is refused now
        read_settings(added)
    return Sources(base=base, base_commit=_commit(found), adapter=adapter, adapter_commit=_commit(added))


def _listed(source: str, revision: str | None, largest: int | None) -> Listing:
    """What a source holds, refused if its weights are not safetensors or too large."""
    found = list_files(source, revision)
    if largest is None:
        return found
    weights = sum(size for name, size in found.sizes.items() if name.endswith(".safetensors"))
    if not weights:
        raise UserError(f"{source!r} has no safetensors: expected weights that cannot run code when they are loaded")
    if weights > largest:
        raise UserError(f"{source!r} has {weights / 1e9:.1f} GB of weights: expected at most {largest / 1e9:.0f} GB here")
    return found


def commit_of(source: str, revision: str | None) -> str:
    """The commit that a revision of a repository names now; without a network, the one in the cache; of a folder its hash."""
    return _commit(list_files(source, revision))


def _commit(found: Listing) -> str:
    return found.commit or content_hash(Path(found.source))


def _at(source: str, commit: str) -> str:
    return source if Path(source).is_dir() else f"{source}@{commit}"
