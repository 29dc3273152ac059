"""Foreign chat templates render in another process. It is stopped when they take too long or too much memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.models import chat_templates
from msgrpo_hub.models.chat_templates import ChatTemplate, template_of
from tests.models.loading import load, with_template, write_template

PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
SLOW = "{% if 'without end' in messages[-1]['content'] %}" + ENDLESS + "{% endif %}" + PLAIN
LARGE = "{% if 'without end' in messages[-1]['content'] %}{{ ('x' * 1000000000) | length }}{% endif %}" + PLAIN
POWER = "{% if 'without end' in messages[-1]['content'] %}{{ (8 + messages | length) ** (9 ** 9) }}{% endif %}" + PLAIN

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process and has /proc")
with_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")


def process_of(template: ChatTemplate) -> int:
    """The process that renders a template."""
    assert ask(template, "quick") == "quick"
    assert chat_templates._process is not None
    return chat_templates._process.pid


def ask(template: ChatTemplate, content: str) -> str:
    [text] = template.render([[{"role": "user", "content": content}]])
    return text


@pytest.mark.parametrize(
    ("template", "limit"),
    [(SLOW, "0.2 s"), (POWER, "0.2 s"), pytest.param(LARGE, "256 MB of memory for one prompt", marks=on_linux)],
    ids=["loops", "computes without returning to Python", "fills the memory"],
)
def test_a_template_without_end_is_stopped_in_any_thread_and_a_new_process_continues(
    template: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign, other = (template_of(with_template(text), "org/model", {}) for text in (template, PLAIN))
    assert ask(foreign, "quick") == "quick"
    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        if limit == "0.2 s":
            patch.setattr(chat_templates, "SECONDS", 0.2)
        stopped, beside = pool.submit(ask, foreign, "without end"), pool.submit(ask, other, "quick")
        error = stopped.exception(60)
        assert beside.result(60) == "quick"  # of another template, in the same process or in the next
    assert str(error).startswith(f"the chat template of 'org/model' is stopped: it takes more than {limit}; expected ")
    assert ask(foreign, "quick") == "quick"


def test_the_built_in_template_starts_no_process_and_foreign_ones_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_templates, "_process", None)
    template_of(with_template((pocket_path() / "chat_template.jinja").read_text()), "pocket", {})
    assert chat_templates._process is None
    assert process_of(template_of(with_template(PLAIN), "a", {})) == process_of(template_of(with_template(SLOW), "b", {}))


PARENT = f"""
import sys
from msgrpo_hub.models import chat_templates
chat_templates.rendered_elsewhere({PLAIN!r}, [[[{{"role": "user", "content": "quick"}}], {{}}]])
print(chat_templates._process.pid, flush=True)
sys.stdin.read()
"""


@on_linux
def test_the_process_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        file = Path(f"/proc/{int(parent.stdout.readline())}/cmdline")
        assert b"template_worker" in file.read_bytes()
        parent.kill()
    deadline = time.monotonic() + 20
    while file.exists() and b"template_worker" in file.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@with_signals
def test_ctrl_c_leaves_the_process_to_its_parent_and_a_lost_process_is_replaced() -> None:
    foreign = template_of(with_template(PLAIN), "m", {})
    before = process_of(foreign)
    os.kill(before, signal.SIGINT)
    assert process_of(foreign) == before
    process = chat_templates._process
    assert process is not None
    process.kill()
    process.wait()
    assert process_of(foreign) != before


def test_ctrl_c_in_the_middle_of_a_batch_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = template_of(with_template(PLAIN), "m", {})
    before = process_of(foreign)
    process = chat_templates._process
    assert process is not None
    with monkeypatch.context() as patch:
        patch.setattr("json.dumps", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ask(foreign, "quick")
    assert process.wait(20)
    assert process_of(foreign) != before


def test_all_new_prompts_of_a_turn_are_rendered_in_one_batch(
    folder: Path, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, batches, render = load(write_template(folder, PLAIN)), [], chat_templates.rendered_elsewhere
    monkeypatch.setattr(
        chat_templates, "rendered_elsewhere", lambda text, items: batches.append(len(items)) or render(text, items)
    )
    agent.encode(prompts)
    agent.encode(prompts)
    assert batches == [len(set(prompts))]
