"""The Space in a real browser, as a visitor uses it: every tab, by mouse and by keyboard, on a phone and on a desktop.

The server is the one that `python app.py` starts, in a process of its own, with no network.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from compare import compare

from tests.browser import OpenPage
from tests.space.pages import Visit, pick, ready, turn
from tests.space.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


def test_the_first_board_is_drawn_in_under_three_seconds(space: Served, open_page: OpenPage) -> None:
    """The best of three visits: other tests share the processors."""
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        page = open_page(space.url, inside=space.url)
        page.wait_for_selector("#watch-stage .board use[href='#walker']")
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 3


def test_watch_steps_by_slider_keys_and_buttons_without_asking_the_server(visit: Visit) -> None:
    page = visit()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    stage = "#watch-stage"
    assert page.locator(f"{stage} .replay-reply").text_content() == (
        "<think>Left wall Down ice Right ice Up wall</think><action>Down</action>"
    )
    slider = page.locator(f"{stage} input[type=range]")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert turn(page, stage) == 2
    page.get_by_role("button", name="One turn back").locator("visible=true").click()
    assert turn(page, stage) == 1
    page.keyboard.press("ArrowRight")  # wherever in the replay the focus is
    assert turn(page, stage) == 2
    page.get_by_role("button", name="Play", exact=True).locator("visible=true").click()
    page.wait_for_function("() => document.querySelector('#watch-stage .replay-turn').textContent.startsWith('the end')")
    assert page.locator(f"{stage} .replay-status").inner_text() == "The end: success, reward +1"
    assert page.locator(f"{stage} .replay-observation").text_content() == ""
    assert asked == []


def test_a_snake_creeps_to_where_the_next_board_has_it(visit: Visit) -> None:
    page = visit()
    pick(page, "Game", SOLO)
    pick(page, "Player", "snake-adapter")
    page.get_by_role("button", name="Watch").click()
    ready(page, "#watch-stage", "snake-adapter")
    places = "() => [...document.querySelectorAll('#watch-stage .you')].map((each) => each.getAttribute('d')).filter(Boolean)"
    slider = page.locator("#watch-stage input[type=range]")
    for number in range(1, 8):
        slider.press("ArrowRight")
        page.wait_for_function("() => document.getAnimations().length === 0")
        after = page.evaluate(places)
        slider.press("ArrowRight")
        slider.press("ArrowLeft")
        assert turn(page, "#watch-stage") == number
        assert page.evaluate(places) == after  # drawn at once


def test_watch_plays_another_game_seed_and_player(visit: Visit) -> None:
    page = visit()
    pick(page, "Game", "Snake-Solo-v1:reflected")
    page.get_by_label("Seed").locator("visible=true").fill("4")
    pick(page, "Player", "greedy")
    page.get_by_role("button", name="Watch").click()
    ready(page, "#watch-stage", "greedy")
    told = page.locator("#watch-stage .replay-observation").text_content() or ""
    head = re.search(r"Your head: \((\d+), (\d+)\)", told)
    assert head
    transform = page.locator("#watch-stage circle.head.you").locator("..").get_attribute("transform") or ""
    assert transform.startswith(f"translate({int(head[2]) + 0.5} {int(head[1]) + 0.5})")


def test_names_that_are_no_players_are_refused_in_one_line(visit: Visit) -> None:
    page = visit()
    for name in ("../secrets", "/etc/passwd", "endpoint:http://127.0.0.1#m", "no-such-player", "a/b" * 300_000):
        box = page.get_by_label("Player", exact=True).locator("visible=true")
        box.fill(name)
        box.press("Enter")
        assert box.input_value() == name
        page.get_by_role("button", name="Watch").click()
        said = page.get_by_test_id("toast-body").inner_text()
        assert "expected" in said
        assert len(said) < 500
        page.get_by_test_id("toast-close").click()
        page.get_by_test_id("toast-body").wait_for(state="detached")


def test_compare_shows_two_replays_the_divergence_and_both_scores(visit: Visit) -> None:
    page = visit("Compare")
    page.get_by_label("number input for Episodes").fill("40")
    page.get_by_label("number input for Episodes").press("Tab")
    page.get_by_role("button", name="Compare").click()
    page.locator("#compare-scores .count").get_by_text("40 episodes", exact=True).wait_for()
    assert "lake-adapter is better than pocket" in page.locator("#compare-scores .verdict").inner_text()
    assert page.locator("#compare-scores .whisker line:not(.axis)").count() == 4
    assert page.locator("#compare-stage .board").count() == 2
    apart = page.locator("#compare-stage .replay-difference")
    wanted = int((apart.inner_text()).removeprefix("First difference: turn ")) - 1
    assert wanted == next(compare(LAKE, 3, "pocket", "lake-adapter", 1))["film"]["divergence"]
    apart.click()
    assert turn(page, "#compare-stage") == wanted
    assert page.locator("#compare-stage .replay-mark").is_visible()


def test_a_comparison_that_is_stopped_keeps_what_was_played(visit: Visit) -> None:
    page = visit("Compare")
    page.get_by_label("number input for Episodes").fill("200")
    page.get_by_label("number input for Episodes").press("Tab")
    page.get_by_role("button", name="Compare").click()
    page.locator("#compare-scores .count").wait_for()
    page.get_by_role("button", name="Stop").locator("visible=true").click()
    time.sleep(1)
    said = page.locator("#compare-scores .count").inner_text()
    played = int(said.split()[0])
    assert said == f"{played} of 200 episodes"
    time.sleep(3)  # longer than a batch takes
    assert page.locator("#compare-scores .count").inner_text() == said
    assert (
        page.locator("#compare-scores").get_by_text("no interval under 30").count() == 0
    )  # rewards of 0 and 1 have one at any number


def test_a_visitor_plays_with_the_arrow_keys_and_sees_the_agent_and_the_optimum(visit: Visit) -> None:
    page = visit("Play")
    for key in ["Up", "Right", "Right", "Right"]:
        page.keyboard.press(f"Arrow{key}")
    page.locator("#play-board .results table").wait_for()
    assert page.locator("#play-board .replay-status").first.inner_text() == "The end: reward 0"
    rows = page.locator("#play-board .results tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["you", "lake-adapter", "optimal"]
    assert rows[1].split("\t")[1:] == ["+1", "6", "yes"]
    assert page.locator("#play-board .stage .board").count() == 1


def test_keys_pressed_faster_than_the_server_answers_are_all_played_in_order(visit: Visit) -> None:
    page = visit("Play")
    page.locator("#play-board .yours").wait_for()
    page.evaluate("""() => { for (const key of ['ArrowRight', 'ArrowDown', 'ArrowRight', 'ArrowRight'])
        document.querySelector('.yours').dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })); }""")
    page.locator("#play-board .replay-status").get_by_text("Turn 5 of 8").wait_for()
    assert (
        page.locator("#play-board use[href='#walker']")
        .evaluate("each => each.getAttribute('transform')")
        .startswith("translate(3.5 1.5)")
    )


def test_the_leaderboard_sorts_and_filters(visit: Visit) -> None:
    page = visit("Leaderboard")
    rewards = page.locator("#leaderboard tbody td:nth-child(4)")
    for falls in (True, False):
        page.get_by_role("button", name="Reward").click()
        values = [float(each.get_attribute("data-value") or "nan") for each in rewards.all()]
        assert len(values) > 20
        assert values == sorted(values, reverse=falls)
    assert page.locator("#leaderboard th[aria-sort=descending], #leaderboard th[aria-sort=ascending]").count() == 1
    pick(page, "Game", LAKE)
    page.wait_for_function("() => document.querySelectorAll('#leaderboard tbody tr').length < 10")
    assert set(page.locator("#leaderboard tbody td:first-child").all_inner_texts()) == {LAKE}


TABS = ["Watch", "Compare", "Play", "Rules", "Leaderboard"]


@pytest.mark.parametrize(("scheme", "width"), [("dark", 390), pytest.param("light", 1280, marks=pytest.mark.long)])
def test_nothing_is_wider_than_the_screen_and_axe_finds_no_serious_violation(visit: Visit, width: int, scheme: str) -> None:
    page = visit(width=width, height=844, scheme=scheme)
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        assert serious(page) == {}, tab
    heights = page.locator("#leaderboard tbody tr").evaluate_all("rows => rows.map((row) => row.offsetHeight)")
    assert max(heights) < 80  # figures are not broken into pieces


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
    page.get_by_role("button", name="Compare").click()
    page.locator("#compare-scores .count").get_by_text("50 episodes", exact=True).wait_for()
    assert serious(page) == {}
    page.get_by_role("tab", name="Play").click()
    page.locator("#play-board .yours").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.locator("#play-board .results table").wait_for()
    assert serious(page) == {}
    page.get_by_role("tab", name="Rules").click()
    pick(page, "Player", "greedy")
    page.get_by_role("button", name="Try it").click()
    page.get_by_text("This result came with the Space").wait_for(state="detached")
    page.locator("#rules-verdict .count").get_by_text("40 episodes", exact=True).wait_for()
    assert serious(page) == {}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
