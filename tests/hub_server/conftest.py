"""The fixtures of this package, for its own tests."""

from tests.hub_server.fixture import loopback, loopback_server

__all__ = ["loopback", "loopback_server"]
