"""Agent: text in, action out. Prompt formats, the action parser, and the protocol of policies."""

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt, build_prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat

__all__ = ["Policy", "Prompt", "PromptFormat", "ScriptedPolicy", "build_prompt", "parse_action"]
