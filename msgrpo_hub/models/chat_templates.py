"""Chat templates: messages become the text of a prompt. A foreign template renders in a process that can be stopped.

A template is a program in Jinja's sandbox, and it can loop forever or fill the memory. One lasting process per foreign template
renders batches of prompts (`models.template_worker`). The system limits the processor time and the memory of that process, and
this module limits its time by the clock. The template of the built-in base renders in this process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgrpo_hub.agent.action import opened_thought
from msgrpo_hub.agent.prompt_formats import Message, conversation
from msgrpo_hub.downloads.inspection import Scalar
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.models import template_worker

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SECONDS = 1.0
"""Processor time that a foreign template may take for one prompt. Known templates take a millisecond."""
MEMORY = 256 * 2**20
"""Bytes that a foreign template may take, on top of what its process takes at its start."""
PATIENCE = 10.0
"""Seconds by the clock for one prompt, for systems that cannot limit processor time. A busy machine is slower than its clock."""

THINKING_OFF: dict[str, tuple[Scalar, ...]] = {
    "enable_thinking": (False,),
    "thinking": (False,),
    "reasoning_effort": ("none", "no_think", "low"),
}
"""Variable with which templates switch thinking → values for none. The first that a template names is used, else the last."""

_RULES, _OBSERVATION, _REQUEST, _REPLY = "these are the rules", "this is observed", "this is requested", "this is replied"
_PROMPT = conversation(_RULES, (), _OBSERVATION, _REQUEST)
_ANSWERED: list[Message] = [*_PROMPT, {"role": "assistant", "content": _REPLY}]
"""A conversation that every template is tried on."""

log = logging.getLogger(__name__)


class Renderer(Protocol):
    """Runs tasks of `template_worker` with one template."""

    @property
    def template(self) -> str:
        """The Jinja template."""

    def run(self, task: str, items: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """One answer per item: its `value`, or the `error` that the template raised."""


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """A template with the variables of its model."""

    source: str
    """The model or file it came from, for messages."""
    variables: Mapping[str, Any]
    """The tokenizer's special tokens, and the switches chosen for the template."""
    renderer: Renderer
    system_role: bool
    """Whether it renders system messages."""
    opening: str = ""
    """The opening marker of thoughts with which its prompts end; empty if the model writes the marker."""
    parts: bool = False
    """Whether it takes the content of a message as a list of parts, as models that read images do, and not as a text."""
    turn_end: str = ""
    """What it writes after a reply."""

    def render(self, conversations: Sequence[Sequence[Message]]) -> list[str]:
        """The texts of conversations, in one batch. Without a system role, the system text precedes the user's.

        Raises:
            UserError: the template raises an error for a conversation, or exceeds its limits.
        """
        answers = self.answers(conversations)
        for answer in answers:
            if "error" in answer:
                raise _broken(self.source, answer["error"])
        return [answer["value"] for answer in answers]

    def answers(self, conversations: Sequence[Sequence[Message]], generation_prompt: bool = True) -> list[dict[str, Any]]:
        """The text of each conversation as `value`, or the `error` that the template raises for it."""
        kept: Sequence[Sequence[Mapping[str, Any]]] = conversations
        if not self.system_role:
            kept = [merge_system(messages) for messages in conversations]
        if self.parts:
            kept = [[{**one, "content": [{"type": "text", "text": one["content"]}]} for one in messages] for messages in kept]
        return _run(self.renderer, self.source, "render", [[messages, self.variables, generation_prompt] for messages in kept])

    def thinking_off(self) -> dict[str, Scalar]:
        """The variables that keep the model from thinking by itself: those of `THINKING_OFF` that change the prompt."""
        [read] = _run(self.renderer, self.source, "find_variables", [[]])
        [prompt], off, text = self.answers([_PROMPT]), dict[str, Scalar](), self.renderer.template
        for name in (name for name in THINKING_OFF if name in read["value"]):
            values = THINKING_OFF[name]
            value = next((value for value in values if f"'{value}'" in text or f'"{value}"' in text), values[-1])
            [answer] = replace(self, variables={**self.variables, **off, name: value}).answers([_PROMPT])
            if "value" in answer and answer != prompt:
                prompt, off = answer, off | {name: value}
        return off

    def log_unused(self, switches: Iterable[str]) -> None:
        """Logs one line for each variable that the template never reads."""
        if names := set(switches):
            [answer] = _run(self.renderer, self.source, "find_variables", [[]])
            for name in sorted(names - set(answer["value"])):
                log.warning("chat_template_kwargs: the chat template of %r never reads %r", self.source, name)


