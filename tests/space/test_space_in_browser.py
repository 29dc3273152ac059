"""Every tab of the Space in a real browser, by mouse and by keyboard."""

from __future__ import annotations

import re
import time

import players
from compare import OPENING, compare
from leaderboard import leaderboard
from replay import FIRST, watch

from tests.browser import OpenPage
from tests.space.pages import Visit, pick, play_board, ready, serious, turn, write
from tests.space.served import Served

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


def test_the_first_board_is_drawn_within_seconds(space: Served, open_page: OpenPage) -> None:
    """The aim is 3 s on two idle processors; 12 s in the best of three visits allows for slow and busy ones."""
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        page = open_page(space.url, inside=space.url)
        page.wait_for_selector("#watch-stage .board use[href='#walker']")
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 12


def test_a_replay_plays_to_its_end_without_asking_the_server(visit: Visit) -> None:
    page = visit()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    steps, panel = watch(*FIRST)["players"][0]["steps"], "#watch-stage .replay-panel:nth-child(2)"
    assert page.locator(f"{panel} .replay-reply").text_content() == steps[0]["reply"]
    page.locator("#watch-stage input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    assert turn(page, "#watch-stage") == 1
    page.get_by_role("button", name="Play", exact=True).locator("visible=true").click()
    page.wait_for_function("() => document.querySelector('#watch-stage .replay-turn').textContent.startsWith('the end')")
    ends = page.locator("#watch-stage .replay-status").all_inner_texts()
    assert ends == ["The end: fell into a hole, reward 0", "The end: reached the goal, reward +1"]
    assert page.locator(f"{panel} .replay-reply").text_content() == steps[-1]["reply"]
    assert page.locator(f"{panel} .replay-observation").text_content() == steps[-1]["prompt"]
    assert asked == []


def test_watch_plays_another_game_seed_and_player(visit: Visit) -> None:
    page = visit()
    stale = page.locator("#watch-stage .stale")
    pick(page, "Game", "Snake-Solo-v1:reflected")
    stale.wait_for()  # the old replay is grey
    page.get_by_label("Board", exact=True).locator("visible=true").fill("4")
    pick(page, "Player", "greedy")
    pick(page, "Next to", "nobody")
    page.get_by_role("button", name="Watch", exact=True).click()
    ready(page, "#watch-stage", "greedy")
    assert stale.count() == 0
    assert page.locator("#watch-stage .caption").inner_text() == "Snake, alone – mirrored, board 4 Snake-Solo-v1:reflected"
    told = page.locator("#watch-stage .replay-observation").text_content() or ""
    head = re.search(r"Your head: \((\d+), (\d+)\)", told)
    assert head
    transform = page.locator("#watch-stage .replay-board circle.head.you").locator("..").get_attribute("transform") or ""
    assert transform.startswith(f"translate({int(head[2]) + 0.5} {int(head[1]) + 0.5})")


def test_compare_shows_two_replays_the_divergence_and_both_scores(visit: Visit) -> None:
    page = visit("Compare", scheme="dark")
    page.locator("#compare-scores").get_by_text("This result came with the Space").wait_for()
    assert page.locator("#compare-scores .count").first.inner_text() == f"{OPENING[4]} episodes"
    page.get_by_label("number input for Episodes").fill("40")
    page.get_by_label("number input for Episodes").press("Tab")
    page.get_by_role("button", name="Compare").click()
    page.locator("#compare-scores .count").get_by_text("40 episodes", exact=True).wait_for(timeout=180_000)
    said = page.locator("#compare-scores .verdict").inner_text()
    assert "B, trained on the lake (0.8 M), is better than A, untrained (0.8 M)." in said
    assert page.locator("#compare-scores .whisker line:not(.axis)").count() == 4
    assert page.locator("#compare-stage .board").count() == 2
    apart = page.locator("#compare-stage .replay-difference")
    wanted = int((apart.inner_text()).removeprefix("First difference: turn ")) - 1
    film = next(compare(LAKE, 0, "pocket", "lake", 1))["film"]
    best = [player["steps"][wanted]["action"] in player["steps"][wanted]["best"] for player in film["players"]]
    assert best != [True, True]  # a real difference
    apart.click()
    assert turn(page, "#compare-stage") == wanted
    assert page.locator("#compare-stage .replay-mark").is_visible()
    assert serious(page) == {}


def test_an_address_opens_at_its_turn(visit: Visit) -> None:
    page = visit(at=f"?game={SOLO}&board=3&player=snake&turn=2.5")
    ready(page, "#watch-stage", "snake")
    page.locator("#watch-stage .replay-turn").get_by_text("turn 2 of").wait_for()
    game, board, player = FIRST
    opening = visit(at=f"?game={game}&board={board}&player={player}&beside=pocket&turn=3")
    opening.locator("#watch-stage .replay-turn").get_by_text("turn 3 of").wait_for()


def test_a_visitor_plays_with_the_arrow_keys_and_sees_the_agent_and_the_optimum(visit: Visit) -> None:
    page = visit("Play", width=390, height=844)
    play_board(page, 3)
    page.locator("#play-board .yours").focus()
    for key in ["Up", "Right", "Right", "Right"]:
        page.keyboard.press(f"Arrow{key}")
    page.locator("#play-board .results table").wait_for(timeout=180_000)  # the agent is loaded first
    assert page.locator("#play-board .replay-status").first.inner_text() == "The end: you fell into a hole, reward 0"
    rows = page.locator("#play-board .results tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["you", "trained on the lake (0.8 M)", "optimal play"]
    assert rows[1].split("\t")[1:] == ["+1", "6", "yes"]
    assert page.locator("#play-board .stage .board").count() == 1
    tally = page.locator("#play-board .results .verdict")
    assert tally.inner_text() == "You 0, trained on the lake (0.8 M) 1"
    assert serious(page) == {}
    page.get_by_role("button", name="Again").click()
    page.get_by_text("Turn 1 of 8").wait_for()
    for _ in range(8):
        page.keyboard.press("ArrowUp")
    page.locator("#play-board .results table").wait_for()
    assert tally.inner_text() == "You 0, trained on the lake (0.8 M) 2"
    page.get_by_role("button", name="Next board").click()
    page.get_by_text("Frozen Lake, board 4").wait_for()
    assert page.get_by_label("Board", exact=True).locator("visible=true").input_value() == "4"


PRESS = """pressed => { for (const [key, repeat] of pressed)
    document.querySelector('.yours').dispatchEvent(new KeyboardEvent('keydown', { key, repeat, bubbles: true })); }"""
"""Presses (key, whether it repeats because it is held down) at once."""


def test_a_whole_game_of_keys_at_once_is_played_and_a_key_held_down_does_not_run_ahead(visit: Visit) -> None:
    page = visit("Play")
    page.locator("#play-board .yours").wait_for()
    play_board(page, 3)
    page.evaluate(PRESS, [("ArrowUp", repeat) for repeat in [False] + [True] * 20])
    page.locator("#play-board .replay-status").get_by_text("Turn 2 of 8").wait_for()
    page.evaluate(PRESS, [("ArrowUp", False)] * 7)  # ends the game if the repeated keys were dropped
    page.locator("#play-board .replay-status").get_by_text("The end: you ran out of turns after 8").wait_for()
    page.locator("#play-board .results table").wait_for(timeout=180_000)
    assert page.locator("#play-board .results tbody tr").first.inner_text().split("\t")[:3] == ["you", "0", "8"]


def test_the_leaderboard_sorts_and_filters(visit: Visit) -> None:
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
    assert page.locator("#leaderboard th[aria-sort=descending], #leaderboard th[aria-sort=ascending]").count() == 1
    page.get_by_role("button", name="Rank").click()
    assert page.locator("#leaderboard .all tbody td:nth-child(3)").first.get_attribute("data-value") == "1"
    pick(page, "Game", LAKE)
    page.wait_for_function("() => document.querySelectorAll('#leaderboard section').length === 1")
    assert page.locator("#leaderboard h2 small").inner_text() == LAKE
    page.get_by_role("link", name="▶ replay of optimal").click()
    ready(page, "#watch-stage", "optimal")
    assert "player=optimal" in page.url
    page.goto(f"{page.url}&view=embed&turn=3&tab=Watch")
    ready(page, "#watch-stage", "optimal")
    assert page.locator("#watch-stage .replay-turn").inner_text().startswith("turn 3 of")
    assert not page.get_by_role("tab", name="Play").is_visible()
    page.goto(page.url.replace("&view=embed", ""))
    ready(page, "#watch-stage", "optimal")
    assert page.get_by_label("Player", exact=True).locator("visible=true").input_value() == "optimal play"


def test_an_error_is_shown_as_text_and_fetches_nothing(visit: Visit) -> None:
    """The page fails the test when it asks another server for anything."""
    page, name = visit(), '<img src="http://198.51.100.1/x"><b>bold'
    for wrong in (name, "../secrets", "a/b" * 30_000):
        write(page, "Player", wrong)
        page.get_by_role("button", name="Watch", exact=True).click()
        said = page.get_by_test_id("toast-body").last
        said.get_by_text("expected one of").wait_for()
        assert said.locator("img, b").count() == 0
        assert len(said.inner_text()) < 500
        page.get_by_test_id("toast-close").first.click()
    write(page, "Player", "random")
    page.get_by_label("Board", exact=True).locator("visible=true").fill("10000")
    page.get_by_role("button", name="Watch", exact=True).click()
    page.get_by_text("board '10000': expected a whole number from 0 to 9999").wait_for()


def test_the_rules_tab_opens_with_two_agents_and_judges_changed_rules(visit: Visit) -> None:
    page = visit("Rules", width=390, height=844, scheme="dark")
    verdicts = [f"{found['verdict'].capitalize()}." for found in players.bundled("rules").values()]
    assert page.locator("#rules-verdict .verdict .word").all_inner_texts() == verdicts
    assert page.locator("#rules-stage .board").count() == 2
    pick(page, "Player", "greedy")
    pick(page, "Beside it", "nobody")
    page.get_by_role("button", name="Try it").click()
    page.locator("#rules-verdict .word").get_by_text("Does not read.").wait_for()
    page.locator("#rules-verdict .count").get_by_text("40 episodes", exact=True).wait_for()
    assert serious(page) == {}
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_comparison_that_is_stopped_keeps_what_was_played(visit: Visit) -> None:
    page = visit("Compare")
    page.get_by_label("number input for Episodes").fill("200")
    page.get_by_label("number input for Episodes").press("Tab")
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("This result came with the Space").locator("visible=true").wait_for(state="detached")
    page.get_by_role("button", name="Stop").locator("visible=true").click()
    page.locator("#compare-scores .count").get_by_text("Stopped after").wait_for()
    said = page.locator("#compare-scores .count").inner_text()
    time.sleep(3)  # longer than a batch takes
    assert page.locator("#compare-scores .count").inner_text() == said
