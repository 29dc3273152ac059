"""The process that renders one foreign chat template; `models.chat_templates` starts it, and it ends with its parent.

It prints a line when it is ready, then reads the template from its first line of input. Each further line is a batch as JSON, and
each item of a batch is answered with one line. The system ends the process if an item takes too much processor time or memory.

Run as a script, the file imports only the module of transformers that renders templates: a quarter of the time of
`import transformers`.
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
    SyntaxError,  # Jinja compiles the template to Python, which limits nested blocks
    TypeError,
    ValueError,
)
"""Errors that a template can raise."""


def answer(
    template: str, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], generation_prompt: bool = True
) -> dict[str, str]:
    """The text that `tokenizer.apply_chat_template` renders as `value`, or the first line of the template's `error`.

    Args:
        template: a Jinja template.
        messages: a conversation.
        variables: the tokenizer's special tokens, and switches of the template.
        generation_prompt: whether the header of the reply follows.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    call = cast(Callable[..., tuple[list[str], object]], render_jinja_template)
    try:
        [text], _ = call([messages], chat_template=template, add_generation_prompt=generation_prompt, **variables)
    except TEMPLATE_ERRORS as error:
        return {"error": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}
    if len(text) > LARGEST_PROMPT:
        return {"error": f"it renders {len(text):,} characters for one prompt, expected at most {LARGEST_PROMPT:,}"}
    return {"value": text}


def main(seconds: float, memory: int) -> None:
    """Answers batches until the input ends.

    Args:
        seconds: processor time allowed for one item, where the system can limit it.
        memory: bytes allowed beyond those that the process takes at its start, where the system can limit it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    for name in ("transformers", "transformers.utils"):  # registered without running their __init__.py
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        package = ModuleType(name)
        package.__path__, package.__spec__ = list(spec.submodule_search_locations), spec
        sys.modules[name] = package
    import transformers.utils.chat_template_utils  # noqa: F401

    print("ready", flush=True)
    template = json.loads(sys.stdin.readline())
    with contextlib.suppress(ImportError, OSError, ValueError):  # only Linux tells how much memory is taken
        import resource

        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))
    for line in sys.stdin:
        for arguments in json.loads(line):
            _limit_time(seconds)
            try:
                reply = json.dumps(answer(template, *arguments))
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            _limit_time(0)
            print(reply, flush=True)


def _limit_time(seconds: float) -> None:
    """The system kills the process after this much more processor time; 0 lifts the limit. Windows has no such timer."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
