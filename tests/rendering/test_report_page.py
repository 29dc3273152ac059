"""The report in a real browser: charts, the replay and its controls, hostile text, small screens and dark themes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from msgrpo_hub.rendering.report import report_page, write_report
from tests.browser import OpenPage
from tests.rendering.reported import ADAPTER, BASE, CORRIDOR, HOSTILE, LAKE, MIRRORED, failed_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

TASKS = (CORRIDOR, LAKE, MIRRORED)


@pytest.fixture(scope="module")
def path(report_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(report_folder, tmp_path_factory.mktemp("page") / "report.html")


PLAYER_A, SLIDER = ".replay-panel:nth-child(1)", ".replay input[type=range]"


def turn(page: Page) -> int:
    return int(page.input_value(SLIDER))


def choose(page: Page, task: str, a: str = BASE, b: str = ADAPTER) -> None:
    page.select_option("#choose-task", label=task)
    page.select_option("#choose-a", label=a)
    page.select_option("#choose-b", label=b)


def shown(page: Page) -> dict[str, Any]:
    """The data of the two episodes that are replayed."""
    found: dict[str, Any] = page.evaluate("({a: episodeOf('a'), b: episodeOf('b')})")
    return found


def test_every_chart_is_drawn_and_the_replay_begins_with_the_base_and_its_adapter(path: Path, open_page: OpenPage) -> None:
    page = open_page(path)
    sizes = page.evaluate("[...document.querySelectorAll('.chart')].map((each) => [each.naturalWidth, each.clientWidth])")
    assert len(sizes) == len(TASKS)
    assert all(natural > 600 and shown > 900 for natural, shown in sizes)
    assert page.locator(".board").count() == 2
    for task in TASKS:
        page.select_option("#choose-task", label=task)
        assert page.locator(".replay-panel h3").all_inner_texts() == [BASE, ADAPTER]


def test_slider_keys_and_buttons_step_the_boards(path: Path, open_page: OpenPage) -> None:
    page = open_page(path)
    choose(page, LAKE)
    places = [state["walker"] for state in shown(page)["a"]["states"]]

    def place() -> list[float]:
        told = page.locator(f"{PLAYER_A} use[href='#walker']").get_attribute("transform") or ""
        return [float(part) for part in told[len("translate(") :].split(")")[0].split()]

    for number, walker in enumerate(places):
        assert turn(page) == number
        assert place() == [walker % 4 + 0.5, walker // 4 + 0.5]
        page.keyboard.press("ArrowRight")
    page.locator(SLIDER).focus()
    page.keyboard.press("ArrowLeft")
    steps = turn(page)
    page.click(".replay-back")
    assert turn(page) == steps - 1
    page.click(".replay-forward")
    assert turn(page) == steps
    page.locator(SLIDER).fill("1")
    assert page.inner_text(".replay-turn").startswith("turn 2 of")
    button = page.locator(f"section:has(h2:text-is('{MIRRORED}')) .show:enabled").first  # a worst episode
    player, seed = button.get_attribute("data-player"), button.get_attribute("data-seed")
    button.click()
    assert page.evaluate("[task().title, seed().seed, DATA.players[chosen.a]]") == [MIRRORED, seed, player]


def test_play_runs_to_the_end_and_pauses(path: Path, open_page: OpenPage) -> None:
    page = open_page(path)
    page.clock.install(time=0)
    page.clock.pause_at(3_600)  # only run_for moves the clock from here
    choose(page, LAKE)
    page.click(".replay-play")
    page.clock.run_for(2_500)
    page.click(".replay-play")
    page.clock.run_for(5_000)
    assert turn(page) == 2
    page.click(".replay-play")
    page.clock.run_for(60_000)
    assert turn(page) == int(page.get_attribute(SLIDER, "max") or 0) > 2
    assert page.inner_text(f"{PLAYER_A} .replay-status").startswith("The end: ")
    page.click(".replay-play")  # from the end, it begins again
    assert turn(page) == 0


def test_the_first_difference_is_the_first_turn_with_other_actions_and_is_marked(path: Path, open_page: OpenPage) -> None:
    page = open_page(path)
    choose(page, MIRRORED)
    for index in range(page.locator("#choose-seed option").count()):
        page.select_option("#choose-seed", index=index)
        a, b = ([step["action"] for step in shown(page)[side]["steps"]] for side in "ab")
        expected = next((t for t, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        page.click(".replay-difference")
        assert turn(page) == expected
    page.select_option("#choose-b", label=BASE)
    assert page.locator(".replay-difference").is_disabled()
    assert page.locator(".replay-mark").is_hidden()
    page.select_option("#choose-b", label="nobody")
    assert page.locator(".board").count() == 1


def test_each_turn_tells_reply_action_moves_reward_and_regret(path: Path, open_page: OpenPage) -> None:
    page = open_page(path)
    choose(page, LAKE)
    actions, episode = page.evaluate("task().actions"), shown(page)["a"]
    reward = regret = 0.0
    for step in episode["steps"]:
        panel = page.locator(PLAYER_A)
        assert panel.locator(".replay-reply").text_content() == step["reply"]
        items = panel.locator(".replay-actions li").all()
        classes = {item.evaluate("each => each.firstChild.data"): item.get_attribute("class") or "" for item in items}
        assert [name for name, kinds in classes.items() if "is-chosen" in kinds] == [
            action for index, action in enumerate(actions) if index == step["action"]
        ]
        assert {name for name, kinds in classes.items() if "is-illegal" not in kinds} == {actions[i] for i in step["legal"]}
        if len(step["best"]) < 4:
            assert {name for name, kinds in classes.items() if "is-best" in kinds} == {actions[i] for i in step["best"]}
            assert panel.locator(".replay-board circle.best").count() == len(step["best"])
        assert panel.locator(".replay-board circle.legal").count() == len(step["legal"])
        sums = panel.locator(".replay-totals b").all_inner_texts()
        assert [float(told) for told in sums] == pytest.approx([reward, step["reward"], regret, step["regret"]], abs=1e-3)
        reward, regret = reward + step["reward"], regret + step["regret"]
        page.keyboard.press("ArrowRight")


def test_a_mirrored_snake_and_a_game_of_another_package_are_drawn(path: Path, open_page: OpenPage) -> None:
    page = open_page(path)
    choose(page, MIRRORED)
    state = shown(page)["a"]["states"][0]
    apples = [use.bounding_box() for use in page.locator(f"{PLAYER_A} .board use[href^='#piece']").all()]
    assert len(apples) == len(state["pieces"]["A"]) == 5
    assert all(box and box["width"] > 5 for box in apples)
    assert page.locator(f"{PLAYER_A} .board circle.head").count() == 2
    choose(page, CORRIDOR)
    assert sorted(page.locator(f"{PLAYER_A} .board use").evaluate_all("all => all.map(u => u.getAttribute('href'))")) == sorted(
        ["#piece-121-111-117-64"]
    )  # "you@", a letter on a tile
    assert page.locator(f"{PLAYER_A} .board text").all_text_contents() == ["D"]  # a symbol that the game does not explain


def test_hostile_replies_and_names_are_shown_as_text(path: Path, open_page: OpenPage) -> None:
    page = open_page(path)
    data = page.evaluate("DATA")
    found = [
        (task, seed, player, number)
        for task, each in enumerate(data["tasks"])
        for seed, one in enumerate(each["seeds"])
        for player, episode in one["episodes"].items()
        for number, step in enumerate(episode["steps"])
        if step["reply"] == HOSTILE
    ]
    assert {task for task, *_ in found} == {0, 1, 2}
    for task, seed, player, number in found[:: len(found) // 10]:
        page.select_option("#choose-task", str(task))
        page.select_option("#choose-seed", str(seed))
        page.select_option("#choose-a", player)
        page.locator(SLIDER).fill(str(number))
        assert page.locator(f"{PLAYER_A} .replay-reply").text_content() == HOSTILE
        assert page.inner_text(f"{PLAYER_A} .replay-status") == "Unparsed: no action found in the reply"
    page.select_option("#choose-a", label=ADAPTER)
    assert page.inner_text(f"{PLAYER_A} h3") == ADAPTER
    assert page.locator("img:not(.chart)").count() == 0
    assert page.locator("script").count() == 2
    assert page.evaluate("typeof pwned") == "undefined"


def test_the_policy_of_the_page_runs_no_script_but_ours(path: Path, tmp_path: Path, chromium: Browser) -> None:
    """If a mistake of the template lets markup through, the browser does not run it."""
    attacked = tmp_path / "attacked.html"
    attacked.write_text(path.read_text(encoding="utf-8").replace("<footer>", f"<footer>{HOSTILE}"), encoding="utf-8")
    page = chromium.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(attacked.as_uri())
    assert page.locator("img:not(.chart)").count() == 1
    assert page.evaluate("typeof pwned") == "undefined"
    assert sum("Content Security Policy" in text for text in said) >= 2
    page.close()


# ---- small screens, dark themes, reduced motion, screen readers, no scripts, few results


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_the_screen_and_axe_finds_no_violation(path: Path, open_page: OpenPage, width: int, scheme: str) -> None:
    page = open_page(path, width=width, scheme=scheme)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]
    for b in (ADAPTER, "nobody"):
        choose(page, LAKE, b=b)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        wide = page.evaluate("[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth)")
        assert width > 390 or not wide  # on a phone a row is a card
        found = Axe().run(page).response
        assert "color-contrast" in {each["id"] for each in found["passes"]}
        assert {each["id"]: [node["html"][:200] for node in each["nodes"]] for each in found["violations"]} == {}


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_pieces_glide_unless_the_reader_prefers_reduced_motion(path: Path, open_page: OpenPage, motion: str) -> None:
    page = open_page(path, reduced_motion=motion)
    choose(page, MIRRORED)
    moving = page.evaluate(
        "() => { byId('stage').querySelector('.replay-forward').click(); return document.getAnimations().length; }"
    )
    assert turn(page) == 1
    assert (moving > 0) == (motion == "no-preference")


def test_without_scripts_tables_and_plots_are_there_and_the_replay_is_not(path: Path, open_page: OpenPage) -> None:
    page = open_page(path, java_script_enabled=False)
    assert page.locator("table:visible").count() >= 8
    assert page.locator(".chart:visible").count() == 3
    assert page.locator("#replay").is_hidden()
    assert page.get_by_text("Replays need JavaScript").is_visible()
    assert page.locator(".show:enabled").count() == 0


def test_results_without_any_episode_are_a_page_without_replay(tmp_path: Path, open_page: OpenPage) -> None:
    silent = tmp_path / "silent.html"
    silent.write_text(report_page([failed_run(tmp_path, every=1)]), encoding="utf-8")
    page = open_page(silent)
    assert page.locator("#replay").is_hidden()
    assert page.get_by_text("30 of 30 episodes are missing").is_visible()
