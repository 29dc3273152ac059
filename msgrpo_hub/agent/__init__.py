"""Agent: prompt formats, the action parser, and the protocol of policies."""

from msgrpo_hub.agent.action import parse_action as parse_action  # `as`: for the other rooms, not public
from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.agent.policy import Prompt as Prompt
from msgrpo_hub.agent.policy import build_prompt as build_prompt
from msgrpo_hub.agent.policy import format_of as format_of
from msgrpo_hub.agent.prompt_formats import THINK_ACTION as THINK_ACTION
from msgrpo_hub.agent.prompt_formats import PromptFormat

__all__ = ["Policy", "PromptFormat", "ScriptedPolicy"]
