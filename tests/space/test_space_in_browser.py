"""Every tab of the Space in a real browser, by mouse and by keyboard, on large and small screens."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import names
import players
import pytest
from axe_playwright_python.sync_playwright import Axe
from compare import compare
from leaderboard import leaderboard
from replay import FIRST, watch

from tests.browser import OpenPage
from tests.space.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
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


def fill(page: Page, label: str, value: str) -> None:
    """Fills an input of the open tab: clicks the name in a list that offers it, or enters anything else."""
    box = page.get_by_label(label, exact=True).locator("visible=true")
    offered = {each: names.game(each) for each in players.GAME_IDS} | {each: names.player(each) for each in names.PLAYERS}
    name = {**offered, "nobody": "nobody"}.get(value)
    box.fill(name or value)
    if name:
        page.locator(f"#{box.get_attribute('aria-controls')}").get_by_role("option", name=name, exact=True).click()
    else:
        box.press("Tab" if value.isdecimal() else "Enter")


def play_board(page: Page, number: int) -> None:
    fill(page, "Board", str(number))
    page.get_by_role("button", name="New game").click()
    page.get_by_text(f"Frozen Lake, board {number}").locator("visible=true").wait_for()


def is_accessible(page: Page, width: int) -> None:
    """Axe finds no serious violation, and nothing is wider than the screen."""
    page.wait_for_timeout(600)  # fading elements are done
    found = Axe().run(page).response
    assert len(found["passes"]) > 30
    bad = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    assert {each["id"]: [node["html"][:300] for node in each["nodes"]] for each in bad} == {}
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_tab_is_accessible_on_a_phone(visit: Visit) -> None:
    page = visit(width=390, height=844, scheme="dark")
    for tab in ("Watch", "Compare", "Play", "Rules", "Leaderboard"):
        page.get_by_role("tab", name=tab).click()
        is_accessible(page, 390)


def test_watch_plays_a_replay_without_the_server_and_then_another_game_and_player(visit: Visit) -> None:
    page = visit()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    steps, panel = watch(*FIRST)["players"][0]["steps"], "#watch-stage .replay-panel:nth-child(2)"
    page.locator("#watch-stage input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#watch-stage input[type=range]").input_value() == "1"
    page.get_by_role("button", name="Play", exact=True).locator("visible=true").click()
    page.wait_for_function("() => document.querySelector('#watch-stage .replay-turn').textContent.startsWith('the end')")
    ends = page.locator("#watch-stage .replay-status").all_inner_texts()
    assert ends == ["The end: fell into a hole, reward 0", "The end: reached the goal, reward +1"]
    assert page.locator(f"{panel} .replay-reply").text_content() == steps[-1]["reply"]
    assert page.locator(f"{panel} .replay-observation").text_content() == steps[-1]["prompt"]
    assert asked == []
    assert page.locator("#watch-stage .replay-legend li").all_inner_texts()[:3] == ["agent", "hole", "goal"]
    for label, value in (("Game", f"{SOLO}:reflected"), ("Board", "4"), ("Player", "greedy"), ("Next to", "nobody")):
        fill(page, label, value)
    page.locator("#watch-stage .stale").wait_for()  # the old replay is grey
    page.get_by_role("button", name="Watch", exact=True).click()
    page.locator("#watch-stage article[aria-label='greedy'] .board").wait_for()
    assert page.locator("#watch-stage .stale").count() == 0
    assert page.locator("#watch-stage .caption").inner_text() == f"Snake, alone – mirrored, board 4 {SOLO}:reflected"
    head = re.search(r"Your head: \((\d+), (\d+)\)", page.locator("#watch-stage .replay-observation").text_content() or "")
    assert head
    transform = page.locator("#watch-stage .replay-board circle.head.you").locator("..").get_attribute("transform") or ""
    assert transform.startswith(f"translate({int(head[2]) + 0.5} {int(head[1]) + 0.5})")


def test_an_address_opens_at_its_turn(visit: Visit) -> None:
    page = visit(at=f"?game={SOLO}&board=3&player=snake&turn=2")
    page.locator("#watch-stage .replay-turn").get_by_text("turn 2 of").wait_for()
    page.locator("#watch-stage article[aria-label='snake'] .board").wait_for()
    embedded = visit(at=f"?game={LAKE}&board=0&player=optimal&turn=3&view=embed")
    embedded.locator("#watch-stage .replay-turn").get_by_text("turn 3 of").wait_for()
    assert not embedded.get_by_role("tab", name="Play").is_visible()


def test_compare_shows_the_first_difference_and_the_scores_and_can_be_stopped(visit: Visit) -> None:
    page = visit("Compare", scheme="dark")
    page.locator("#compare-scores").get_by_text("This result came with the Space").wait_for()
    count = page.locator("#compare-scores .count")
    fill(page, "number input for Episodes", "40")
    page.get_by_role("button", name="Compare").click()
    count.get_by_text("40 episodes", exact=True).wait_for(timeout=180_000)
    said = page.locator("#compare-scores .verdict").inner_text()
    assert "B, trained on the lake (0.8 M), is better than A, untrained (0.8 M)." in said
    apart = page.locator("#compare-stage .replay-difference")
    wanted = int(apart.inner_text().removeprefix("First difference: turn ")) - 1
    film = next(compare(LAKE, 0, "pocket", "lake", 1))["film"]
    assert [player["steps"][wanted]["action"] in player["steps"][wanted]["best"] for player in film["players"]] != [True, True]
    apart.click()
    assert page.locator("#compare-stage input[type=range]").input_value() == str(wanted)
    is_accessible(page, 1280)
    fill(page, "number input for Episodes", "200")
    page.get_by_role("button", name="Compare").click()
    count.get_by_text("of 200 episodes").wait_for()
    page.get_by_role("button", name="Stop").locator("visible=true").click()
    count.get_by_text("Stopped after").wait_for()
    said = count.inner_text()
    time.sleep(3)  # longer than a batch takes
    assert count.inner_text() == said


def test_a_visitor_plays_with_the_arrow_keys_and_sees_the_agent_and_the_optimum(visit: Visit) -> None:
    page = visit("Play", width=390, height=844)
    play_board(page, 3)
    page.locator("#play-board .yours").focus()
    for key in ["Up", "Right", "Right", "Right"]:
        page.keyboard.press(f"Arrow{key}")
    page.locator("#play-board .results table").wait_for(timeout=180_000)  # the agent is loaded first
    assert page.locator("#play-board .replay-status").first.inner_text() == "The end: you fell into a hole, reward 0"
    rows = [row.split("\t") for row in page.locator("#play-board .results tbody tr").all_inner_texts()]
    assert [row[0] for row in rows] == ["you", "trained on the lake (0.8 M)", "optimal play"]
    assert rows[1][1:] == ["+1", "6", "yes"]
    assert page.locator("#play-board .results .verdict").inner_text() == "You 0, trained on the lake (0.8 M) 1"
    is_accessible(page, 390)
    page.get_by_role("button", name="Again").click()
    page.get_by_text("Turn 1 of 8").wait_for()
    press = """pressed => { for (const repeat of pressed) document.querySelector('.yours').dispatchEvent(
        new KeyboardEvent('keydown', { key: 'ArrowUp', repeat, bubbles: true })); }"""
    page.evaluate(press, [False] + [True] * 20)  # a key held down does not run ahead
    page.locator("#play-board .replay-status").get_by_text("Turn 2 of 8").wait_for()
    page.evaluate(press, [False] * 7)
    page.locator("#play-board .replay-status").get_by_text("The end: you ran out of turns after 8").wait_for()
    page.get_by_role("button", name="Next board").click()
    page.get_by_text("Frozen Lake, board 4").wait_for()


def test_the_rules_tab_opens_with_two_agents_and_judges_changed_rules(visit: Visit) -> None:
    page = visit("Rules", width=390, height=844, scheme="dark")
    verdicts = [f"{found['verdict'].capitalize()}." for found in players.bundled("rules").values()]
    assert page.locator("#rules-verdict .verdict .word").all_inner_texts() == verdicts
    fill(page, "Player", "greedy")
    fill(page, "Beside it", "nobody")
    page.get_by_role("button", name="Try it").click()
    page.locator("#rules-verdict .word").get_by_text("Does not read.").wait_for()
    page.locator("#rules-verdict .count").get_by_text("40 episodes", exact=True).wait_for()
    is_accessible(page, 390)


def test_the_leaderboard_sorts_filters_and_opens_replays(visit: Visit) -> None:
    page = visit("Leaderboard")
    assert page.locator("#leaderboard section").count() == len({row["task"] for row in leaderboard()})
    page.get_by_text("All figures in one table").click()
    page.locator("#leaderboard .all table").wait_for()
    rewards = page.locator("#leaderboard .all tbody td:nth-child(4)")
    for falls in (True, False):
        page.get_by_role("button", name="Reward").click()
        values = [float(each.get_attribute("data-value") or "nan") for each in rewards.all()]
        assert len(values) > 20
        assert values == sorted(values, reverse=falls)
    is_accessible(page, 1280)
    fill(page, "Game", LAKE)
    page.wait_for_function("() => document.querySelectorAll('#leaderboard section').length === 1")
    assert page.locator("#leaderboard h2 small").inner_text() == LAKE
    page.get_by_role("link", name="▶ replay of optimal").click()
    page.locator("#watch-stage article[aria-label='optimal'] .board").wait_for()
    assert "player=optimal" in page.url


def test_an_error_is_shown_as_text_and_fetches_nothing(visit: Visit) -> None:
    """The page fails the test when it asks another server for anything."""
    page = visit()
    for wrong in ('<img src="http://198.51.100.1/x"><b>bold', "a/b" * 30_000):
        fill(page, "Player", wrong)
        page.get_by_role("button", name="Watch", exact=True).click()
        said = page.get_by_test_id("toast-body").last
        said.get_by_text("expected one of").wait_for()
        assert said.locator("img, b").count() == 0
        assert len(said.inner_text()) < 500
        page.get_by_test_id("toast-close").first.click()
