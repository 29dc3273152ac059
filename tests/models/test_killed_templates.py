"""A foreign chat template renders in another process, and is stopped when it takes too long or too much memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.models import chat_templates
from msgrpo_hub.models.chat_templates import ChatTemplate, Worker, template_of, worker
from tests.models.loading import load, with_template, write_template

PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
SLOW = "{% if 'without end' in messages[-1]['content'] %}" + ENDLESS + "{% endif %}" + PLAIN
LARGE = "{% if 'without end' in messages[-1]['content'] %}{{ ('x' * 1000000000) | length }}{% endif %}" + PLAIN
POWER = "{% if 'without end' in messages[-1]['content'] %}{{ (8 + messages | length) ** (9 ** 9) }}{% endif %}" + PLAIN


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process and has /proc")
with_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timer of processor time and no such signals")


def process_of(template: ChatTemplate) -> subprocess.Popen[str]:
    process = worker(template.text).process
    assert process is not None
    return process


def ask(template: ChatTemplate, content: str) -> str:
    [text] = template.render([[{"role": "user", "content": content}]])
    return text


def in_a_thread(action: Callable[[], object]) -> object:
    """The error that an action raises in a thread other than the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(action).exception(60)


@with_signals
@pytest.mark.parametrize(
    ("template", "limit"),
    [(SLOW, "0.1 s"), (POWER, "0.1 s"), pytest.param(LARGE, "256 MB of memory", marks=on_linux)],
    ids=["loops", "computes without returning to Python", "fills the memory"],
)
def test_a_template_without_end_is_stopped_in_any_thread_and_a_new_process_continues(
    template: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_templates, "SECONDS", 0.1 if limit == "0.1 s" else chat_templates.SECONDS)
    foreign = template_of(with_template(template), "org/model", {})
    assert ask(foreign, "quick") == "quick"
    error = in_a_thread(lambda: ask(foreign, "without end"))
    expected = f"the chat template of 'org/model' is stopped: it takes more than {limit} for one prompt; expected "
    assert str(error).startswith(expected)
    assert ask(foreign, "quick") == "quick"


@with_signals
def test_the_parent_stops_a_process_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_templates, "PATIENCE", 0.2)
    monkeypatch.setattr(chat_templates, "SECONDS", 0.1)
    foreign = template_of(with_template(PLAIN), "org/model", {})
    os.kill(process_of(foreign).pid, signal.SIGSTOP)
    with pytest.raises(UserError, match=r"is stopped: it takes more than 0\.2 s by the clock"):
        ask(foreign, "quick")
    assert ask(foreign, "quick") == "quick"


def test_the_built_in_template_starts_no_process_and_a_foreign_one_starts_one_for_all_models() -> None:
    own = template_of(with_template((pocket_path() / "chat_template.jinja").read_text()), "pocket", {})
    assert worker(own.text).process is None
    first, second = (template_of(with_template(PLAIN), name, {}) for name in ("a", "b"))
    assert process_of(first).pid == process_of(second).pid


@with_signals
def test_the_process_ends_with_its_worker() -> None:
    one = Worker(PLAIN)
    assert one.render([[[{"role": "user", "content": "quick"}], {}]]) == [{"value": "quick"}]
    process = one.process
    assert process is not None
    del one
    assert process.wait(10) == -signal.SIGKILL


PARENT = """
import sys, threading
from msgrpo_hub.models.chat_templates import worker
for text in sys.argv[1:]:
    worker(text).render([[[{"role": "user", "content": "quick"}], {}]])
    print(worker(text).process.pid, flush=True)
threading.Thread(target=worker(sys.argv[2]).render, args=([[[{"role": "user", "content": "without end"}], {}]],)).start()
print("asked", flush=True)
sys.stdin.read()
"""


@on_linux
def test_the_process_ends_when_its_parent_is_killed() -> None:
    """An idle process sees the end of its input; a busy one has no parent to stop it, but its processor time is limited."""
    command, pipe = [sys.executable, "-c", PARENT, PLAIN, SLOW], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        workers = [Path(f"/proc/{int(parent.stdout.readline())}/cmdline") for _ in range(2)]
        assert parent.stdout.readline() == "asked\n"
        parent.kill()
    deadline = time.monotonic() + 20
    while any(file.exists() and b"template_worker" in file.read_bytes() for file in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@with_signals
def test_ctrl_c_leaves_the_process_to_its_parent() -> None:
    foreign = template_of(with_template(PLAIN), "m", {})
    before = process_of(foreign).pid
    os.kill(before, signal.SIGINT)
    assert ask(foreign, "quick") == "quick"
    assert process_of(foreign).pid == before


def test_all_new_prompts_of_a_turn_are_rendered_in_one_batch(
    folder: Path, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, batches = load(write_template(folder, PLAIN)), []
    render = Worker.render
    monkeypatch.setattr(Worker, "render", lambda self, items: batches.append(len(items)) or render(self, items))
    agent.encode(prompts)
    agent.encode(prompts)
    assert batches == [len(set(prompts))]
