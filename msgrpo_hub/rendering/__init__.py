"""Rendering: boards, replays, learning curves and the HTML report."""

from msgrpo_hub.rendering.board_art import DARK as DARK
from msgrpo_hub.rendering.board_art import LIGHT as LIGHT
from msgrpo_hub.rendering.board_art import script as script
from msgrpo_hub.rendering.replay import replay_svg
from msgrpo_hub.rendering.report_replay import episode_data as episode_data
from msgrpo_hub.rendering.report_replay import game_data as game_data
from msgrpo_hub.rendering.report_replay import shapes as shapes
from msgrpo_hub.rendering.report_replay import state_data as state_data

__all__ = ["replay_svg"]
