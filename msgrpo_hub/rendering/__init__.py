"""Rendering: boards, replays, learning curves and the HTML report."""

from msgrpo_hub.rendering.board_art import DARK, LIGHT, script
from msgrpo_hub.rendering.replay import replay_svg
from msgrpo_hub.rendering.report_replay import episode_data, game_data, shapes, state_data

__all__ = ["DARK", "LIGHT", "episode_data", "game_data", "replay_svg", "script", "shapes", "state_data"]
