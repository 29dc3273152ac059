"""Players: everything that a command line can name, from scripted choosers to models and servers, and what identifies each."""

from msgrpo_hub.players.identity import PlayerSettings
from msgrpo_hub.players.registry import can_play, make_player

__all__ = ["PlayerSettings", "can_play", "make_player"]
