"""Xet storage in a folder: the client's own library writes chunks and shards there when the address is `local://FOLDER`.

The server only hands out that address, and finds out afterwards which file is which: a commit names a file by its sha256,
Xet names it by the hash of its chunks, and the shards that the client wrote hold both.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.hub_server.access import downloadable, hub_of, on_repository, parameter, readable, writer
from tests.hub_server.store import HubError

HEADER = 48  # bytes, of a shard and of every entry in it
HAS_VERIFICATION, HAS_SHA256 = 1 << 31, 1 << 30
END = b"\xff" * 32

READ = """
import sys, hf_xet
group = hf_xet.XetSession().new_download_stream_group(endpoint=sys.argv[1])
sys.stdout.buffer.write(b"".join(group.download_stream(hf_xet.XetFileInfo(sys.argv[2], int(sys.argv[3])))))
"""


def hexadecimal(entry: bytes) -> str:
    """A hash as Xet writes it: four little-endian numbers."""
    return "".join(f"{word:016x}" for word in struct.unpack("<4Q", entry[:32]))


def files_in(shard: bytes) -> Iterator[tuple[str, str, int]]:
    """(sha256, Xet hash, size) of the files of a shard: a header for each, its segments, their proofs, its sha256."""
    at = HEADER
    while (entry := shard[at : at + HEADER])[:32] != END:
        flags, segments = struct.unpack_from("<2I", entry, 32)
        lengths = [struct.unpack_from("<I", shard, at + HEADER * (n + 1) + 36)[0] for n in range(segments)]
        at += HEADER * (1 + segments * (2 if flags & HAS_VERIFICATION else 1))
        if flags & HAS_SHA256:
            yield hexadecimal(shard[at:]), hexadecimal(entry), sum(lengths)
            at += HEADER


def read(folder: str, xet_hash: str, size: int) -> bytes:
    """A file's content, by the client's own library in a process of its own.

    The library locks the index of a folder, and the client that has just written still holds it: so from a copy.
    """
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(folder, f"{scratch}/xet")
        program = [sys.executable, "-c", READ, f"local://{copy}", xet_hash, str(size)]
        return subprocess.run(program, check=True, stdout=subprocess.PIPE, env={"HF_HOME": scratch}).stdout


def fetch(folder: str, sha256: str) -> tuple[bytes, str] | None:
    """Content and Xet hash of a file; None where no shard knows it."""
    for shard in Path(folder).rglob("*.mdb"):
        for found, xet_hash, size in files_in(shard.read_bytes()):
            if found == sha256:
                return read(folder, xet_hash, size), xet_hash
    return None


async def access_to_storage(request: Request) -> Response:
    """The address of the storage and a token for it, in the body for one reader and in headers for another."""
    writing = request.url.path.rpartition("/")[0].endswith("xet-write-token")
    folder = hub_of(request).xet_folder
    if not folder:
        raise HubError(404, "this Hub has no Xet storage")
    if writing:
        readable(request), writer(request)
    else:
        downloadable(request).find(parameter(request, "revision"))
    expires = int(time.time()) + 3600
    address, token = f"local://{folder}", "xet"
    headers = {"X-Xet-Cas-Url": address, "X-Xet-Access-Token": token, "X-Xet-Token-Expiration": str(expires)}
    return JSONResponse({"accessToken": token, "exp": expires, "casUrl": address}, headers=headers)


routes = [
    on_repository("/xet-read-token/{revision}", access_to_storage),
    on_repository("/xet-write-token/{revision}", access_to_storage),
]
