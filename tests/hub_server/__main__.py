"""`python -m tests.hub_server [--port N]`: a Hub on loopback to try commands offline."""

from __future__ import annotations

import argparse
import socket
import tempfile

import uvicorn

from tests.hub_server.app import World, make_app
from tests.hub_server.store import OWNER, READER, STRANGER

HELP = f"""\
# A Hub on this machine, in memory: gone when you stop it (Ctrl+C). In another terminal:
export HF_ENDPOINT={{endpoint}} HF_HOME={{home}} HF_TOKEN={OWNER}
export HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_UPDATE_CHECK=1 HF_HUB_DISABLE_XET=1 HF_UPDATE_DOWNLOAD_COUNTS=0
# You are ada. Others: HF_TOKEN={READER} (ada, may only read), HF_TOKEN={STRANGER} (bob).
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hub_server", description=__doc__.partition(": ")[2])
    parser.add_argument("--port", type=int, default=0, help="0 selects a free one")
    port = parser.parse_args().port
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        parser.error(f"cannot listen on port {port}: {error.strerror}; give another, or none for a free one")
    world = World()
    with tempfile.TemporaryDirectory(prefix="hub-home-") as home:
        print(HELP.format(endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", home=home), flush=True)
        server = uvicorn.Server(uvicorn.Config(make_app(lambda: world), log_level="info", lifespan="off"))
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
