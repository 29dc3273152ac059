"""The layers: an import goes to the same layer or below, never round in a circle, and light layers load no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "msgrpo_hub"

LAYERS: list[dict[str, str]] = [
    {"errors": "light", "fields": "light", "episode": "light"},
    {"games": "light", "downloads": "light", "msgrpo": "torch", "credit": "torch"},
    {"agent": "light"},
    {"rollout": "light", "storage": "light", "models": "torch"},
    {"players": "light"},
    {"evaluation": "light"},
    {"rendering": "light", "pocket": "torch"},
    {"training": "torch"},
    {"hub": "torch", "interop": "torch"},
    {"cli": "light", "__main__": "light"},
]
"""From bottom to top: the rooms of each layer, and whether their code may name torch and the libraries on top of it."""

ROOMS = {room: number for number, layer in enumerate(LAYERS) for room in layer}
HEAVY = {"accelerate", "peft", "torch", "transformers"}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported_names(path: Path, module: str) -> Iterator[str]:
    """The imported names of a file: at its top, inside functions and under TYPE_CHECKING."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def edges(module: str) -> set[str]:
    """The modules of this package that a module imports: `from package import name` may name a submodule."""
    names = [name for name in imported_names(SOURCES[module], module) if name.split(".")[0] == "msgrpo_hub"]
    return {name if name in SOURCES else name.rpartition(".")[0] for name in names} - {module}


def room(module: str) -> str:
    """The room of a module; the package itself has only the version and is below all rooms."""
    return module.split(".")[1] if "." in module else ""


def layer(module: str) -> int:
    # any room may import the place of the built-in base
    return ROOMS[room(module)] if module not in ("msgrpo_hub", "msgrpo_hub.pocket") else -1


def test_every_module_is_in_a_room() -> None:
    assert {room(module) for module in SOURCES} - {"", *ROOMS} == set()


@pytest.mark.parametrize("module", SOURCES)
def test_imports_go_to_the_same_layer_or_below(module: str) -> None:
    wrong = {name for name in edges(module) if layer(name) > layer(module)}
    assert not {f"{module} (layer {layer(module)}) → {name} (layer {layer(name)})" for name in wrong}


def test_rooms_of_one_layer_do_not_import_each_other_in_a_circle() -> None:
    arrows = {name: {room(other) for module in SOURCES if room(module) == name for other in edges(module)} for name in ROOMS}
    TopologicalSorter({name: others - {name, ""} for name, others in arrows.items()}).prepare()


def test_no_import_goes_round_in_a_circle() -> None:
    try:
        TopologicalSorter({module: edges(module) for module in SOURCES}).prepare()
    except CycleError as circle:
        pytest.fail(" → ".join(circle.args[1]))


@pytest.mark.parametrize("module", [module for module in SOURCES if layer(module) >= 0])
def test_light_rooms_name_nothing_heavy(module: str) -> None:
    if LAYERS[layer(module)][room(module)] == "light":
        assert not {name.split(".")[0] for name in imported_names(SOURCES[module], module)} & HEAVY


def loaded_by(program: str) -> set[str]:
    """The heavy packages that a program loads in a fresh process."""
    ending = f"import sys; print(*({HEAVY!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", f"{program}\n{ending}"], check=True, capture_output=True, text=True)
    return set(result.stdout.split())


def test_importing_every_module_of_the_light_rooms_and_every_other_room_loads_no_torch() -> None:
    light = [
        name for name in SOURCES if layer(name) >= 0 and LAYERS[layer(name)][room(name)] == "light" and room(name) != "__main__"
    ]
    rooms = [name for name, path in SOURCES.items() if path.name == "__init__.py"]
    assert loaded_by("".join(f"import {name}\n" for name in [*light, *rooms])) == set()
