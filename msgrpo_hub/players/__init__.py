"""Players: everything that a command line can name, from scripted choosers to models and servers, and what identifies each."""

from msgrpo_hub.players.identity import PlayerSettings
from msgrpo_hub.players.registry import can_play as can_play  # `as`: known to the other rooms, and not public
from msgrpo_hub.players.registry import make_player

__all__ = ["PlayerSettings", "make_player"]
