"""`python -m tests.hub_server [--port N]`: a Hub on loopback to try commands against, offline."""

from __future__ import annotations

import argparse
import socket
import tempfile

import uvicorn

from tests.hub_server.app import World, make_app
from tests.hub_server.store import OWNER, READER, STRANGER

HELP = """\
# A Hub on this machine, in memory: gone when you stop it (Ctrl+C). In another terminal:
export HF_ENDPOINT={endpoint} HF_HOME={home} HF_TOKEN={owner}
export HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_UPDATE_CHECK=1 HF_HUB_DISABLE_XET=1 HF_UPDATE_DOWNLOAD_COUNTS=0
# You are ada. Others: HF_TOKEN={reader} (ada, may only read), HF_TOKEN={stranger} (bob).
# Make something fail: curl -d '{{"fault": "unavailable", "where": "whoami", "times": 2}}' {endpoint}/_faults
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hub_server", description="A Hub on loopback, to try things offline.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    port = parser.parse_args().port
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        parser.error(f"cannot listen on port {port}: {error.strerror}; take another, or none for a free one")
    endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    world = World()
    with tempfile.TemporaryDirectory(prefix="hub-home-") as home:
        print(HELP.format(endpoint=endpoint, home=home, owner=OWNER, reader=READER, stranger=STRANGER), flush=True)
        server = uvicorn.Server(uvicorn.Config(make_app(lambda: world), log_level="info", lifespan="off"))
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