def set_template(tokenizer: PreTrainedTokenizerBase, file: str) -> PreTrainedTokenizerBase:
    """Gives a tokenizer the chat template of a file, and returns it. Raises `UserError` if the file cannot be read."""
    try:
        tokenizer.chat_template = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the chat template {file!r} ({error.strerror}): expected a Jinja file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"the chat template {file!r} is not text: expected a Jinja file in UTF-8") from error
    except ValueError as error:
        raise UserError(f"cannot read the chat template {file!r} ({error}): expected a Jinja file") from error
    return tokenizer


def template_of(tokenizer: PreTrainedTokenizerBase, source: str, switches: Mapping[str, Scalar]) -> ChatTemplate:
    """The chat template of a tokenizer, tried on a short conversation.

    System texts become part of the user's message, and texts become lists of parts, where only that shows them to the model.

    Args:
        tokenizer: the tokenizer, with a chat template.
        source: the model it came from, for messages.
        switches: variables of the template, such as `enable_thinking`.

    Raises:
        UserError: the template drops the rules, the observation or the request, does not start the reply, or exceeds its limits.
    """
    if not tokenizer.chat_template:
        raise UserError(f"{source!r} has no chat template: pass one with --chat-template FILE (Jinja)")
    try:
        text = tokenizer.get_chat_template()
    except ValueError as error:
        raise _broken(source, str(error).partition("!")[0]) from error
    renderer, variables = renderer_of(text), {**tokenizer.special_tokens_map, **switches}
    answers, expected = [], {"rules": _RULES, "observation": _OBSERVATION, "request": _REQUEST}
    for parts, system_role in product((False, True), (True, False)):
        template = ChatTemplate(source=source, variables=variables, renderer=renderer, system_role=system_role, parts=parts)
        answers += template.answers([_PROMPT])
        shown = answers[-1].get("value", "")
        written_out = any(f"{quote}type{quote}: {quote}text{quote}" in shown for quote in "'\"")  # the list of parts itself
        if all(part in shown for part in expected.values()) and not written_out:
            return replace(template, opening=opened_thought(shown), turn_end=_turn_end(template, shown))
    plain = answers[1]
    if "error" in plain:
        raise _broken(source, plain["error"])
    dropped = ", ".join(f"the {name}" for name, part in expected.items() if part not in plain["value"])
    raise UserError(
        f"the chat template of {source!r} drops {dropped}: expected one that renders the content of system and user messages; "
        "pass another with --chat-template FILE"
    )


def _turn_end(template: ChatTemplate, prompt: str) -> str:
    """What a template writes after a reply. Raises `UserError` if its prompt lacks what it writes before one."""
    [bare], [answered] = (template.answers([messages], generation_prompt=False) for messages in (_PROMPT, _ANSWERED))
    text: str = answered.get("value", "")
    before, replied, after = text.rpartition(_REQUEST)[2].partition(_REPLY)
    added = bare.get("value") != prompt  # else the reply must follow the request directly, as after Mistral's [/INST]
    if replied and not added and not prompt.rpartition(_REQUEST)[2].startswith(before.rstrip()):
        raise UserError(
            f"the chat template of {template.source!r} adds no generation prompt: expected {before!r} after the request, as "
            "before assistant messages, where add_generation_prompt is true; pass another with --chat-template FILE"
        )
    return after


def renderer_of(template: str) -> Renderer:
    """Renders the built-in base's own template here, and every other one in a process of its own."""
    return _InProcess(template) if template == pocket_template() else _PROCESSES.setdefault(template, _Process(template))


