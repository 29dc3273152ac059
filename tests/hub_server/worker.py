"""The process that clients run in: imports what they need once; each call is then a fork, a real process that starts at once.

`HF_ENDPOINT` and most other settings are read when the client is imported. So they are this process's environment, and there
is one such process for each set of them. Run as a script: a request is a line of JSON on its standard input.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

TIME_LIMIT = 300  # seconds for a call; a job that is followed starts two processes that load torch


def find(name: str) -> Any:
    """A function by `module:name`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def answer(request: dict[str, Any]) -> None:
    """In the child: calls the function and leaves its result, or its error in words, in the folder `files`."""
    files = Path(request["files"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(os.open(files / name, os.O_RDWR | os.O_CREAT), number)
    signal.alarm(TIME_LIMIT)
    os.chdir(files)
    os.environ.update(request["environment"])
    for name in request["without"]:
        os.environ.pop(name, None)
    code = 0
    result: tuple[Any, ...] = ("none",)
    try:
        arguments, options = pickle.loads((files / "arguments").read_bytes())
        result = ("value", find(request["function"])(*arguments, **options))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        traceback.print_exc()
        code, result = 1, ("error", type(error).__name__, str(error))
    (files / "result").write_bytes(pickle.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without the interpreter's teardown, which takes longer than most calls


def serve() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an import prints is not a reply
    for line in sys.stdin:
        request = json.loads(line)
        sys.path[:] = request["path"]  # that of the tests, and not the folder of this script
        with contextlib.suppress(ImportError):  # then the child fails in the same way, and says so
            for name in (*request["warm"], request["function"].partition(":")[0]):
                importlib.import_module(name)
        child = os.fork()
        if not child:
            answer(request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=replies, flush=True)


if __name__ == "__main__":
    serve()
