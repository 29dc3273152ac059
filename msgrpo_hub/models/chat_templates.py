"""Chat templates: messages become the text of a prompt. A foreign template renders in a process that can be killed.

A template is a program in Jinja's sandbox; it can loop forever or fill the memory. So another process renders all foreign
templates (`models.template_worker`). The system limits its memory, and this module its time. The template of the built-in base
renders in this process.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgrpo_hub.agent.action import OPENED
from msgrpo_hub.agent.prompt_formats import Message, conversation
from msgrpo_hub.downloads.inspection import Scalar
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.models import template_worker

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SECONDS = 10.0
"""Seconds that foreign templates may take for a batch, beyond a tenth for each prompt; known ones take a millisecond."""
MEMORY = 256 * 2**20
"""Bytes that foreign templates may take beyond what their process takes at its start."""

THINKING_OFF: dict[str, tuple[Scalar, ...]] = {
    "enable_thinking": (False,),
    "thinking": (False,),
    "reasoning_effort": ("none", "no_think", "low"),
}
"""Variables that switch thinking off → their values. The first value named in the template is used, else the last."""

_RULES, _OBSERVATION, _REQUEST, _REPLY = "these are the rules", "this is observed", "this is requested", "this is replied"
_PROMPT = conversation(_RULES, (), _OBSERVATION, _REQUEST)
"""Every template is tried on this conversation."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """A Jinja template with its variables."""

    text: str
    """The template."""
    source: str
    """The model or file it came from, for messages."""
    variables: Mapping[str, Any]
    """The tokenizer's special tokens, and the chosen switches such as `enable_thinking`."""
    system_role: bool
    """Whether it renders system messages."""
    parts: bool = False
    """Whether it takes the content of a message as a list of parts, as multimodal models do, and not as a text."""
    opening: str = ""
    """The opening marker of thoughts at the end of its prompts; empty if the model writes the marker."""
    turn_end: str = ""
    """The text it writes after a reply."""

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

    def answers(self, conversations: Sequence[Sequence[Message]], generation_prompt: bool = True) -> list[dict[str, str]]:
        """The text of each conversation as `value`, or the `error` that the template raises for it."""
        batch: Sequence[Sequence[Mapping[str, Any]]] = conversations
        if not self.system_role:
            batch = [merge_system(messages) for messages in conversations]
        if self.parts:
            batch = [[{**one, "content": [{"type": "text", "text": one["content"]}]} for one in messages] for messages in batch]
        items = [(messages, self.variables, generation_prompt) for messages in batch]
        if self.text == pocket_template():
            return [template_worker.answer(self.text, *item) for item in items]
        answers = rendered_elsewhere(self.text, items)
        if isinstance(answers, str):
            raise UserError(f"the chat template of {self.source!r} is stopped: it {answers}")
        return answers

    def thinking_off(self) -> dict[str, Scalar]:
        """The variables in `THINKING_OFF` that change the prompt, with the values that switch thinking off."""
        [prompt], off = self.answers([_PROMPT]), dict[str, Scalar]()
        for name, values in THINKING_OFF.items():
            if self.reads(name):
                value = next((value for value in values if re.search(f"['\"]{value}['\"]", self.text)), values[-1])
                [answer] = replace(self, variables={**self.variables, **off, name: value}).answers([_PROMPT])
                if "value" in answer and answer != prompt:
                    prompt, off = answer, off | {name: value}
        return off

    def reads(self, variable: str) -> bool:
        """Whether the template contains a variable."""
        return re.search(rf"\b{re.escape(variable)}\b", self.text) is not None


def _broken(source: str, error: str) -> UserError:
    return UserError(f"the chat template of {source!r} does not work ({error}): expected a Jinja template that renders messages")


