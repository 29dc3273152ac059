"""From a player's name to pinned weights: which base and which adapter, at which commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgrpo_hub.downloads.fetching import Listing, base_of, list_files, read_settings
from msgrpo_hub.downloads.hashes import content_hash
from msgrpo_hub.downloads.names import POCKET, named, pocket_path, public_name

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


def resolve(name: str) -> Sources:
    """The sources of `model`, `adapter` or `base+adapter`, with `@revision` at each. Raises `UserError` as loading does."""
    (base, revision), (adapter, adapter_revision), *_ = [*named(name), ("", None)]
    base = str(pocket_path()) if base == POCKET else base
    found = list_files(base, revision)
    if not adapter and found.is_adapter:
        settings = read_settings(found)
        named_base = list_files(base_of(settings, base), settings.get("revision"))
        return Sources(base=named_base.source, base_commit=_commit(named_base), adapter=base, adapter_commit=_commit(found))
    adapter_commit = _commit(list_files(adapter, adapter_revision)) if adapter else ""
    return Sources(base=base, base_commit=_commit(found), adapter=adapter, adapter_commit=adapter_commit)


def commit_of(source: str, revision: str | None) -> str:
    """The commit that a revision of a repository names now; without a network, the one in the cache; of a folder its hash."""
    return _commit(list_files(source, revision))


def _commit(found: Listing) -> str:
    return found.commit or content_hash(Path(found.source))


def _at(source: str, commit: str) -> str:
    return source if Path(source).is_dir() else f"{source}@{commit}"
