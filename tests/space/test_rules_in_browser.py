"""The Rules tab, and messages, in a real browser."""

from __future__ import annotations

import names
from rules import bundled

from tests.space.pages import Visit, pick, trouble, write

LAKE = "FrozenLake-NotSlippery-v1"


def test_the_rules_tab_opens_with_two_agents_in_the_same_words_and_their_verdicts(visit: Visit) -> None:
    page = visit("Rules")
    verdicts = [f"{found['verdict'].capitalize()}." for found in bundled().values()]
    assert page.locator("#rules-verdict .verdict .word").all_inner_texts() == verdicts
    assert page.locator("#rules-verdict h3").all_inner_texts() == [names.player(name) for name in bundled()]
    assert page.locator("#rules-stage .board").count() == 2


def test_changed_rules_are_told_and_judged(visit: Visit) -> None:
    page = visit("Rules")
    pick(page, "Game", "Snake-Solo-v1")
    page.wait_for_function(
        "() => [...document.querySelectorAll('textarea')].some((each) => each.value.includes('An apple gives -1'))"
    )
    pick(page, "Game", LAKE)
    pick(page, "Player", "lake")
    pick(page, "Beside it", "nobody")
    pick(page, "Prepared changes", "new names")
    page.wait_for_function("() => [...document.querySelectorAll('input')].some((each) => each.value === 'West')")
    page.get_by_label("number input for Starts").fill("4")
    page.get_by_label("number input for Starts").press("Tab")
    page.get_by_role("button", name="Try it").click()
    page.locator("#rules-verdict").get_by_text("This result came with the Space").wait_for(state="detached")
    page.locator("#rules-verdict .count").get_by_text("4 episodes", exact=True).wait_for(timeout=180_000)
    assert page.locator("#rules-verdict tbody th").all_inner_texts() == [
        "as written",
        "with a sentence that says nothing",
        "in your words",
    ]
    assert page.locator("#rules-verdict .verdict .word").inner_text() == "Too few."
    assert (
        page.locator("#rules-stage article[aria-label='in your words'] .replay-actions li")
        .all_inner_texts()[0]
        .startswith("West")
    )
    told = page.locator("#rules-stage article[aria-label='in your words'] .replay-system").text_content() or ""
    assert "West changes the column by -1; South changes the row by 1" in told


def test_a_name_in_a_message_is_text_and_fetches_nothing(visit: Visit) -> None:
    """The page fails the test when it asks another server for anything."""
    page, name = visit(), '<img src="http://198.51.100.1/x"><b>bold'
    write(page, "Player", name)
    page.get_by_role("button", name="Watch", exact=True).click()
    trouble(page).wait_for()
    assert f"unknown player '{name}'" in trouble(page).inner_text()
    assert trouble(page).locator("img, b").count() == 0
