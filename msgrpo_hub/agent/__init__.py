"""Agent: text in, action out. Prompts, the action parser, and the protocol of policies."""

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt, build_prompt

__all__ = ["Policy", "Prompt", "ScriptedPolicy", "build_prompt", "parse_action"]
