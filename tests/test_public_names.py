"""The names that users import; removing or renaming one is a breaking change."""

import importlib

import pytest

PUBLIC = {
    "msgrpo_hub.errors": ["UserError", "unknown"],
    "msgrpo_hub.games": [
        "make_game",
        "GAMES",
        "VARIANTS",
        "Game",
        "Variant",
        "episode_seed",
        "stream",
        "base_game",
        "display_name",
    ],
    "msgrpo_hub.episode": ["Completion", "Step", "Episode", "Group"],
    "msgrpo_hub.agent": ["Policy", "ScriptedPolicy", "PromptFormat", "Prompt", "build_prompt", "parse_action"],
    "msgrpo_hub.models": ["LanguageModel"],
    "msgrpo_hub.rollout": ["play_groups", "play_episodes", "replayed_states"],
    "msgrpo_hub.players": ["PlayerSettings", "make_player", "can_play"],
    "msgrpo_hub.msgrpo": ["group_advantages", "sample_episodes", "policy_loss"],
    "msgrpo_hub.evaluation": [
        *("evaluate", "compare", "find_results"),
        *("Comparison", "Interval", "compare_paired", "mean_interval", "wilson", "score_episode", "score_steps"),
    ],
    "msgrpo_hub.rendering": ["replay_svg", "game_data", "state_data", "episode_data", "shapes", "script", "LIGHT", "DARK"],
    "msgrpo_hub.training": ["TrainConfig", "train"],
    "msgrpo_hub.hub": [
        "push_adapter",
        "push_rollouts",
        "load_rollouts",
        "push_results",
        "read_leaderboard",
        "push_space",
        "supervised",
    ],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_importable_and_documented(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in PUBLIC[module]:
        public = getattr(loaded, name)
        assert public.__doc__, f"{module}.{name} has no docstring"
