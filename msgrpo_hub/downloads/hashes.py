"""The content hash of a model folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgrpo_hub.downloads.names import adapter_inside
from msgrpo_hub.errors import UserError

_HASHED = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")  # merges.txt and vocab.txt are a tokenizer's


def content_hash(folder: Path) -> str:
    """SHA-256 of a folder's weights and configuration, by name and content: what a commit is to a repository."""
    files = sorted(path for path in folder.glob("*") if path.suffix in _HASHED)
    if not files:
        hint = adapter_inside(folder)
        raise UserError(f"no model in the folder {str(folder)!r}: expected config.json and weights there{hint}")
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
