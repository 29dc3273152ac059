"""The only gate for models: every base or adapter, from the Hub or a folder, is checked before any library loads it.

A source is listed first, at one commit. Its settings are downloaded and checked next, and its weights last; no other file
is downloaded. A folder may hold foreign files, so it passes the same checks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
)
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from msgrpo_hub.downloads.client import first_line, hub_errors, snapshot
from msgrpo_hub.downloads.inspection import (
    PLAY_SETTINGS,
    Scalar,
    check_adapter,
    check_config,
    check_play_settings,
    check_tokenizer,
    is_revision,
    parse,
    read_header,
    weight_files,
)
from msgrpo_hub.downloads.names import (
    PUBLIC_POCKET,
    content_hash,
    exists,
    is_folder,
    located,
    no_model,
    pocket_path,
    public_name,
    split_adapter,
    split_revision,
)
from msgrpo_hub.errors import UserError

LARGEST_BASE, LARGEST_ADAPTER = 160_000_000_000, 4_000_000_000
"""Largest total size of a base's and of an adapter's weights, in bytes. 160 GB are 80 billion parameters in bfloat16."""

ADAPTER_SETTINGS, CONFIG = "adapter_config.json", "config.json"
"""The files that make a source an adapter or a base."""
ADAPTER_WEIGHTS, WEIGHTS, INDEX = "adapter_model.safetensors", "model.safetensors", "model.safetensors.index.json"
TOKENIZER, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
"""Vocabulary files; every tokenizer has at least one of them."""
TOKENIZER_FILES = (TOKENIZER, *VOCABULARIES, "merges.txt", "added_tokens.json", "special_tokens_map.json")

_LIMITS = {PLAY_SETTINGS: 10_000, **dict.fromkeys((*TOKENIZER_FILES, INDEX), 64_000_000), "special_tokens_map.json": 1_000_000}
_FOLDER = re.compile(r"(?!.*\.\.)([A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*)?", re.ASCII)
_LARGEST_SETTINGS = 1_000_000  # bytes of any other file
_CHECKS = {ADAPTER_SETTINGS: check_adapter, TOKENIZER: check_tokenizer, PLAY_SETTINGS: check_play_settings}
_GGUF = "{!r} holds GGUF files, which cannot be trained on: use the original model in safetensors{}"

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of a source, before any download."""

    source: str
    """The name of a repository, `USER/REPO/FOLDER` for an adapter in a folder of one, or the path of a local folder."""
    commit: str
    """The commit of a repository; empty for a local folder."""
    sizes: Mapping[str, int]
    """Name → size in bytes, for the files in this folder."""
    original: str = ""
    """The repository that the card names as the base model: of a quantised copy, the original."""
    folder: Path | None = None
    """The local folder if no download is needed: a folder, or the cache while the Hub cannot be reached."""

    @property
    def is_adapter(self) -> bool:
        return ADAPTER_SETTINGS in self.sizes

    @property
    def content(self) -> str:
        """The commit, or the content hash of a local folder."""
        return self.commit or content_hash(Path(self.source))

    def weights(self) -> list[str]:
        """The names of the files with the weights of a base. Raises `UserError` if they are missing or too large."""
        sharded = WEIGHTS not in self.sizes and INDEX in self.sizes
        names = weight_files(self.read(INDEX), self.source) if sharded else [WEIGHTS]
        self.check_size(names, LARGEST_BASE)
        return names

    def check_size(self, names: Collection[str], limit: int = 0) -> None:
        """Raises `UserError` for a missing file, or if the files together exceed a limit; 0 means the usual limit of each."""
        for name in names:
            if name not in self.sizes:
                raise self._missing(name)
            size = sum(self.sizes.get(other, 0) for other in names) if limit else self.sizes[name]
            if size > (most := limit or _LIMITS.get(name, _LARGEST_SETTINGS)):
                files = ", ".join([*names][:2]) if limit else name
                raise UserError(f"{self.source!r} is not loaded: {files} would be {size:,} bytes; expected at most {most:,}")

    def _missing(self, name: str) -> UserError:
        """The error for a required file that the source lacks."""
        pickled = sorted(other for other in self.sizes if re.fullmatch(r"(pytorch_|adapter_)?model.*\.(bin|pt|pth|ckpt)", other))
        if any(other.lower().endswith(".gguf") for other in self.sizes):
            return UserError(_GGUF.format(self.source, f", such as {self.original!r}" if self.original else ""))
        if pickled and name.endswith(".safetensors"):
            return UserError(
                f"{self.source!r} has {pickled[0]}, which can run code when loaded, and no {name}: expected safetensors; if you "
                "trust its author, load it with transformers and save it with `save_pretrained`"
            )
        if self.folder and not self.commit:
            return no_model(self.source, f"no {name}")
        where = f"the cache has no complete copy of {self.source!r}" if self.folder else f"{self.source!r} holds no model"
        return UserError(f"{where}: expected config.json, tokenizer and weights, or a LoRA adapter (no {name})")

    def download(self, names: Iterable[str]) -> Path:
        """The folder of these files, complete and at one commit. A link may lead into the folder or the Hub's cache only."""
        if self.folder:
            own = self.folder.resolve()
            allowed = (own, *(above.parent / "blobs" for above in own.parents if above.name == "snapshots"))
            for name in names:
                if not any((own / name).resolve().is_relative_to(place) for place in allowed):
                    raise UserError(f"{name} in {self.source!r} is a link that leads elsewhere: expected a file of the folder")
            return self.folder
        repo, inside = split_folder(self.source)
        return snapshot(repo, self.commit, {f"{inside}/{name}".lstrip("/"): self.sizes[name] for name in names}) / inside

    def read(self, name: str) -> dict[str, Any]:
        """The JSON object in a file, downloaded if its size is allowed. Raises `UserError` for settings that are not inert."""
        self.check_size([name])
        settings = parse((self.download([name]) / name).read_bytes(), name, self.source)
        if check := _CHECKS.get(name):
            check(settings, self.source)
        return settings


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A base or an adapter on this machine, checked."""

    source: str
    commit: str
    folder: Path
    adapter: Mapping[str, Any] | None = None
    """The settings of a LoRA adapter; None for a base."""
    prompt_format: str | None = None
    """The name of the prompt format stored with an adapter, like the variables of its chat template."""
    chat_template_kwargs: dict[str, Scalar] = field(default_factory=dict)


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
        pairs = ((self.base, self.base_commit), (self.adapter, self.adapter_commit))
        return "+".join(name if is_folder(name) else f"{name}@{commit}" for name, commit in pairs if name)

    def identity(self) -> dict[str, str]:
        """The sources as plain data. A folder has its last part as name, because its path may hold private names."""
        identity = {"base": public_name(self.base), "base_commit": self.base_commit}
        if self.adapter:
            identity |= {"adapter": public_name(self.adapter), "adapter_commit": self.adapter_commit}
        return identity


# ---- listing


def list_files(source: str, revision: str | None = None) -> Listing:
    """Lists commit and files of a repository, of `USER/REPO/FOLDER` (which must hold an adapter), or of a local folder.

    The Hub comes before the cache: its client returns cached files without access. Raises `UserError` if there is no source.
    """
    if is_folder(source):
        sizes = {path.name: path.stat().st_size for path in Path(source).iterdir() if path.is_file()}
        return Listing(source=source, commit="", sizes=sizes, folder=Path(source))
    if source.lower().endswith(".gguf"):
        raise UserError(_GGUF.format(source, ""))
    repo, inside = split_folder(source)
    if not _is_repository(repo) or not _FOLDER.fullmatch(inside) or source.endswith("/") or exists(source):
        raise no_model(source, "not a folder")
    if revision is not None and not is_revision(revision):
        raise UserError(f"{source!r} has no revision {revision!r}: expected the name of a branch, a tag or a commit")
    with hub_errors(source):
        try:
            info = HfApi().model_info(repo, revision=revision, files_metadata=True)
        except HfHubHTTPError:
            raise
        except (HTTPError, OfflineModeIsEnabled) as error:
            return _in_cache(source, revision, error)
        paths = {file.rfilename.rpartition("/"): file.size or 0 for file in info.siblings or []}
        sizes = {name: size for (folder, _, name), size in paths.items() if folder == inside}
        if inside and ADAPTER_SETTINGS not in sizes:
            raise UserError(f"no adapter in the folder {inside!r} of {repo!r}: expected {ADAPTER_SETTINGS} there")
        settings = ADAPTER_SETTINGS if ADAPTER_SETTINGS in sizes else CONFIG
        if revision != info.sha and sizes.get(settings, _LARGEST_SETTINGS) < _LARGEST_SETTINGS:
            path = f"{inside}/{settings}".lstrip("/")
            hf_hub_download(repo, path, revision=revision)  # records the branch's commit in the cache, for offline use
    bases = getattr(info.card_data, "base_model", None)
    original = bases[0] if isinstance(bases, list) and bases else bases
    original = original if isinstance(original, str) and _is_repository(original) else ""
    return Listing(source=source, commit=str(info.sha), sizes=sizes, original=original)


def _in_cache(source: str, revision: str | None, error: Exception) -> Listing:
    """The listing of an earlier download."""
    repo, inside = split_folder(source)
    names = (f"{inside}/{name}".lstrip("/") for name in (ADAPTER_SETTINGS, CONFIG))
    paths = [try_to_load_from_cache(repo, name, revision=revision) for name in names]
    folder = next((Path(path).parent for path in paths if isinstance(path, str)), None)
    if folder is None:
        at = f" at revision {revision!r}" if revision else ""
        given = f"cannot load {source!r}{at}: expected 'pocket', a folder, or a Hub id that can be reached or is cached "
        raise UserError(f"{given}({first_line(error)})") from error
    commit = [folder, *folder.parents][source.count("/", len(repo))].name
    log.warning("the Hub cannot be reached: using %s from the cache, at commit %s", source, commit)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    return Listing(source=source, commit=commit, sizes=sizes, folder=folder)


def split_folder(source: str) -> tuple[str, str]:
    """The repository and the folder in it, which is empty for the top.

    >>> split_folder("ada/lake"), split_folder("ada/lake/checkpoints/step-20")
    (('ada/lake', ''), ('ada/lake', 'checkpoints/step-20'))
    """
    parts = source.split("/")
    return "/".join(parts[:2]), "/".join(parts[2:])


def _is_repository(name: str) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def resolve(name: str, largest: int | None = None) -> Sources:
    """Resolves `model`, `adapter` or `base+adapter`, each with an optional `@revision`, to commits.

    With a limit, in bytes, the weights of each source must be safetensors of at most this size, and the settings inert.
    """
    parts = (split_revision(source, None) for source in split_adapter(name))
    (base, revision), (adapter, adapter_revision) = ((located(source), at) for source, at in parts)
    found, own = list_files(base, revision), list_files(adapter, adapter_revision) if adapter else None
    if not own and found.is_adapter:
        own, settings = found, found.read(ADAPTER_SETTINGS)
        with base_errors(base):
            found = list_files(base_of(settings, base), settings.get("revision"))
    for listing in (own, found):
        if largest is None or listing is None:
            continue
        if listing.is_adapter:  # the caller loads it later: refuse its settings now
            listing.read(ADAPTER_SETTINGS)
        size = sum(size for file, size in listing.sizes.items() if file.endswith(".safetensors"))
        if not size:
            raise UserError(f"{listing.source!r} has no safetensors: expected weights that cannot run code when loaded")
        if size > largest:
            most = f"{largest / 1e9:.0f} GB here"
            raise UserError(f"{listing.source!r} has {size / 1e9:.1f} GB of weights: expected at most {most}")
    adapted = {"adapter": own.source, "adapter_commit": own.content} if own else {}
    return Sources(base=found.source, base_commit=found.content, **adapted)


def base_bytes(name: str, dtype: str = "auto") -> int:
    """The memory of a base's weights in a number type, from its files and configuration. Errors are as for `resolve`."""
    sources = resolve(name)
    listing = list_files(sources.base, None if is_folder(sources.base) else sources.base_commit)
    stored = sum(listing.sizes[file] for file in listing.weights())
    config = listing.read(CONFIG)
    kind = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    size = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
    return stored if dtype == "auto" else stored * size[dtype] // size.get(kind, 4)


