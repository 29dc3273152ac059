"""The documentation: commands parse, links resolve, maps name every room and file, and claims have their parts."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from msgrpo_hub.cli import COMMANDS, parse
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.paired import POWER, SIZE, mcnemar_power
from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.training.config import PRESETS
from tests.test_imports import LAYERS, PACKAGE, ROOMS, SOURCES

ROOT = Path(__file__).parents[1]
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "space_app/README.md", "benchmark/README.md")
FOLDERS = ("docs", "msgrpo_hub/cli", "benchmark/throughput")
PAGES = sorted([*(ROOT / name for name in FILES), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> list[str]:
    """The `msgrpo` command lines in the code blocks of a page, without comments and prompts."""
    code = "\n".join(body for language, body in FENCE.findall(text) if language in ("", "bash"))
    lines = [line.partition("  #")[0].partition(" > ")[0].rpartition("&& ")[2].strip() for line in code.splitlines()]
    return [line for line in (re.sub(r"^(\$ |Next: )?(\.venv/bin/)?", "", line) for line in lines) if line.startswith("msgrpo ")]


def spans(text: str) -> list[str]:
    """The `msgrpo` commands between backticks, without words in capitals."""
    found = re.findall(r"`(?:\.venv/bin/)?(msgrpo [a-z][^`\n…]*)", FENCE.sub("", text))
    return [re.sub(r"(\b[A-Z/]{4,}\b| > ).*", "", line).strip() for line in found]


def found(of: Callable[[str], list[str]]) -> list[tuple[str, str]]:
    return sorted({(str(path.relative_to(ROOT)), line) for path in PAGES for line in of(path.read_text(encoding="utf-8"))})


@pytest.mark.parametrize(("page", "line"), found(blocks))
def test_every_command_in_a_code_block_parses(page: str, line: str) -> None:  # noqa: ARG001
    options = parse(shlex.split(line)[1:])
    if preset := getattr(options, "preset", None):
        assert preset in PRESETS
    suite = getattr(options, "suite", "")
    if isinstance(suite, str) and suite and not suite.endswith(".toml"):  # of `games` it is a switch
        load_suite(suite)


@pytest.mark.parametrize(("page", "line"), found(spans))
def test_every_command_in_a_sentence_has_flags_that_exist(page: str, line: str) -> None:  # noqa: ARG001
    try:
        parse(shlex.split(line)[1:])
    except SystemExit as end:
        assert end.code == 0  # noqa: PT017
        assert line.endswith("--help")
    except UserError as error:
        assert "required" in str(error)  # noqa: PT017


def test_the_documentation_shows_every_command() -> None:
    assert {line.split()[1] for _, line in found(blocks) + found(spans)} == set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), target


def test_the_map_in_the_readme_names_every_room_and_every_folder() -> None:
    rows = re.findall(r"^\| \[?`([\w/.]+)`.*\| (.+) \|$", README, re.MULTILINE)
    named = [name for name, _ in rows]
    rooms = {f"{room}/" if (PACKAGE / room).is_dir() else f"{room}.py" for room in ROOMS if (PACKAGE / room).exists()}
    rooms |= {f"{room}.py" for room in ROOMS if (PACKAGE / f"{room}.py").exists()} - {"__main__.py"}
    folders = {"benchmark/", "space_app/", "model_cards/", "docs/", "examples/", "tests/"}
    assert set(named) == rooms | folders
    assert len(named) == len(set(named))
    heights = [ROOMS[name.removesuffix("/").removesuffix(".py")] for name in named if name not in folders]
    assert heights == sorted(heights)


def test_the_layers_in_contributing_are_those_that_the_imports_keep() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Layers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.+?) \|", table, re.MULTILINE)
    written = {
        int(number): {name: "torch" if star else "light" for star, name in re.findall(r"(\*?)`(\w+)`", rooms)}
        for number, rooms in rows
    }
    assert written == dict(enumerate(LAYERS))


def script(name: str) -> ModuleType:
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def assemble() -> ModuleType:
    return script("assemble")


def test_the_computed_tables_are_those_that_the_pages_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    tables = script("tables")
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in tables.PAGES]
    assert [tables.with_tables(text) for text in texts] == texts, "run `python docs/tables.py`"
    marks = [name for path in PAGES for name in re.findall(r"<!-- table ([\w-]+): python docs", path.read_text(encoding="utf-8"))]
    assert sorted(marks) == sorted(tables.TABLES)
    for n, rate, family in ((50, 0.1, 6), (50, 0.5, 6), (100, 0.5, 38)):  # players whose successes are independent
        other = rate + float(tables._detectable(n, rate, family))
        power = [mcnemar_power(n, rate * (1 - high), (1 - rate) * high, SIZE / family) for high in (other - 0.01, other + 0.01)]
        assert power[0] < POWER < power[1]


def test_the_site_has_one_line_for_every_file_of_the_package(assemble: ModuleType) -> None:
    rows = re.findall(r"^\| \[`.+?`\]\(\w+\.md#(\w+)\) \| (.*) \|$", assemble.files_page(), re.MULTILINE)
    modules = {name for name, path in SOURCES.items() if path.stat().st_size} - {"msgrpo_hub", "msgrpo_hub.__main__"}
    assert sorted(anchor for anchor, _ in rows) == sorted(map(assemble.anchor_of, modules))
    assert all(line for _, line in rows)


def test_every_page_of_the_site_is_in_its_navigation(assemble: ModuleType, tmp_path: Path) -> None:
    assemble.main(tmp_path)
    navigation = str(tomllib.loads((tmp_path / "zensical.toml").read_text())["project"]["nav"])
    pages = {str(path.relative_to(tmp_path / "docs")) for path in (tmp_path / "docs").rglob("*.md")}
    assert set(re.findall(r"'([\w/-]+\.md)'", navigation)) == pages


def test_every_claim_has_its_commands_its_n_its_test_and_a_sentence_without_numbers() -> None:
    page = (ROOT / "docs" / "guide" / "claims.md").read_text(encoding="utf-8")
    claims = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    assert len(claims) == 4
    for claim, text in claims.items():
        [commands] = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
        assert all(part in text for part in ("- **n**:", "- **Test**:")), claim
        [sentence] = re.findall(r"(?:^> .*\n?)+", text, re.MULTILINE)
        assert {"difference", "task", "p"} <= set(re.findall(r"\{(\w+)\}", sentence)), claim
        assert "msgrpo compare" in commands
        assert not re.search(r"\d\.\d", sentence.replace("95 %", "")), claim
