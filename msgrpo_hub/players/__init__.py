"""Players: scripted players, models and servers by name, and what identifies each."""

from msgrpo_hub.players.registry import can_play as can_play
from msgrpo_hub.players.registry import make_player
from msgrpo_hub.players.sample_play import prompts_of as prompts_of
from msgrpo_hub.players.settings import PlayerSettings

__all__ = ["PlayerSettings", "make_player"]
