"""From a player's name to pinned weights: which base and which adapter, at which commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from msgrpo_hub.agent.language_model import POCKET, base_of, pocket_path, read_adapter_config, split_revision
from msgrpo_hub.evaluation.hashes import content_hash

SHORT = 12
"""Characters of a commit in folder names; the files hold all of it."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """A base model and perhaps an adapter, each with its commit (of a folder: the hash of its content)."""

    base: str
    base_commit: str
    adapter: str = ""
    adapter_commit: str = ""
    shown: str = ""
    """The name that results go by: the adapter's where it was named alone."""

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
        base = POCKET if Path(self.base) == pocket_path() else _public(self.base)
        named = {"base": base, "base_commit": self.base_commit}
        return named | ({"adapter": _public(self.adapter), "adapter_commit": self.adapter_commit} if self.adapter else {})


def resolve(name: str) -> Sources:
    """The sources of `model`, `adapter` or `base+adapter`, with `@revision` at each. Raises `UserError` as loading does."""
    first, _, second = (name, "", "") if Path(name).exists() else name.partition("+")
    base, revision = split_revision(first, None)
    base = str(pocket_path()) if base == POCKET else base
    adapter, adapter_revision = split_revision(second, None) if second else ("", None)
    shown = name
    if not adapter and (config := read_adapter_config(base, revision)):
        adapter, adapter_revision = base, revision
        base, revision = base_of(config, adapter), config.get("revision")
        shown = adapter
    return Sources(
        base=base,
        base_commit=commit_of(base, revision),
        adapter=adapter,
        adapter_commit=commit_of(adapter, adapter_revision) if adapter else "",
        shown=shown.partition("@")[0] if not Path(shown).exists() else shown,
    )


def commit_of(source: str, revision: str | None) -> str:
    """The commit that a revision of a repository names now; without a network, the one in the cache.

    A cached file is returned by the Hub's client even when the server refuses it, so the commit is asked for first.
    """
    if Path(source).is_dir():
        return content_hash(Path(source))
    try:
        return str(HfApi().model_info(source, revision=revision).sha)
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError):
        for file in ("adapter_config.json", "config.json"):
            cached = try_to_load_from_cache(source, file, revision=revision)
            if isinstance(cached, str):
                return Path(cached).parent.name
        return revision or "main"  # loading will say what is wrong


def _at(source: str, commit: str) -> str:
    return source if Path(source).is_dir() else f"{source}@{commit}"


def _public(source: str) -> str:
    return f"folder:{Path(source).name}" if Path(source).is_dir() else source
