"""The endpoints as tools of language models: a server of the Model Context Protocol, at `/gradio_api/mcp/`.

Gradio has one too, but it answers with Python's text of a value. Here an answer is JSON, and has the schema of its endpoint.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import lines
from answers import ANSWERS
from anyio.to_thread import run_sync
from components import address
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount

from msgrpo_hub.errors import UserError

PATH = "/gradio_api/mcp"
"""Where clients and the Hub look for the tools of a Space."""

Function = Callable[..., Any]


def mounted(title: str, functions: Sequence[Function]) -> dict[str, Any]:
    """What a FastAPI application takes to serve the tools: their route, and what runs while it does."""
    made = server(title, functions)
    return {"routes": [Mount(PATH, made.streamable_http_app())], "lifespan": lambda _: made.session_manager.run()}


def server(title: str, functions: Sequence[Function]) -> FastMCP:
    """A server with one tool a function; it keeps nothing between two calls."""
    made = FastMCP(
        title,
        log_level="WARNING",
        stateless_http=True,
        streamable_http_path="/",
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # a Space has many names
    )
    for function in functions:
        description = inspect.getdoc(function)
        only_reads = ToolAnnotations(readOnlyHint=True)
        made.add_tool(_tool(made, function), description=description, annotations=only_reads, structured_output=True)

    async def schema(_: Request) -> JSONResponse:
        """The tools as the Hub's own server of the protocol reads them from a Space."""
        meta = {"file_data_present": False, "mcp_type": "tool"}
        told = [tool.model_dump(include={"name", "description", "inputSchema"}) for tool in await made.list_tools()]
        return JSONResponse([each | {"meta": meta | {"endpoint_name": each["name"]}} for each in told])

    made.custom_route("/schema", methods=["GET"])(schema)

    return made


def _tool(made: FastMCP, function: Function) -> Function:
    """An endpoint as a tool: it plays in a thread, tells how far it is, and answers with the last value that it yields."""

    async def call(**given: Any) -> Any:
        context = made.get_context()
        lines.visitor.set(address(context.request_context.request))
        try:
            if inspect.isgeneratorfunction(function):
                return await _last(context, function(**given))
            return await run_sync(partial(function, **given))
        except UserError as error:
            raise ToolError(str(error)) from error

    call.__name__ = function.__name__
    signature = inspect.signature(function, eval_str=True).replace(return_annotation=ANSWERS[function.__name__])
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


async def _last(context: Context[Any, Any, Any], found: Iterator[Any]) -> Any:
    last = None
    with closing(found):  # type: ignore[type-var]
        while (each := await run_sync(next, found, None)) is not None:
            last = each
            await context.report_progress(each["episodes"], each["wanted"])
    return last
