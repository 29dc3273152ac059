"""From a player's name to pinned weights: which base and which adapter, at which commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError, HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]

from msgrpo_hub.agent.language_model import POCKET, base_of, pocket_path, read_adapter_config, split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.hashes import content_hash
from msgrpo_hub.evaluation.players import split_adapter

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
    if not adapter and (config := read_adapter_config(base, revision)):
        adapter, adapter_revision = base, revision
        base, revision = base_of(config, adapter), config.get("revision")
    return Sources(
        base=base,
        base_commit=commit_of(base, revision),
        adapter=adapter,
        adapter_commit=commit_of(adapter, adapter_revision) if adapter else "",
    )


def named(name: str) -> list[tuple[str, str | None]]:
    """The one or two sources in a player's name, base first, each with the revision that it asks for."""
    base, adapter = split_adapter(name)
    return [split_revision(source, None) for source in ((base, adapter) if adapter else (base,))]


def commit_of(source: str, revision: str | None) -> str:
    """The commit that a revision of a repository names now; without a network, the one in the cache.

    A cached file is returned by the Hub's client even when the server refuses it, so the commit is asked for first.
    """
    if Path(source).is_dir():
        return content_hash(Path(source))
    try:
        return str(HfApi().model_info(source, revision=revision).sha)
    except HFValidationError as error:
        raise UserError(f"no model in the folder {source!r}: expected a folder with a model, or a Hub id") from error
    except (HTTPError, OfflineModeIsEnabled, OSError):  # HTTPError is also what httpx raises where there is no network
        for file in ("adapter_config.json", "config.json"):
            cached = try_to_load_from_cache(source, file, revision=revision)
            if isinstance(cached, str):
                return Path(cached).parent.name
        return revision or "main"  # loading will say what is wrong


def _at(source: str, commit: str) -> str:
    return source if Path(source).is_dir() else f"{source}@{commit}"


def public_name(source: str) -> str:
    """A name for others to read: of a folder its last part, and the built-in base by the name that it has everywhere."""
    path = Path(source)
    if source == POCKET or (path.is_dir() and path.resolve() == pocket_path().resolve()):
        return POCKET
    return f"folder:{path.resolve().name}" if path.is_dir() else source
