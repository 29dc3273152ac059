"""Floor 6, the Hub: adapters with their cards. Imports what it needs only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgrpo_hub.hub.adapters import push_adapter

__all__ = ["push_adapter"]


def __getattr__(name: str) -> Any:
    if name == "push_adapter":
        from msgrpo_hub.hub.adapters import push_adapter

        return push_adapter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