def read_template(file: str) -> str:
    """The content of a template file. Raises `UserError` if it cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise UserError(f"cannot read the chat template {file!r} ({why}): expected a Jinja file") from error


def template_of(tokenizer: PreTrainedTokenizerBase, source: str, switches: Mapping[str, Scalar]) -> ChatTemplate:
    """The chat template of a tokenizer, tried on a short conversation.

    If the template drops a text otherwise, system texts become part of the user's message, or texts become lists of parts.

    Args:
        tokenizer: the tokenizer, with a chat template.
        source: the model it came from, for messages.
        switches: variables of the template, such as `enable_thinking`.

    Raises:
        UserError: the template drops the rules, the observation or the request, adds no generation prompt, or exceeds its
            limits.
    """
    if not tokenizer.chat_template:
        raise UserError(f"{source!r} has no chat template: pass one with --chat-template FILE (Jinja)")
    try:
        text = tokenizer.get_chat_template()
    except ValueError as error:
        raise _broken(source, str(error).partition("!")[0]) from error
    variables = {**tokenizer.special_tokens_map, **switches}
    answers, expected = [], {"rules": _RULES, "observation": _OBSERVATION, "request": _REQUEST}
    for parts, system_role in product((False, True), (True, False)):
        template = ChatTemplate(text=text, source=source, variables=variables, system_role=system_role, parts=parts)
        answers += template.answers([_PROMPT])
        prompt = answers[-1].get("value", "")
        has_list = any(f"{quote}type{quote}: {quote}text{quote}" in prompt for quote in "'\"")  # wrote the list itself
        if all(part in prompt for part in expected.values()) and not has_list:
            answered_prompt: list[Message] = [*_PROMPT, {"role": "assistant", "content": _REPLY}]
            bare, answered = template.answers([_PROMPT, answered_prompt], generation_prompt=False)
            before, replied, turn_end = answered.get("value", "").rpartition(_REQUEST)[2].partition(_REPLY)
            # Without a generation prompt the reply must follow the request directly, as after Mistral's [/INST].
            follows = prompt.rpartition(_REQUEST)[2].startswith(before.rstrip())
            if replied and bare.get("value") == prompt and not follows:
                raise UserError(
                    f"the chat template of {source!r} adds no generation prompt: expected {before!r} after the request where "
                    "add_generation_prompt is true; pass another with --chat-template FILE"
                )
            opening = OPENED.search(prompt)
            return replace(template, opening=opening[0] if opening else "", turn_end=turn_end)
    plain = answers[1]
    if "error" in plain:
        raise _broken(source, plain["error"])
    dropped = ", ".join(f"the {name}" for name, part in expected.items() if part not in plain["value"])
    raise UserError(
        f"the chat template of {source!r} drops {dropped}: expected one that renders the content of system and user messages; "
        "pass another with --chat-template FILE"
    )


@cache
def pocket_template() -> str:
    """The chat template of the built-in base."""
    return (pocket_path() / "chat_template.jinja").read_text(encoding="utf-8")


_process: subprocess.Popen[str] | None = None
"""The process of foreign templates, started when needed. It ends with this process, which closes its input."""
_lock = threading.Lock()


def rendered_elsewhere(template: str, items: Sequence[Sequence[Any]]) -> list[dict[str, str]] | str:
    """The process's answer to each item, or the limit that an item exceeds, in words; the next call starts a new process then.

    Args:
        template: a Jinja template.
        items: messages, variables, and whether a generation prompt follows.
    """
    global _process
    with _lock:
        process = _process
        if process is None or process.poll() is not None:
            program = [sys.executable, "-P", template_worker.__file__, str(MEMORY)]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen(program, **pipes, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, text=True)
            assert process.stdout is not None
            process.stdout.readline()  # it is ready: its start takes none of the time below
            _process = process
        assert process.stdin is not None
        assert process.stdout is not None
        late, kill = threading.Event(), process.kill

        def stop() -> None:
            late.set()
            kill()

        watch = threading.Timer(SECONDS + len(items) / 10, stop)
        watch.daemon = True
        watch.start()
        lines: list[str] = []
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps([template, items]) + "\n")
                process.stdin.flush()
                lines = [process.stdout.readline() for _ in items]
        finally:
            watch.cancel()
            is_whole = len(lines) == len(items) and all(lines)
            if not is_whole:  # also after Ctrl-C in the middle of a batch: the next call would read its answers
                kill()
                process.communicate()  # closes its pipes
    if is_whole:
        return [json.loads(line) for line in lines]
    if late.is_set():
        return f"takes more than {SECONDS:g} s; expected a template that terminates"
    if process.returncode == template_worker.OUT_OF_MEMORY:
        return f"takes more than {MEMORY // 2**20} MB of memory for one prompt; expected a smaller template"
    return f"ends its process with status {process.returncode}; expected a Jinja template that renders messages"


def merge_system(messages: Sequence[Message]) -> list[Message]:
    """Messages for a template without a system role: each system text is prepended to the next user message."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1]["role"] == "system" and message["role"] in ("system", "user"):
            message = {**message, "content": f"{merged.pop()['content']}\n\n{message['content']}"}
        merged.append(message)
    return [{**message, "role": "user"} if message["role"] == "system" else message for message in merged]
