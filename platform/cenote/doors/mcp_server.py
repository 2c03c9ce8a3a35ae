"""The Model Context Protocol: tools and resources over the runtimes that a door has open.

The protocol keeps no sessions: a runtime's name is the handle, so that clients which connect again find it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import mcp.types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from cenote.doors.mcp_tools import PNG, TOOLS, Answer, Tool, ToolCall, variable_line
from cenote.doors.open_runtimes import Door, OpenRuntime, OpenRuntimes
from cenote_security.errors import CenoteError, UsageError
from cenote_security.printable import printable
from cenote_worker.execution.results import StreamName

INSTRUCTIONS: Final = (
    "Python in a sandbox whose variables stay between calls. Load data once into variables of the runtime `main`, "
    "work on them with `run`, and print only what you need. Each call is a recorded step: `history`, `rollback` and "
    "`patch` work on them."
)

PROGRESS_EVERY: Final = 1.0
"""Seconds between two notifications of progress."""

_MOST_FIGURES: Final = 50
"""Maximum number of figures in the list of resources, the latest ones."""

_SCHEME: Final = "cenote"

_TEMPLATES: Final = (
    ("variables", "{runtime}/variables", "names, types, shapes and sizes", "application/json"),
    (
        "variable",
        "{runtime}/variables/{name}",
        "one of them, and the step that wrote it last",
        "application/json",
    ),
    ("history", "{runtime}/history", "its steps as a graph", "application/json"),
    ("figure", "{runtime}/figures/{step}/{index}", "a picture that a step displayed", "image/png"),
    ("file", "{runtime}/files/{+path}", "a file of its working directory", "application/octet-stream"),
)

DOOR: Final = "mcp"
"""The author of steps that MCP clients run."""

Context = ServerRequestContext[Any, Any]


def mcp_server(runtimes_of: Callable[[Context], Awaitable[OpenRuntimes]]) -> Server[Any]:
    """A server for any transport. runtimes_of: those that a request may reach."""
    door = _Protocol(runtimes_of)
    return Server(
        "cenote",
        version=version("cenote"),
        title="Cenote",
        instructions=INSTRUCTIONS,
        get_tool_input_schema=lambda name: TOOLS[name].input_schema() if name in TOOLS else None,
        on_list_tools=door.tools,
        on_call_tool=door.call,
        on_list_resources=door.resources,
        on_list_resource_templates=door.templates,
        on_read_resource=door.read,
    )


async def serve_stdio(runtimes: OpenRuntimes) -> None:
    """Serves one client on standard input and output until it disconnects. Then the runtimes are released."""

    async def all_of_them(_: Context) -> OpenRuntimes:
        return runtimes

    server = mcp_server(all_of_them)
    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await runtimes.close()


class _Protocol:
    """Handles the protocol's requests."""

    def __init__(self, runtimes_of: Callable[[Context], Awaitable[OpenRuntimes]]) -> None:
        self._runtimes_of = runtimes_of

    async def _door(self, context: Context) -> Door:
        return (await self._runtimes_of(context)).through(DOOR)

    async def tools(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS.values()])

    async def call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if (tool := TOOLS.get(params.name)) is None:
            raise MCPError(
                types.INVALID_PARAMS, f"there is no tool {params.name!r:.100}; there are {', '.join(TOOLS)}"
            )
        try:
            answer = await self._answered(context, tool.parse(params.arguments or {}))
        except CenoteError as error:
            answer = Answer(str(error), failed=True)
        pictures = [
            types.ImageContent(type="image", data=base64.b64encode(each).decode(), mime_type="image/png")
            for each in answer.images
        ]
        text = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[text, *pictures], is_error=answer.failed)

    async def _answered(self, context: Context, tool: Tool) -> Answer:
        """The tool's answer; until it is there, the client is notified of progress if it asked for that."""
        progress = _Progress(context)
        reporting = asyncio.create_task(progress.report())
        try:
            return await tool.run(ToolCall(await self._door(context), progress.hear))
        finally:
            reporting.cancel()

    async def templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    name=name, uri_template=f"{_SCHEME}://{path}", description=text, mime_type=mime
                )
                for name, path, text, mime in _TEMPLATES
            ]
        )

    async def resources(
        self, context: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = list[types.Resource]()
        door = await self._door(context)
        for name in door.names:
            root = f"{_SCHEME}://{quote(name, safe='')}"
            found += [
                types.Resource(name=f"{name}: {what}", uri=f"{root}/{what}", mime_type="application/json")
                for what in ("variables", "history")
            ]
            found += [
                types.Resource(
                    name=f"{name}: figure {index} of step {step}",
                    uri=f"{root}/figures/{step}/{index}",
                    mime_type="image/png",
                )
                for step, index in await _figures(await door.get(name))
            ]
        return types.ListResourcesResult(resources=found)

    async def read(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        try:
            content = await self._content(uri, await self._door(context))
        except CenoteError as error:
            raise MCPError(types.INVALID_PARAMS, str(error), {"uri": uri}) from None
        if isinstance(content, bytes):
            mime = "image/png" if content.startswith(PNG) else "application/octet-stream"
            blob = types.BlobResourceContents(
                uri=uri, mime_type=mime, blob=base64.b64encode(content).decode()
            )
            return types.ReadResourceResult(contents=[blob])
        text = types.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(content))
        return types.ReadResourceResult(contents=[text])

    async def _content(self, uri: str, door: Door) -> object:
        """Bytes, or JSON data. Raises CenoteError if it does not exist."""
        try:
            parts = urlsplit(uri)
        except ValueError as error:
            raise UsageError(f"{uri!r:.200} is no address: {error}") from None
        if parts.scheme != _SCHEME:
            raise UsageError(f"a resource begins with {_SCHEME}://, not {uri!r:.200}")
        runtime = await door.get(unquote(parts.netloc))
        match [unquote(part) for part in parts.path.strip("/").split("/")]:
            case ["variables"]:
                return [_facts(info) for info in await runtime.author.describe()]
            case ["variables", name]:
                return await _variable(runtime, name)
            case ["history"]:
                return (await runtime.state()).graph()
            case ["figures", step, index] if step.isdecimal() and index.isdecimal():
                return await _figure(runtime, int(step), int(index))
            case ["files", *path] if path:
                return await runtime.author.files.read("/".join(path))
            case _:
                raise UsageError(f"there is no resource {uri!r:.200}")


class _Progress:
    """Progress of a call for the client: the seconds so far, and the last printed line."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._started = time.monotonic()
        self._last = ""

    def hear(self, _: StreamName, text: str) -> None:
        self._last = next((line for line in reversed(text.splitlines()) if line.strip()), self._last)

    async def report(self) -> None:
        """Runs until cancelled. Does nothing where the client did not ask for progress."""
        while True:
            await asyncio.sleep(PROGRESS_EVERY)
            elapsed = time.monotonic() - self._started
            await self._context.session.report_progress(elapsed, message=printable(self._last[:200]) or None)


def _described(tool: type[Tool]) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.reads_only, destructive_hint=tool.destroys, open_world_hint=False
    )
    return types.Tool(
        name=tool.name, description=tool.description(), input_schema=tool.input_schema(), annotations=hints
    )


def _facts(info: Any) -> dict[str, object]:
    return {
        "name": info.name,
        "type": info.type,
        "shape": list(info.shape) if info.shape is not None else None,
        "bytes": info.size,
        "description": info.description,
    }


async def _variable(runtime: OpenRuntime, name: str) -> dict[str, object]:
    found = next((info for info in await runtime.author.describe() if info.name == name), None)
    if found is None:
        raise UsageError(f"there is no variable {name!r:.100}")
    blame = (await runtime.state()).blame(name)
    step = blame.step.number if blame.step is not None else 0
    return {**_facts(found), "line": variable_line(found), "step": step, "author": blame.author}


async def _figures(runtime: OpenRuntime) -> list[tuple[int, int]]:
    state = await runtime.state()
    found = [
        (step.number, index)
        for step in state.steps
        for index, bundle in enumerate(step.outputs)
        if isinstance(bundle.get("image/png"), bytes)
    ]
    return found[-_MOST_FIGURES:]


async def _figure(runtime: OpenRuntime, number: int, index: int) -> bytes:
    state = await runtime.state()
    outputs = state.step(number).outputs
    picture = outputs[index].get("image/png") if index < len(outputs) else None
    if not isinstance(picture, bytes):
        raise UsageError(f"step {number} has no picture {index}")
    return picture
