"""The page of a served Space in a real browser, and what visitors do with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import TimeoutError

from tests.browser import OpenPage
from tests.space.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page

Visit = Callable[..., "Page"]
"""(tab, options of `open_page`) → page, with that tab open."""


@pytest.fixture
def visit(space: Served, open_page: OpenPage) -> Visit:
    def visit(tab: str = "Watch", **options: object) -> Page:
        page = open_page(space.url, inside=space.url, **options)
        page.set_default_timeout(60_000)
        page.wait_for_selector(".board")
        if tab != "Watch":
            page.get_by_role("tab", name=tab).click()
        return page

    return visit


def pick(page: Page, label: str, value: str) -> None:
    """Chooses in a list of the tab that is open, as a visitor does: types, and takes what is offered or what was typed."""
    box = page.get_by_label(label, exact=True).locator("visible=true")
    box.fill(value)
    offered = page.locator(f"#{box.get_attribute('aria-controls')}").get_by_role("option", name=value, exact=True)
    try:
        offered.click(timeout=3_000)
    except TimeoutError:
        box.press("Enter")
    assert box.input_value() == value


def turn(page: Page, stage: str) -> int:
    return int(page.locator(f"{stage} input[type=range]").input_value())


def ready(page: Page, stage: str, player: str) -> None:
    page.locator(f"{stage} article[aria-label='{player}'] .board").wait_for()
