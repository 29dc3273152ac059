"""The process of clients. It imports slow packages once; each call is then a fork, which starts at once.

The client reads `HF_ENDPOINT` and most settings when it is imported, so they are the environment of this process. It runs as a
script: each line of its standard input is a request in JSON, and each line of its output the exit status of a call.
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

TIME_LIMIT = 300  # seconds of a call; following a job starts two processes that load torch


def answer(request: dict[str, Any]) -> None:
    """In the fork: calls the function and writes value, error and message into the folder `files`."""
    files = Path(request["files"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(os.open(files / name, os.O_RDWR | os.O_CREAT), number)
    signal.alarm(TIME_LIMIT)
    os.chdir(files)
    for name, value in request["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    code, result = 0, (None, None, "")
    try:
        arguments, options = pickle.loads((files / "arguments").read_bytes())
        module, _, name = request["function"].partition(":")
        result = (getattr(importlib.import_module(module), name)(*arguments, **options), None, "")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        traceback.print_exc()
        code, result = 1, (None, type(error).__name__, str(error))
    (files / "result").write_bytes(pickle.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the interpreter's teardown would take longer than most calls


def serve() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of an import is not a reply
    for line in sys.stdin:
        request = json.loads(line)
        sys.path[:] = request["path"]
        with contextlib.suppress(ImportError):  # the fork fails in the same way and reports it
            for name in (*request["warm"], request["function"].partition(":")[0]):
                importlib.import_module(name)
        child = os.fork()
        if not child:
            answer(request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=replies, flush=True)


if __name__ == "__main__":
    serve()
