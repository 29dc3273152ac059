"""The process that renders foreign chat templates; `models.chat_templates` starts it, and it ends with its parent.

It prints a line when it is ready. Each line of its input is a template and a batch as JSON, and each item of a batch is answered
with one line. The process ends if an item takes too much memory.

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
    *(jinja2.TemplateError, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    SyntaxError,  # Jinja compiles the template to Python, which limits nested blocks
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


def main(memory: int) -> None:
    """Answers batches until the input ends. `memory`: bytes allowed beyond those taken at the start, where there is a limit."""
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
    with contextlib.suppress(ImportError, OSError, ValueError):  # only Linux tells how much memory is taken
        import resource

        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))
    for line in sys.stdin:
        if hasattr(signal, "alarm"):
            signal.alarm(600)  # ends an endless template if the parent has been killed; the parent has a shorter limit
        template, items = json.loads(line)
        for item in items:
            try:
                reply = json.dumps(answer(template, *item))
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            print(reply, flush=True)
        if hasattr(signal, "alarm"):
            signal.alarm(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
