"""No request leaves the machine, and an attempt does not go unnoticed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import HfApi

from tests.hub_server.client import ClientError

if TYPE_CHECKING:
    from tests.hub_server.lanes import Loopback

pytestmark = pytest.mark.lowest

ELSEWHERE = "192.0.2.1"  # an address that is kept for documentation


def ask_the_real_hub() -> None:
    HfApi(endpoint="https://huggingface.co").model_info("gpt2")


def connect() -> None:
    socket.create_connection((ELSEWHERE, 443), timeout=5)


def look_up() -> None:
    socket.getaddrinfo("huggingface.co", 443)


def connect_in_a_child() -> None:
    subprocess.run([sys.executable, "-c", f"import socket; socket.create_connection(('{ELSEWHERE}', 443), 5)"], check=True)


def ask_a_real_xet_storage() -> None:
    os.environ["HF_XET_CLIENT_RETRY_MAX_ATTEMPTS"] = "0"
    import hf_xet  # type: ignore[import-untyped]

    group = hf_xet.XetSession().new_download_stream_group(endpoint="https://cas-server.xethub.hf.co")
    b"".join(group.download_stream(hf_xet.XetFileInfo("0" * 64, 1)))


def test_a_client_that_asks_the_real_hub_is_refused_and_noticed(loopback: Loopback) -> None:
    with pytest.raises(ClientError, match="403"):
        loopback.owner.call(ask_the_real_hub)
    assert set(loopback.strays()) == {"CONNECT huggingface.co:443"}


@pytest.mark.parametrize("attempt", [connect, look_up, connect_in_a_child])
def test_a_socket_that_leads_elsewhere_is_refused_and_noticed(loopback: Loopback, attempt: object) -> None:
    finished = loopback.owner.attempt(attempt)  # type: ignore[arg-type]
    assert finished.code == 1
    assert "no request leaves this machine" in finished.err
    assert len(loopback.strays()) == 1


def test_a_library_that_is_not_python_is_refused_and_noticed(loopback: Loopback) -> None:
    loopback.owner.attempt(ask_a_real_xet_storage)
    assert set(loopback.strays()) == {"CONNECT cas-server.xethub.hf.co:443"}
