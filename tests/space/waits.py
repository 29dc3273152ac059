"""`python -m tests.space.waits`: how long a visitor waits, in a real browser, on a machine that does nothing else.

Aims for two quiet processors: the first board within 3 s, a bundled replay within 0.5 s, an episode that is played on demand
within 1 s. The result goes to `tests/space/waits.json`, which is committed.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from tests.browser import ARGUMENTS, executable
from tests.long import git
from tests.space.served import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RESULT = Path(__file__).with_name("waits.json")
VISITS = 7
PLAYED, NOT_PLAYED = range(1, 8), range(5001, 5008)
"""Boards in the bundle, of base and adapter side by side, and boards that the adapter plays on demand, alone."""


def seconds(does: Callable[[], object]) -> float:
    """Wall time."""
    began = time.monotonic()
    does()
    return round(time.monotonic() - began, 3)


def first_board(browser: Browser, url: str) -> float:
    """From the address to a drawn board, with nothing in the browser's cache."""
    with browser.new_context() as context:
        page = context.new_page()
        return seconds(lambda: (page.goto(url), drawn(page)))


def drawn(page: Page, caption: str = "") -> None:
    """Waits for a board with this in its caption; looks with every frame, and not every half second as a locator does."""
    there = "document.querySelector('#watch-stage .board use')"
    says = "document.querySelector('#watch-stage .caption')?.textContent.includes(text)"
    page.wait_for_function(f"(text) => {there} && {says}", arg=caption)


def boards(page: Page, numbers: Iterable[int]) -> list[float]:
    """From Watch to the replay of another board, by the players that are chosen."""
    return [seconds(partial(watch, page, number)) for number in numbers]


def watch(page: Page, number: int) -> None:
    """Asks for a board, and waits until it is there."""
    page.get_by_label("Board", exact=True).locator("visible=true").fill(str(number))
    page.get_by_role("button", name="Watch", exact=True).click()
    drawn(page, f", board {number}")


def measured() -> dict[str, list[float]]:
    """Seconds of every wait, in the order in which a visitor has them; the first of each is that of the first visitor."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as space, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=list(ARGUMENTS))
        found = {"first board": [first_board(browser, space.url) for _ in range(VISITS)]}
        page = browser.new_page(reduced_motion="reduce")
        page.goto(space.url)
        drawn(page)
        page.wait_for_load_state("networkidle")  # nobody presses a button in the first second
        found["bundled replay"] = boards(page, PLAYED)
        beside = page.get_by_label("Next to", exact=True).locator("visible=true")
        beside.fill("nobody")
        beside.press("Enter")
        found["live episode"] = boards(page, NOT_PLAYED)
        browser.close()
    return found


def main() -> None:
    """Measures, prints and saves."""
    found = measured()
    waits = {name: {"median": median(each), "longest": max(each), "seconds": each} for name, each in found.items()}
    for name, each in waits.items():
        print(f"{name}: median {each['median']} s, longest {each['longest']} s")
    about = {"commit": git("rev-parse", "HEAD"), "processors": os.cpu_count()}
    RESULT.write_text(json.dumps(about | {"waits": waits}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
