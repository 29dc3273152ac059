"""Games: rules of Frozen Lake, Snake and toy text, their ids and their seeds. `games.environment` wraps them for gymnasium."""

# `as` marks names that other packages of msgrpo_hub use; they are not public
from msgrpo_hub.games.game import Game, Scene, Solvable, Transition
from msgrpo_hub.games.game import is_remote as is_remote
from msgrpo_hub.games.game import render_text as render_text
from msgrpo_hub.games.registry import FURTHER as FURTHER
from msgrpo_hub.games.registry import GAMES as GAMES
from msgrpo_hub.games.registry import all_games as all_games
from msgrpo_hub.games.registry import make_game
from msgrpo_hub.games.seeds import Split as Split
from msgrpo_hub.games.seeds import board_of as board_of
from msgrpo_hub.games.seeds import distinct_boards as distinct_boards
from msgrpo_hub.games.seeds import episode_seed
from msgrpo_hub.games.seeds import splits_of as splits_of
from msgrpo_hub.games.seeds import stream as stream
from msgrpo_hub.games.variants import VARIANTS as VARIANTS
from msgrpo_hub.games.variants import Variant as Variant
from msgrpo_hub.games.variants import base_game as base_game
from msgrpo_hub.games.variants import display_name as display_name

__all__ = ["Game", "Scene", "Solvable", "Transition", "episode_seed", "make_game"]
