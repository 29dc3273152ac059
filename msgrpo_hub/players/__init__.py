"""Players: scripted players, models and servers by name, and what identifies each."""

from msgrpo_hub.players.identity import PlayerSettings
from msgrpo_hub.players.registry import can_play as can_play  # `as`: for the other rooms, not public
from msgrpo_hub.players.registry import make_player

__all__ = ["PlayerSettings", "make_player"]
