"""Assembles the pages of the site in a folder: the guide, and pages made from the project's other files.

`python docs/assemble.py build` writes build/docs and build/zensical.toml; `make docs` does it and then builds build/site.
The reference, the page with one line per file, the examples and the results are made here each time, so none can go stale.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import tomli_w

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "msgrpo_hub"

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmark/README.md": "results/benchmark.md",
    "benchmark/experiments/README.md": "results/experiments.md",
    **{
        f"benchmark/experiments/{path.parent.name}/README.md": f"results/{path.parent.name.replace('_', '-')}.md"
        for path in sorted((ROOT / "benchmark" / "experiments").glob("*/experiment.py"))
    },
    "benchmark/throughput/README.md": "results/throughput.md",
    "benchmark/throughput/results/README.md": "results/throughput-measured.md",
    "msgrpo_hub/pocket/model/README.md": "results/pocket.md",
    "msgrpo_hub/pocket/adapters/README.md": "results/adapters.md",
    "model_cards/examples/adapter/README.md": "results/card.md",
    "space_app/README.md": "guide/space.md",
    "msgrpo_hub/cli/SKILL.md": "guide/agents.md",
    **{f"docs/guide/{path.name}": f"guide/{path.name}" for path in sorted((ROOT / "docs" / "guide").glob("*.md"))},
}
"""Markdown of the project → page of the site."""

FOLDERS = {
    "docs/guide": "guide/install.md",
    "examples": "guide/examples.md",
    "benchmark/throughput/results": "results/throughput-measured.md",
}
"""Folder → the target of links to it."""

PICTURES = {".png", ".svg"}

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def main(build: Path) -> None:
    """Writes all pages, the pictures they show and the site's configuration under `build`."""
    docs = build / "docs"
    shutil.rmtree(docs, ignore_errors=True)
    texts = {page: page_text(source, docs) for source, page in PAGES.items()} | generated_pages(docs)
    for page, text in texts.items():
        (docs / page).parent.mkdir(parents=True, exist_ok=True)
        (docs / page).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "docs" / "site.css", docs / "site.css")
    (build / "zensical.toml").write_text(tomli_w.dumps(configuration()), encoding="utf-8")


def page_text(source: str, docs: Path) -> str:
    """A Markdown file of the project as a page: its links lead to pages, and its pictures come along."""
    text = _FRONT_MATTER.sub("", (ROOT / source).read_text(encoding="utf-8"))
    return rewrite_links(text, source, PAGES[source], docs)


def rewrite_links(text: str, source: str, page: str, docs: Path) -> str:
    """Rewrites the relative links outside code blocks so that they lead from `page` to their targets on the site."""

    def rewritten(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, hash_, anchor = target.partition("#")
        place = place_of(os.path.normpath(Path(source).parent / path), docs)
        return f"{mark}[{label}]({relative(place, page)}{hash_}{anchor})" if place else label

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(rewritten, part) for part in parts)


def place_of(path: str, docs: Path) -> str | None:
    """Where the site has a file or folder of the project; a picture is copied there. None if the site does not have it."""
    if path in PAGES:
        return PAGES[path]
    if path in FOLDERS:
        return FOLDERS[path]
    if Path(path).suffix in PICTURES:
        (docs / "pictures" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, docs / "pictures" / path)
        return f"pictures/{path}"
    if path.startswith("examples/") and path.endswith(".py"):
        return f"guide/examples.md#{anchor_of(Path(path).name)}"
    if path.startswith("msgrpo_hub/") and path.endswith(".py"):
        return f"reference/{room_of(ROOT / path)}.md#{anchor_of(module_name(ROOT / path))}"
    return None


def relative(place: str, page: str) -> str:
    return os.path.relpath(place, Path(page).parent)


def anchor_of(heading: str) -> str:
    """The anchor that the site gives to a heading that is the name of a file or a module."""
    return re.sub(r"[^\w-]", "", heading.lower())


def generated_pages(docs: Path) -> dict[str, str]:
    """Page → text of the pages made from the sources: reference, one line per file, examples."""
    pages = {f"reference/{room}.md": room_page(room) for room in rooms()}
    return pages | {"reference/files.md": files_page(), "guide/examples.md": examples_page(docs)}


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.read_text(encoding="utf-8").strip()]


def room_of(path: Path) -> str:
    """The room of a module: the folder or the file of the package that it is in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms() -> list[str]:
    return sorted({room_of(path) for path in modules()} - {"__init__", "__main__"})


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return docstring.splitlines()[0].replace("|", r"\|") if docstring else ""


def room_page(room: str) -> str:
    """The reference of a room: each module with its public names."""
    names = [module_name(path) for path in modules() if room_of(path) == room]
    title, level = (f"# {room}\n\n", "##") if len(names) > 1 else ("", "#")
    return title + "\n".join(f"{level} {name}\n\n::: {name}\n" for name in names)


def files_page() -> str:
    """One line per file of the package, by room."""
    lines = ["# Every file\n\nThe first line of each module's docstring, by room.\n"]
    for room in rooms():
        lines += [f"\n## {room}\n", "| file | what is in it |\n|---|---|"]
        lines += [
            f"| [`{path.name}`]({room}.md#{anchor_of(module_name(path))}) | {first_line(path)} |"
            for path in modules()
            if room_of(path) == room
        ]
    return "\n".join(lines) + "\n"


def examples_page(docs: Path) -> str:
    """The scripts of examples/, whole."""
    source = ROOT / "examples" / "README.md"
    intro = rewrite_links(source.read_text(encoding="utf-8"), "examples/README.md", "guide/examples.md", docs)
    scripts = sorted((ROOT / "examples").glob("*.py"))
    return intro + "".join(f"\n## {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n" for path in scripts)


def title_of(source: str) -> str:
    """The first heading of a Markdown file."""
    return re.search(r"^# (.+)$", (ROOT / source).read_text(encoding="utf-8"), re.MULTILINE)[1]  # type: ignore[index]


def configuration() -> dict[str, object]:
    """docs/zensical.toml, with the reference and every page of results in the navigation, and our way to read docstrings."""
    config = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8"))
    by_room = [{room: f"reference/{room}.md"} for room in rooms()]
    options = config["project"]["plugins"]["mkdocstrings"]["handlers"]["python"]["options"]
    options["extensions"] = [str(ROOT / "docs" / "docstrings.py")]
    nav = config["project"]["nav"]
    [results] = [section["Results"] for section in nav if "Results" in section]
    results += [
        {title_of(source): page} for source, page in PAGES.items() if page.startswith("results/") and page not in str(nav)
    ]
    nav.append({"Reference": [{"Every file": "reference/files.md"}, *by_room]})
    return config


if __name__ == "__main__":
    main(Path(sys.argv[1]))
