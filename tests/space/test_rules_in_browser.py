"""The Rules tab, messages, and requests that take a while, in a real browser."""

from __future__ import annotations

import time

import names
import pytest
from rules import bundled

from tests.space.pages import Visit, hold, pick, release, trouble, write

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


def test_a_prepared_change_can_be_chosen_again_after_an_edit(visit: Visit) -> None:
    page = visit("Rules")
    told = page.get_by_label("Instructions", exact=True)
    prepared = told.input_value()
    told.fill("Go.")
    pick(page, "Prepared changes", "poisoned")
    page.wait_for_function("text => [...document.querySelectorAll('textarea')].some((each) => each.value === text)", arg=prepared)
    page.locator("#rules-stage .stale").wait_for(state="detached")


def test_what_is_typed_is_chosen_by_its_name(visit: Visit) -> None:
    page = visit()
    for label, typed, name in (
        ("Game", "snake, ALONE", "Snake, alone"),
        ("Player", "Greedy", "greedy"),
        ("Next to", "NOBODY", "nobody"),
    ):
        box = page.get_by_label(label, exact=True).locator("visible=true")
        box.fill(typed)
        box.press("Tab")
        page.wait_for_function("([box, name]) => box.value === name", arg=[box.element_handle(), name])
    page.get_by_role("button", name="Watch", exact=True).click()
    page.locator("#watch-stage .caption").get_by_text("Snake, alone").wait_for()
    assert page.locator("#watch-stage .stale").count() == 0


@pytest.mark.parametrize("board", ["3.7", "", "10000"])
def test_what_is_no_board_is_not_played(visit: Visit, board: str) -> None:
    page = visit()
    page.get_by_label("Board", exact=True).locator("visible=true").fill(board)
    page.get_by_role("button", name="Watch", exact=True).click()
    trouble(page).wait_for()
    assert trouble(page).inner_text() == "Board: expected a whole number from 0 to 9999"


def test_a_name_in_a_message_is_text_and_fetches_nothing(visit: Visit) -> None:
    """The page fails the test when it asks another server for anything."""
    page, name = visit(), '<img src="http://198.51.100.1/x"><b>bold'
    write(page, "Player", name)
    page.get_by_role("button", name="Watch", exact=True).click()
    trouble(page).wait_for()
    assert f"unknown player '{name}'" in trouble(page).inner_text()
    assert trouble(page).locator("img, b").count() == 0


def test_a_comparison_that_is_stopped_keeps_what_was_played(visit: Visit) -> None:
    page = visit("Compare")
    page.get_by_label("number input for Episodes").fill("200")
    page.get_by_label("number input for Episodes").press("Tab")
    assert page.get_by_role("button", name="Stop").locator("visible=true").count() == 0  # nothing to stop
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("This result came with the Space").locator("visible=true").wait_for(state="detached")
    page.get_by_role("button", name="Stop").locator("visible=true").click()
    page.locator("#compare-scores .count").get_by_text("Stopped after").wait_for()
    said = page.locator("#compare-scores .count").inner_text()
    played = int(said.split()[2])
    assert said == f"Stopped after {played} of 200 episodes"
    assert page.get_by_role("button", name="Stop").locator("visible=true").count() == 0
    time.sleep(3)  # longer than a batch takes
    assert page.locator("#compare-scores .count").inner_text() == said
    assert (
        page.locator("#compare-scores").get_by_text("no interval under 30").count() == 0
    )  # rewards of 0 and 1 have one at any number


def test_before_its_first_answer_a_comparison_can_neither_be_stopped_nor_begun_again(visit: Visit) -> None:
    page = visit("Compare")
    scores, go = page.locator("#compare-scores"), page.get_by_role("button", name="Compare")
    page.get_by_label("number input for Episodes").fill("30")
    page.get_by_label("number input for Episodes").press("Tab")
    page.locator("#compare-stage .stale").wait_for()
    assert scores.evaluate("each => getComputedStyle(each).opacity") == "0.4"
    assert not scores.get_by_text("computes it anew").is_visible()
    hold(page)
    go.click()
    page.wait_for_timeout(300)
    assert go.is_disabled()
    assert page.get_by_role("button", name="Stop").locator("visible=true").count() == 0
    release(page)
    scores.locator(".count").get_by_text("30 episodes", exact=True).wait_for(timeout=180_000)
    page.wait_for_function("() => !document.querySelector('.running')")
    assert go.is_enabled()
    assert scores.evaluate("each => getComputedStyle(each).opacity") == "1"


def test_a_late_replay_is_grey_and_a_click_that_it_makes_wait_is_not_lost(visit: Visit) -> None:
    page = visit()
    board, go = (
        page.get_by_label("Board", exact=True).locator("visible=true"),
        page.get_by_role("button", name="Watch", exact=True),
    )
    caption, stale = page.locator("#watch-stage .caption"), page.locator("#watch-stage .stale")
    for clicks, shown in ((1, "2"), (2, "3")):
        hold(page)
        board.fill("2")
        go.click()
        board.fill("3")
        if clicks == 2:
            go.click()
        page.wait_for_timeout(300)
        release(page)
        caption.get_by_text(f"Frozen Lake, board {shown}").wait_for()
        page.wait_for_timeout(300)
        assert stale.count() == 2 - clicks