# ---- fetching


def fetch(found: Listing, *, weights: bool = True) -> Fetched:
    """Downloads a base or an adapter, all files at one commit, or all but the weights.

    Raises `UserError` for a missing, large or malformed file.
    """
    settings, play = None, dict[str, Any]()
    if found.is_adapter:
        settings, names = found.read(ADAPTER_SETTINGS), [ADAPTER_WEIGHTS]
        found.check_size(names, LARGEST_ADAPTER)
        others = [ADAPTER_SETTINGS, *prompting_files(found.sizes)]
        if PLAY_SETTINGS in others:
            play = found.read(PLAY_SETTINGS)
    else:
        config, names = found.read(CONFIG), found.weights()
        check_config(config, found.source, sum(found.sizes[name] for name in names), found.original)
        others = [name for name in (CONFIG, "generation_config.json", TEMPLATE, *TOKENIZER_FILES, INDEX) if name in found.sizes]
    found.check_size(others)
    if TOKENIZER in others:
        found.read(TOKENIZER)  # refuses paths outside the model
    folder = found.download([*others, *(names if weights else ())])
    for name in names if weights else ():
        read_header(folder / name, found.source, kinds=("F32", "F16", "BF16") if found.is_adapter else ())
    return Fetched(
        source=found.source,
        commit=found.commit,
        folder=folder,
        adapter=settings,
        prompt_format=play.get("prompt_format"),
        chat_template_kwargs=play.get("chat_template_kwargs", {}),
    )


def base_of(settings: Mapping[str, Any], adapter: str) -> str:
    """The base that an adapter names. Raises `UserError` without one, or if an adapter from a repository names a folder."""
    base = str(settings.get("base_model_name_or_path") or "")
    if not base:
        raise UserError("it does not name its base model")
    if "/".join(Path(base).parts[-3:]) == PUBLIC_POCKET:
        return str(pocket_path())
    if not is_folder(adapter) and (exists(base) or not _is_repository(base)):
        raise UserError(f"it names {base!r} as its base: expected a repository")
    return base


@contextmanager
def base_errors(adapter: str) -> Iterator[None]:
    """Adds the remedy to an error about the base that an adapter names."""
    try:
        yield
    except UserError as error:
        raise UserError(f"the adapter {adapter!r} needs a base: {error}; name its base yourself: BASE+{adapter}") from error


def prompting_files(there: Collection[str]) -> list[str]:
    """The files beside an adapter that decide how it is prompted: play settings, chat template, and a complete tokenizer."""
    tokenizer = TOKENIZER_FILES if any(name in there for name in VOCABULARIES) else ()
    return [name for name in (PLAY_SETTINGS, TEMPLATE, *tokenizer) if name in there]
