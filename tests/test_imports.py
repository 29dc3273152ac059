"""The floors: an import goes to the same floor or below, never round in a circle, and light floors load no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "msgrpo_hub"

FLOORS = {
    "msgrpo_hub": 0,  # the name and the version
    "msgrpo_hub.errors": 0,
    "msgrpo_hub.games": 0,
    "msgrpo_hub.episode": 1,
    "msgrpo_hub.agent": 2,
    "msgrpo_hub.rollout": 3,
    "msgrpo_hub.msgrpo": 4,
    "msgrpo_hub.evaluation": 4,
    "msgrpo_hub.training": 5,
    "msgrpo_hub.pocket": 5,  # the scripts that build the base; its files are data and have no floor
    "msgrpo_hub.hub": 6,
    "msgrpo_hub.cli": 7,
    "msgrpo_hub.__main__": 7,
}
DATA = {"msgrpo_hub.pocket"}
"""Packages whose `__init__` only says where files lie: anyone may ask."""

SIBLINGS = ("msgrpo_hub.msgrpo", "msgrpo_hub.evaluation")

HEAVY = {"accelerate", "peft", "torch", "transformers"}
MAY_BE_HEAVY = {
    *(
        f"msgrpo_hub.agent.{name}"
        for name in ("language_model", "loading", "engine", "sampling", "memory", "attention", "weights", "probe", "tokenization")
    ),
    "msgrpo_hub.msgrpo",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported_names(path: Path, module: str) -> Iterator[str]:
    """Every imported name of a file: at its top, inside functions and under TYPE_CHECKING alike."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def edges(module: str) -> set[str]:
    """The modules of ours that a module imports: `from package import name` leads to a submodule where there is one."""
    names = [name for name in imported_names(SOURCES[module], module) if name.split(".")[0] == "msgrpo_hub"]
    return {name if name in SOURCES else name.rpartition(".")[0] for name in names} - {module}


def place(module: str) -> str:
    """The entry of the table that a module belongs to."""
    return module if module in FLOORS else ".".join(module.split(".")[:2])


def floor(module: str) -> int:
    return 0 if module in DATA else FLOORS.get(place(module), max(FLOORS.values()))


def test_every_module_has_a_floor() -> None:
    assert {place(module) for module in SOURCES} - set(FLOORS) == set()


@pytest.mark.parametrize("module", SOURCES)
def test_imports_go_to_the_same_floor_or_below(module: str) -> None:
    assert not {
        f"{module} (floor {floor(module)}) → {name} (floor {floor(name)})"
        for name in edges(module)
        if floor(name) > floor(module)
    }


@pytest.mark.parametrize("module", SOURCES)
def test_the_paper_and_the_evaluation_do_not_import_each_other(module: str) -> None:
    if place(module) in SIBLINGS:
        assert not {name for name in edges(module) if place(name) in SIBLINGS and place(name) != place(module)}


def test_no_import_goes_round_in_a_circle() -> None:
    # A package's `__init__` that names its own submodules is above them; they must not ask it back.
    try:
        TopologicalSorter({module: edges(module) for module in SOURCES}).prepare()
    except CycleError as circle:
        pytest.fail(" → ".join(circle.args[1]))


@pytest.mark.parametrize("module", [module for module in SOURCES if floor(module) < 5 and module not in MAY_BE_HEAVY])
def test_light_modules_import_nothing_heavy(module: str) -> None:
    """Also not inside functions: the only way to torch is through the modules that are about it."""
    assert not {name.split(".")[0] for name in imported_names(SOURCES[module], module)} & HEAVY


def loaded_by(program: str) -> set[str]:
    """The heavy packages that a fresh process has loaded after a program."""
    ending = f"import sys; print(*({HEAVY!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", f"{program}\n{ending}"], check=True, capture_output=True, text=True)
    return set(result.stdout.split())


def test_importing_the_package_loads_no_torch() -> None:
    assert loaded_by("import msgrpo_hub, msgrpo_hub.games, msgrpo_hub.agent, msgrpo_hub.rollout, msgrpo_hub.evaluation") == set()


def test_playing_with_a_scripted_player_loads_no_torch() -> None:
    program = """
from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.agent.policy import choose_random_safe
from msgrpo_hub.games import make_game
from msgrpo_hub.rollout import play_groups
(group,) = play_groups(make_game("Snake-Standard-v1"), ScriptedPolicy(choose_random_safe), [0], 4)
assert len(group.episodes) == 4
"""
    assert loaded_by(program) == set()


def test_the_language_model_loads_torch_only_when_it_is_asked_for() -> None:
    assert "torch" in loaded_by("from msgrpo_hub.agent import LanguageModel")
