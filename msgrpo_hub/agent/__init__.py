"""Floor 2, agent: prompt template, action parser, policies, and the language model. Torch is loaded only when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt, build_prompt

if TYPE_CHECKING:
    from msgrpo_hub.agent.language_model import LanguageModel

__all__ = ["LanguageModel", "Policy", "Prompt", "ScriptedPolicy", "build_prompt", "parse_action"]


def __getattr__(name: str) -> Any:
    if name == "LanguageModel":
        from msgrpo_hub.agent.language_model import LanguageModel

        return LanguageModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
