"""Rendering: boards, replays, learning curves and the HTML report."""

from msgrpo_hub.rendering.replay_page import Replay

__all__ = ["Replay"]
