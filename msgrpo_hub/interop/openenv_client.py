"""A session on a running OpenEnv server, through the package's generic client, which runs no code of the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from msgrpo_hub.errors import UserError
from msgrpo_hub.interop.openenv_sessions import Full, Lost, Shown

CAPACITY = "CAPACITY_REACHED"
"""The server's code for having no free session."""


def connect(base_url: str) -> OpenEnvSession:
    """Opens a session. Raises `UserError` if openenv is not installed, or no server answers."""
    try:
        openenv = import_module("openenv.core")
    except ImportError as error:
        raise UserError("this game needs the package 'openenv': pip install 'msgrpo-hub[openenv]'") from error

    class OneConnection(openenv.GenericEnvClient):  # type: ignore[misc,name-defined]
        """Never connects again by itself: behind a new connection stands another environment, which no episode has begun."""

        async def _ensure_connected(self) -> None:
            if self._ws is None:
                raise ConnectionError("the connection has ended")

    client = OneConnection(base_url=base_url).sync()
    try:
        client.connect()
    except (OSError, TimeoutError) as error:
        client.close()
        raise UserError(f"no OpenEnv server answers at {base_url}: start it there, or give the address where it runs") from error
    return OpenEnvSession(client, base_url)


class OpenEnvSession:
    """A connected client; the server keeps an environment for it until it is closed."""

    def __init__(self, client: Any, base_url: str) -> None:
        self._client, self._base_url = client, base_url

    def reset(self, **start: Any) -> Shown:
        return self._asked(lambda: self._client.reset(**start))

    def step(self, action: Mapping[str, Any]) -> Shown:
        return self._asked(lambda: self._client.step(dict(action)))

    def close(self) -> None:
        self._client.close()

    def _asked(self, ask: Callable[[], Any]) -> Shown:
        from websockets.exceptions import ConnectionClosed

        try:
            result = ask()
        except (ConnectionClosed, ConnectionError) as error:
            raise Lost from error
        except TimeoutError as error:
            raise UserError(f"the OpenEnv server at {self._base_url} gave no answer in time: look at its log") from error
        except RuntimeError as error:  # what the client makes of an error message of the server
            if CAPACITY in str(error):
                raise Full from error
            raise UserError(f"the OpenEnv server at {self._base_url} refused ({error})") from error
        return Shown(result.observation, float(result.reward or 0.0), bool(result.done))
