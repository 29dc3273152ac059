"""The fixtures of this package, for its own tests."""

from tests.hub_server.fixture import hub, live_hub, loopback, loopback_server

__all__ = ["hub", "live_hub", "loopback", "loopback_server"]
