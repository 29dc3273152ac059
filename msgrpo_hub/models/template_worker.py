"""The process that renders one foreign chat template; `models.chat_templates` starts it, and it ends with its parent.

It says when it is ready, and reads the template from its first line of input. Each further line is one batch as JSON, and each
item of a batch is answered with one line. The system ends the process if an item takes too much processor time or memory.

Run as a script, the file loads only the module of transformers that renders templates, in a quarter of a second. `import
transformers` takes four times as long.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import jinja2
import jinja2.meta

OUT_OF_MEMORY = 12
"""Exit status after a template asked for more memory than allowed."""
LARGEST_PROMPT = 1_000_000
"""Largest number of characters of a rendered prompt."""

TEMPLATE_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Errors that a template can raise. Jinja compiles it to Python, so `SyntaxError` (too many nested blocks) is one of them."""


def render(
    template: str, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], generation_prompt: bool = True
) -> str:
    """The text that `tokenizer.apply_chat_template` of transformers renders.

    Args:
        template: a Jinja template.
        messages: a conversation.
        variables: the tokenizer's special tokens, and switches of the template.
        generation_prompt: whether the header of the reply follows.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    call = cast(Callable[..., tuple[list[str], object]], render_jinja_template)
    [text], _ = call([messages], chat_template=template, add_generation_prompt=generation_prompt, **variables)
    if len(text) > LARGEST_PROMPT:
        raise ValueError(f"it renders {len(text):,} characters for one prompt, expected at most {LARGEST_PROMPT:,}")
    return text


def find_variables(template: str) -> list[str]:
    """The variables that a template reads and does not set itself."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    environment = _compile_jinja_template(template).environment
    return sorted(jinja2.meta.find_undeclared_variables(environment.parse(template)))


TASKS: dict[str, Callable[..., Any]] = {"render": render, "find_variables": find_variables}
"""What the process can do with its template."""


def answer(task: str, template: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """The result of a task as `value`, or the first line of the template's `error`."""
    try:
        return {"value": TASKS[task](template, *arguments)}
    except TEMPLATE_ERRORS as error:
        return {"error": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}


def main(seconds: float, memory: int) -> None:
    """Answers batches until the input ends.

    Args:
        seconds: processor time allowed for one item, where the system can limit it.
        memory: bytes allowed on top of what the process takes at its start, where the system can limit it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which may want to finish its update
    _skip_package("transformers")
    _skip_package("transformers.utils")
    import transformers.utils.chat_template_utils  # noqa: F401

    print("ready", flush=True)
    template = json.loads(sys.stdin.readline())
    _limit_memory(memory)
    for line in sys.stdin:
        batch = json.loads(line)
        for arguments in batch["items"]:
            _limit_time(seconds)
            try:
                reply = json.dumps(answer(batch["task"], template, arguments))
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            _limit_time(0)
            print(reply, flush=True)


def _skip_package(name: str) -> None:
    """Registers a package without running its `__init__.py`, so that its modules can be imported alone."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules[name] = package


def _limit_time(seconds: float) -> None:
    """The system kills the process after this much more processor time; 0 lifts the limit. Windows has no such timer."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory(size: int) -> None:
    """Allows `size` more bytes of address space. Only Linux says how much is taken, and keeps to the limit."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + size, taken + size))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
