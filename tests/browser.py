"""A headless Chromium for pages that must send no request outside and log no error.

Without a browser a test skips, or fails in CI.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)

OpenPage = Callable[..., "Page"]
"""(url, *, width, height, scheme, inside, options of a browser context) → page."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not found:
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[OpenPage]:
    """Opens pages. The test fails if a page requests a URL outside `inside`, or logs an error or a warning."""
    contexts, strays, complaints = list[Any](), list[str](), list[str]()

    def open_page(
        url: str | Path, *, width: int = 1280, height: int = 900, scheme: str = "light", inside: str = "file://", **options: Any
    ) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: request.url.startswith(inside) or strays.append(request.url))
        page.on("console", lambda said: said.type in ("error", "warning") and complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(url.as_uri() if isinstance(url, Path) else url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not strays, strays
    assert not complaints, complaints
