"""The page of a served Space in a real browser, and what visitors do with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import names
import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser import OpenPage
from tests.space.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page

Visit = Callable[..., "Page"]
"""(tab, query of the address, options of `open_page`) → page with this tab open."""


@pytest.fixture
def visit(space: Served, open_page: OpenPage) -> Visit:
    def visit(tab: str = "Watch", at: str = "", **options: object) -> Page:
        still = {"reduced_motion": "reduce"}  # otherwise the page starts to play
        page = open_page(space.url + at, inside=space.url, **still | options)
        page.set_default_timeout(60_000)
        page.wait_for_selector(".board")
        if tab != "Watch":
            page.get_by_role("tab", name=tab).click()
        return page

    return visit


def pick(page: Page, label: str, value: str) -> None:
    """Chooses in a list of the open tab as a visitor does: types a name, and clicks the offered one."""
    box = page.get_by_label(label, exact=True).locator("visible=true")
    name = names.game(value) if value in names.GAMES or ":" in value else names.player(value)
    box.fill(name)
    page.locator(f"#{box.get_attribute('aria-controls')}").get_by_role("option", name=name, exact=True).click()
    assert box.input_value() == name


def write(page: Page, label: str, value: str) -> None:
    """Types a value into a list of the open tab that does not offer it."""
    box = page.get_by_label(label, exact=True).locator("visible=true")
    box.fill(value)
    box.press("Enter")


def turn(page: Page, stage: str) -> int:
    return int(page.locator(f"{stage} input[type=range]").input_value())


def ready(page: Page, stage: str, player: str) -> None:
    page.locator(f"{stage} article[aria-label='{player}'] .board").wait_for()


def play_board(page: Page, number: int) -> None:
    page.get_by_label("Board", exact=True).locator("visible=true").fill(str(number))
    page.get_by_role("button", name="New game").click()
    page.get_by_text(f"Frozen Lake, board {number}").locator("visible=true").wait_for()


def serious(page: Page) -> dict[str, list[str]]:
    """Serious and critical violations by axe-core on the whole page."""
    page.wait_for_timeout(600)  # fading elements are done
    found = Axe().run(page).response
    assert len(found["passes"]) > 30
    bad = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    return {each["id"]: [node["html"][:300] for node in each["nodes"]] for each in bad}
