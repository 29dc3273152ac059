"""The report for every reader: small screens, dark themes, reduced motion, screen readers, no scripts, few results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe

from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.rendering.report import report_page, write_report
from tests.browser import OpenPage
from tests.rendering.reported import ADAPTER, BASE, CORRIDOR, LAKE, MIRRORED, failed_run
from tests.rendering.test_report_page import choose, turn

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.slow

TASKS = (CORRIDOR, LAKE, MIRRORED)


@pytest.fixture(scope="module")
def path(report_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(report_folder, tmp_path_factory.mktemp("page") / "report.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_the_screen_and_its_text_stands_out(path: Path, open_page: OpenPage, width: int, scheme: str) -> None:
    """Contrast as WCAG 2.2 §1.4.3 has it: at least 4.5 for text, against what lies behind it."""
    page = open_page(path, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]
    choose(page, LAKE)
    faint = page.evaluate(CONTRASTS)
    assert faint["checked"] > 100
    assert faint["low"] == []


def test_no_header_breaks_a_word_on_a_phone(path: Path, open_page: OpenPage) -> None:
    page = open_page(path, width=390)
    assert page.evaluate(BROKEN.replace("SPLIT", "/[^\\s/-]+/g")) == []
    assert page.evaluate(BROKEN.replace("SPLIT", "/.+/g"))  # a break between words is seen


def test_on_a_phone_turns_stand_under_their_bars_and_names_of_tasks_have_the_whole_width(path: Path, open_page: OpenPage) -> None:
    page = open_page(path, width=390)
    bars, turns = page.locator(".mistakes"), page.locator(".failures .turns:visible")
    assert turns.count() == bars.count() > 0
    for bar, turn_names in zip(bars.all(), turns.all(), strict=True):
        above, below = bar.bounding_box(), turn_names.bounding_box()
        assert above
        assert below
        assert 0 <= below["y"] - above["y"] - above["height"] < 12
    assert all((page.locator(name).bounding_box() or {})["width"] > 340 for name in ("#choose-task", "#choose-seed"))


BROKEN = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll('th')) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      for (const word of walker.currentNode.textContent.matchAll(SPLIT)) {
        const range = document.createRange();
        range.setStart(walker.currentNode, word.index);
        range.setEnd(walker.currentNode, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((rect) => Math.round(rect.top)));
        if (lines.size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}"""
"""The matches of SPLIT in header cells that are on more than one line."""


CONTRASTS = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (text) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb(text).slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const rect = each.namespaceURI.endsWith('svg') && each.querySelector(':scope > rect');
      const color = rect ? getComputedStyle(rect).fill : getComputedStyle(each).backgroundColor;
      if ((rgb(color)[3] ?? 1) > 0) return color;
    }
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const low = [];
  let checked = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.getClientRects().length) continue;
    if (element.closest('title, defs, :disabled')) continue;
    const style = getComputedStyle(element);
    const color = element.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const [a, b] = [light(color), light(behind(element))].sort((x, y) => y - x);
    checked += 1;
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push([element.className.baseVal ?? element.className, color, behind(element)]);
  }
  return {checked, low};
}"""


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_pieces_glide_unless_the_reader_prefers_reduced_motion(path: Path, open_page: OpenPage, motion: str) -> None:
    page = open_page(path, reduced_motion=motion)
    choose(page, MIRRORED)
    moving = page.evaluate(
        "() => { byId('stage').querySelector('.replay-forward').click(); return document.getAnimations().length; }"
    )
    assert turn(page) == 1
    assert (moving > 0) == (motion == "no-preference")


@pytest.mark.parametrize("b", [ADAPTER, "nobody"])
def test_axe_finds_no_violation_in_the_replay(path: Path, open_page: OpenPage, b: str) -> None:
    page = open_page(path)
    choose(page, LAKE, b=b)
    found = Axe().run(page, context="#replay").response
    assert len(found["passes"]) > 10
    assert {each["id"]: [node["html"][:200] for node in each["nodes"]] for each in found["violations"]} == {}


def test_every_control_and_every_picture_has_a_name(path: Path, open_page: OpenPage) -> None:
    page = open_page(path)
    for role in ("button", "combobox", "slider", "img", "region"):
        assert page.get_by_role(role, name=re.compile(r"\S")).count() == page.get_by_role(role).count() > 0  # type: ignore[arg-type]


def test_without_scripts_tables_and_plots_are_there_and_the_replay_is_not(path: Path, open_page: OpenPage) -> None:
    page = open_page(path, java_script_enabled=False)
    assert page.locator("table:visible").count() >= 8
    assert page.locator(".forest .marks circle:visible").count() > 0
    assert page.locator("#replay").is_hidden()
    assert page.get_by_text("Replays need JavaScript").is_visible()
    assert page.locator(".show:enabled").count() == 0


def test_results_of_one_player_have_a_replay_of_one_board(
    report_results: list[Result], tmp_path: Path, open_page: OpenPage
) -> None:
    alone = tmp_path / "alone.html"
    alone.write_text(report_page([result for result in report_results if result.player == BASE]), encoding="utf-8")
    page = open_page(alone)
    assert page.locator(".board").count() == 1
    assert page.locator(".replay-difference").is_disabled()
    page.keyboard.press("ArrowRight")
    assert turn(page) == 1


def test_results_without_any_episode_are_a_page_without_replay(tmp_path: Path, open_page: OpenPage) -> None:
    silent = tmp_path / "silent.html"
    silent.write_text(report_page([failed_run(tmp_path, every=1)]), encoding="utf-8")
    page = open_page(silent)
    assert page.locator("#replay").is_hidden()
    assert page.get_by_text("30 of 30 episodes are missing").is_visible()
