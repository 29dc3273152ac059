"""The HTTP client that comes with huggingface_hub, for servers of models."""

from __future__ import annotations

from functools import cache

from msgrpo_hub import __version__

try:
    import httpx2 as httpx
except ImportError:  # huggingface_hub 1 comes with httpx
    import httpx  # type: ignore[no-redef]

__all__ = ["HTTPError", "http_client"]

HTTPError = httpx.HTTPError
"""The base class of what the client raises if there is no answer."""


@cache
def http_client(*, proxies: bool) -> httpx.Client:
    """The client of this process. A request needs a timeout of its own.

    Args:
        proxies: whether requests go through the proxies that environment variables such as HTTPS_PROXY name.
    """
    return httpx.Client(
        follow_redirects=True,
        headers={"User-Agent": f"msgrpo_hub/{__version__}"},
        limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),  # servers close idle connections after 5 s
        trust_env=proxies,
    )
