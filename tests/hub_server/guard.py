"""Keeps a process on this machine: put in a folder as `sitecustomize.py`, and that folder on PYTHONPATH.

Python then runs it at the start of every interpreter, before any client is imported, and of every interpreter started from
there. An audit hook cannot be taken away again. It sees all of Python's sockets, under whatever HTTP library; an attempt is
refused, and written down, because clients take a refused connection for a bad day and answer from their cache.
What is not Python (the Xet library) opens sockets that no hook sees. It obeys the proxy variables, which lead to the
loopback Hub, and that refuses and writes down whatever is not meant for itself.
"""

import os
import sys
from pathlib import Path
from typing import Any

LOG = os.environ.get("MSGRPO_HUB_GUARD_LOG", "")
"""Where attempts are written down; without it there is no guard, so that importing this file does nothing."""

EVENTS = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0, "socket.gethostbyname": 0}
"""Audit event → which of its arguments is the address, or the name to look up."""


def is_here(address: Any) -> bool:
    """Whether a name, an address with a port, or the path of a Unix socket is on this machine."""
    host = address[0] if isinstance(address, tuple) else address
    if host is None or isinstance(host, bytes):
        return host is None or is_here(host.decode())
    return host in ("", "localhost", "::1") or host.startswith(("127.", "/"))


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in EVENTS and not is_here(arguments[EVENTS[event]]):
        line = f"{event} {arguments[EVENTS[event]]}"
        with Path(LOG).open("a") as log:
            log.write(f"{line}\n")
        raise ConnectionRefusedError(f"no request leaves this machine: {line}")


if LOG:
    sys.addaudithook(watch)
