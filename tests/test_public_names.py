"""The public names: what users import. There are at most 30; removing or renaming one is a breaking change."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PUBLIC = {
    "msgrpo_hub.errors": ["UserError"],
    "msgrpo_hub.games": ["Game", "Scene", "Solvable", "Transition", "episode_seed", "make_game"],
    "msgrpo_hub.episode": ["Episode", "Group"],
    "msgrpo_hub.agent": ["Policy", "PromptFormat", "ScriptedPolicy"],
    "msgrpo_hub.models": ["LanguageModel"],
    "msgrpo_hub.rollout": ["play_groups"],
    "msgrpo_hub.players": ["PlayerSettings", "make_player"],
    "msgrpo_hub.credit": ["Credit"],
    "msgrpo_hub.msgrpo": ["group_advantages", "policy_loss", "select_episodes"],
    "msgrpo_hub.evaluation": ["compare", "evaluate"],
    "msgrpo_hub.training": ["Callback", "TrainConfig", "train"],
    "msgrpo_hub.hub": ["load_rollouts", "push_adapter", "push_rollouts", "read_leaderboard"],
}

SOCKETS = {
    "msgrpo_hub.interop.trl": ["environment_dataset", "episode_return", "rollout_dataset", "trl_environment", "trl_rollout"],
    "msgrpo_hub.interop.verifiers_taskset": ["GameEnv", "GameHarness", "GameTaskset"],
}
"""Names for other frameworks; they change with those frameworks."""

ONE_FILE = {
    "msgrpo_hub.agent.policy": ["build_prompt"],
    "msgrpo_hub.agent.prompt_formats": ["THINK_ACTION"],
    "msgrpo_hub.games": ["episode_seed", "make_game", "stream"],
}
"""The imports of examples/one_file.py: games and prompts."""

PACKAGES = sorted(".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "msgrpo_hub").rglob("__init__.py"))


def test_there_are_at_most_30_public_names() -> None:
    assert sum(len(names) for names in PUBLIC.values()) <= 30


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_importable_and_documented(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in PUBLIC[module]:
        assert getattr(loaded, name).__doc__, f"{module}.{name} has no docstring"


@pytest.mark.parametrize("package", PACKAGES)
def test_all_of_a_package_lists_its_public_names_and_nothing_else(package: str) -> None:
    assert sorted(getattr(importlib.import_module(package), "__all__", [])) == sorted(PUBLIC.get(package, []))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of the imports from this package; for `import module`, the name is empty."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found = [(str(node.module), alias.name) for alias in node.names]
        else:
            found = []
        yield from (each for each in found if each[0].split(".")[0] == "msgrpo_hub")


def outside(paths: Iterator[Path], allowed: dict[str, list[str]]) -> set[str]:
    """The imports of some files beyond the allowed names."""
    used = {each for path in paths for each in imports(path)}
    return {f"{module}.{name}" for module, name in used if name not in allowed.get(module, [])}


def test_examples_import_public_names_and_those_of_sockets_only() -> None:
    examples = {*(ROOT / "examples").rglob("*.py")}
    recipe = ROOT / "examples" / "one_file.py"
    assert outside(iter(examples - {recipe}), PUBLIC | SOCKETS) == set()
    assert outside(iter([recipe]), ONE_FILE) == set()


@pytest.mark.parametrize("page", sorted((ROOT / "model_cards").glob("*.jinja")), ids=lambda page: page.name)
def test_the_code_of_the_cards_imports_public_names_only(page: Path) -> None:
    lines = re.findall(r"^from (msgrpo_hub\S*) import (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    used = {(module, name) for module, names in lines for name in names.split(", ")}
    assert not {f"{module}.{name}" for module, name in used if name not in PUBLIC.get(module, [])}
