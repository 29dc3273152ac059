"""What every visitor can read and use: small screens, large text, keyboards and screen readers, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.space.pages import Visit, pick, play_board

if TYPE_CHECKING:
    from playwright.sync_api import Page

TABS = ["Watch", "Compare", "Play", "Rules", "Leaderboard"]


@pytest.mark.parametrize(("scheme", "width"), [("dark", 390), pytest.param("light", 1280, marks=pytest.mark.long)])
def test_nothing_is_wider_than_the_screen_and_axe_finds_no_serious_violation(visit: Visit, width: int, scheme: str) -> None:
    page = visit(width=width, height=844, scheme=scheme)
    for place in ("board", "replay-play"):  # in the first screen, before anything is scrolled
        box = page.locator(f"#watch-stage .{place}").first.bounding_box()
        assert box
        assert box["y"] + box["height"] < 844, place
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        assert serious(page) == {}, tab
    heights = page.locator("#leaderboard tbody tr").evaluate_all("rows => rows.map((row) => row.offsetHeight)")
    assert max(heights) < 80  # figures are not broken into pieces
    page.set_viewport_size({"width": 320, "height": 844})
    page.wait_for_timeout(300)
    assert [page.get_by_role("tab", name=tab).is_visible() for tab in TABS] == [True] * len(TABS)
    page.set_viewport_size({"width": 1280, "height": 844})
    page.add_style_tag(content="html{font-size:200%!important}")
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, tab


def serious(page: Page) -> dict[str, list[str]]:
    """What axe-core calls serious or critical on the page as it is now; no rule and no widget is left out."""
    page.wait_for_timeout(600)  # what fades in and out has done so
    found = Axe().run(page).response
    assert len(found["passes"]) > 30
    bad = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    return {each["id"]: [node["html"][:300] for node in each["nodes"]] for each in bad}


@pytest.mark.parametrize(("scheme", "width"), [pytest.param("light", 390, marks=pytest.mark.long), ("dark", 1280)])
def test_what_tabs_show_after_use_has_no_serious_violation_either(visit: Visit, width: int, scheme: str) -> None:
    page = visit("Compare", width=width, height=844, scheme=scheme)
    pick(page, "Player A", "random")
    pick(page, "Player B", "greedy")
    page.get_by_label("number input for Episodes").fill("50")
    page.get_by_label("number input for Episodes").press("Tab")
    page.get_by_role("button", name="Compare").click()
    page.locator("#compare-scores .count").get_by_text("50 episodes", exact=True).wait_for()
    assert serious(page) == {}
    page.get_by_role("tab", name="Play").click()
    play_board(page, 3)
    page.locator("#play-board .yours").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.locator("#play-board .results table").wait_for()
    assert serious(page) == {}
    page.get_by_role("tab", name="Rules").click()
    pick(page, "Player", "greedy")
    pick(page, "Beside it", "random")
    page.get_by_role("button", name="Try it").click()
    page.locator("#rules-verdict").get_by_text("This result came with the Space").wait_for(state="detached")
    page.locator("#rules-verdict .count").get_by_text("40 episodes", exact=True).nth(1).wait_for()
    assert serious(page) == {}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
