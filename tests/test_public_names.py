"""The names that users import; removing or renaming one is a breaking change."""

import importlib

import pytest

PUBLIC = {
    "msgrpo_hub.games": ["make_game", "GAMES", "episode_seed"],
    "msgrpo_hub.episode": ["Completion", "Step", "Episode", "Group"],
    "msgrpo_hub.agent": ["Policy", "ScriptedPolicy", "LanguageModel", "build_prompt", "parse_action"],
    "msgrpo_hub.rollout": ["play_groups"],
    "msgrpo_hub.msgrpo": ["group_advantages", "sample_episodes", "policy_loss"],
    "msgrpo_hub.evaluation": ["PlayerSettings", "evaluate", "compare"],
    "msgrpo_hub.training": ["TrainConfig", "train"],
    "msgrpo_hub.hub": ["push_adapter"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_importable_and_documented(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in PUBLIC[module]:
        public = getattr(loaded, name)
        assert public.__doc__, f"{module}.{name} has no docstring"
