"""The opening page on small screens, with large text, and for screen readers, in a real browser."""

from __future__ import annotations

import pytest

from tests.space.pages import Visit, serious

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
