"""Rendering: boards, replays, learning curves and the HTML report."""

from msgrpo_hub.rendering.replay_page import Replay as Replay  # `as`: for the Space, not public