def _run(renderer: Renderer, source: str, task: str, items: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    try:
        return renderer.run(task, items)
    except _Stopped as stopped:
        raise UserError(f"the chat template of {source!r} is stopped: it {stopped}") from None


def _broken(source: str, error: str) -> UserError:
    return UserError(f"the chat template of {source!r} does not work ({error}): expected a Jinja template that renders messages")


@cache
def pocket_template() -> str:
    """The chat template of the built-in base."""
    return (pocket_path() / "chat_template.jinja").read_text(encoding="utf-8")


@dataclass(frozen=True)
class _InProcess:
    """A template of this package."""

    template: str

    def run(self, task: str, items: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        return [template_worker.answer(task, self.template, arguments) for arguments in items]


class _Stopped(Exception):  # noqa: N818
    """A template exceeded a limit; the text is a predicate."""


@dataclass(eq=False)
class _Process:
    """A foreign template in a process, which is started when needed and ends with this object or this process."""

    template: str
    _running: subprocess.Popen[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, task: str, items: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """Raises `_Stopped` if an item exceeds a limit; the next call starts a new process."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with _Watch(process) as watch:
                    process.stdin.write(json.dumps({"task": task, "items": items}) + "\n")
                    process.stdin.flush()
                    answers = [watch.next_line() for _ in items]
            except (EOFError, BrokenPipeError):
                raise _Stopped(watch.reason()) from None
            except BaseException:
                process.kill()  # in the middle of a batch: the next call would read its answers
                raise
            return [json.loads(line) for line in answers]

    def _started(self) -> subprocess.Popen[str]:
        if self._running is None or self._running.poll() is not None:
            self._running = _start_worker(self.template)
            weakref.finalize(self, _end, self._running)
        return self._running


_PROCESSES: weakref.WeakValueDictionary[str, _Process] = weakref.WeakValueDictionary()
"""Template → the process that renders it, as long as a model uses it."""


def _start_worker(template: str) -> subprocess.Popen[str]:
    """Starts a process for a template and waits until it is ready."""
    program = [sys.executable, "-P", template_worker.__file__, str(SECONDS), str(MEMORY)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(program, **pipes, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    if not process.stdout.readline():
        _end(process)
        raise UserError(
            f"the process that renders chat templates does not start (status {process.returncode}): "
            "expected a complete installation of transformers; install msgrpo_hub again"
        )
    process.stdin.write(json.dumps(template) + "\n")
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()  # closes its pipes and takes its exit status


class _Watch:
    """Reads the answers of a process, and kills it if one takes longer than `PATIENCE`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._asked, self._late = process, time.monotonic(), False
        self._ended = threading.Event()

    def __enter__(self) -> _Watch:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def next_line(self) -> str:
        """The next answer. Raises `EOFError` if the process has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError
        self._asked = time.monotonic()
        return line

    def reason(self) -> str:
        """Why the process has ended."""
        self._process.kill()
        status = self._process.wait()
        if self._late:
            return f"takes more than {PATIENCE:g} s by the clock for one prompt; expected a template that terminates"
        if hasattr(signal, "SIGPROF") and status == -signal.SIGPROF:
            return f"takes more than {SECONDS:g} s for one prompt; expected a template that terminates"
        if status == template_worker.OUT_OF_MEMORY:
            return f"takes more than {MEMORY // 2**20} MB of memory for one prompt; expected a smaller template"
        return f"ends its process with status {status}; expected a Jinja template that renders messages"

    def _watch(self) -> None:
        while not self._ended.wait(max(0.01, self._asked + PATIENCE - time.monotonic())):
            if time.monotonic() > self._asked + PATIENCE:
                self._late = True
                self._process.kill()
                return


def merge_system(messages: Sequence[Message]) -> list[Message]:
    """Messages for a template without a system role: each system text is prepended to the next user message."""
    merged: list[Message] = []
    pending: list[str] = []
    for message in messages:
        if message["role"] == "system":
            pending.append(message["content"])
            continue
        if pending and message["role"] == "user":
            merged.append({"role": "user", "content": "\n\n".join([*pending, message["content"]])})
        else:
            merged += [*_as_user(pending), message]
        pending = []
    return merged + _as_user(pending)


def _as_user(texts: list[str]) -> list[Message]:
    return [{"role": "user", "content": "\n\n".join(texts)}] if texts else []
