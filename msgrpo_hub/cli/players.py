"""What the commands that load players share: the help text for PLAYER, and quiet loading."""

from __future__ import annotations

from msgrpo_hub.downloads.names import built_in_adapters
from msgrpo_hub.players.registry import SCRIPTED, ModelPlayer, find_player

PLAYERS = (
    f"{', '.join(SCRIPTED)}; pocket (the built-in base); "
    f"{', '.join(built_in_adapters())} (adapters of it, built in); a model or LoRA adapter, as a Hub id or a folder; "
    "USER/REPO/FOLDER (an adapter in a folder of a repository); BASE+ADAPTER; "
    "dqn:FOLDER; endpoint:URL#MODEL; provider:NAME/MODEL"
)
"""What a player can be, for the help texts."""


def quiet_loading(player: str) -> None:
    """Switches off transformers' progress bars for local loading; downloads keep theirs."""
    if isinstance(find_player(player), ModelPlayer):
        from msgrpo_hub.models.loading import hide_progress_bars

        hide_progress_bars()
