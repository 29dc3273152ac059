"""Games: the rules of Frozen Lake and Snake, their ids and their seeds. `games.environment` wraps them for gymnasium."""

from msgrpo_hub.games.game import Game, Transition, render_text
from msgrpo_hub.games.registry import GAMES, all_games, make_game
from msgrpo_hub.games.seeds import Split, episode_seed, stream
from msgrpo_hub.games.variants import VARIANTS, Variant, base_game, display_name

__all__ = [
    "GAMES",
    "VARIANTS",
    "Game",
    "Split",
    "Transition",
    "Variant",
    "all_games",
    "base_game",
    "display_name",
    "episode_seed",
    "make_game",
    "render_text",
    "stream",
]
