"""Complete identities of players that no test loads."""

from __future__ import annotations

from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL: dict[str, Any] = {
    "kind": "language model",
    "base": "org/model",
    "base_commit": COMMIT,
    "mode": "generate",
    "temperature": 0.5,
    "max_new_tokens": 64,
    "chat_template": "274df747d064b5a4",
    "dtype": "float32",
    "device": "cpu",
    "engine": "fast",
    "torch": "2.13.0",
    "transformers": "5.23.0",
    "peft": "0.21.2",
}
ADAPTER = MODEL | {"adapter": "me/adapter", "adapter_commit": "f" * 40}


def batched(identity: dict[str, Any]) -> dict[str, Any]:
    return identity | {"batch_size": 50}


def served(server: str, **settings: Any) -> dict[str, Any]:
    own = {"server": server, "temperature": 0.5, "max_new_tokens": 256}
    return {"kind": "endpoint", **own, **settings}
