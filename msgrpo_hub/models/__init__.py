"""Models: language models as policies. Torch is imported only when a model is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgrpo_hub.models.language_model import LanguageModel

__all__ = ["LanguageModel"]


def __getattr__(name: str) -> Any:
    if name == "LanguageModel":
        from msgrpo_hub.models.language_model import LanguageModel

        return LanguageModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
