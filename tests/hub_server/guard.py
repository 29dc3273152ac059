"""Keeps Python processes on this machine. Put it into a folder on PYTHONPATH as `sitecustomize.py`.

Every interpreter runs it first, even a child of a child. Its audit hook sees all sockets of Python. It refuses
and logs connections to other machines; the log is needed because clients answer a refused connection from their cache. Libraries
that are not Python (Xet) obey the proxy variables, which name the Hub on loopback; that refuses and logs their requests.
"""

import os
import sys
from pathlib import Path
from typing import Any

LOG = os.environ.get("MSGRPO_HUB_GUARD_LOG", "")
"""The log; without one there is no guard."""

EVENTS = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0, "socket.gethostbyname": 0}
"""Audit event → index of the argument with the address or name."""


def is_here(address: Any) -> bool:
    """Whether a name, an address with a port, or the path of a Unix socket is on this machine."""
    host = address[0] if isinstance(address, tuple) else address
    host = host.decode() if isinstance(host, bytes) else host
    return host is None or host in ("", "localhost", "::1") or host.startswith(("127.", "/"))


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in EVENTS and not is_here(arguments[EVENTS[event]]):
        line = f"{event} {arguments[EVENTS[event]]}"
        with Path(LOG).open("a") as log:
            log.write(f"{line}\n")
        raise ConnectionRefusedError(f"no request leaves this machine: {line}")


if LOG:
    sys.addaudithook(watch)
