"""`fastmcp.Client` over `/mcp`, and over the standard streams of `cenote mcp`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.auth import BearerAuth
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ToolError


@pytest.fixture(params=["/mcp", "cenote mcp"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    if request.param == "/mcp":
        url = f"{os.environ['CENOTE_URL']}/mcp"
        transport: Any = StreamableHttpTransport(url, auth=BearerAuth(os.environ["CENOTE_TOKEN"]))
    else:
        transport = StdioTransport(os.environ["CENOTE_PYTHON"], ["-m", "cenote.cli.main", "mcp"])
    async with Client(transport) as client:
        yield client


async def text(client: Any, tool: str, **arguments: Any) -> str:
    return str((await client.call_tool(tool, arguments)).content[0].text)


async def test_tools_are_listed_and_names_stay(client: Any) -> None:
    tools = {tool.name for tool in await client.list_tools()}
    assert {"run", "open", "inspect", "read", "files", "fork", "rollback", "history"} <= tools
    await text(client, "open", runtime="stay")
    await text(client, "run", runtime="stay", code="x = 20")
    assert await text(client, "run", runtime="stay", code="x + 1") == "21"
    assert "x: int" in await text(client, "inspect", runtime="stay")


async def test_an_error_is_one_that_a_model_reads(client: Any) -> None:
    await text(client, "open", runtime="wrong")
    with pytest.raises(ToolError, match="ZeroDivisionError"):
        await client.call_tool("run", {"runtime": "wrong", "code": "1/0"})
    with pytest.raises(ToolError, match="code: "):
        await client.call_tool("run", {"runtime": "wrong"})


async def test_pictures_and_resources(client: Any) -> None:
    await text(client, "open", runtime="seen")
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    result = await client.call_tool("run", {"runtime": "seen", "code": code})
    assert [part.type for part in result.content][-1] == "image"
    uris = [str(resource.uri) for resource in await client.list_resources()]
    assert "cenote://seen/figures/1/0" in uris
    assert '"head"' in (await client.read_resource("cenote://seen/history"))[0].text


async def test_a_branch_is_tried_and_a_state_comes_back(client: Any) -> None:
    await text(client, "open", runtime="trunk")
    await text(client, "run", runtime="trunk", code="n = [1]")
    await text(client, "fork", runtime="trunk", branch="try")
    await text(client, "run", runtime="try", code="n.append(2)")
    assert await text(client, "run", runtime="trunk", code="n") == "[1]"
    await text(client, "merge", runtime="trunk", branch="try")
    assert (await text(client, "run", runtime="trunk", code="n")).startswith("[1, 2]\n")  # and its author
    await text(client, "rollback", runtime="trunk", to=1)
    assert await text(client, "run", runtime="trunk", code="n") == "[1]"
    for name in ("try", "trunk"):
        await text(client, "close", runtime=name)


async def test_a_long_cell_reports_progress_and_is_cancelled(client: Any) -> None:
    await text(client, "open", runtime="long")
    heard = asyncio.Event()

    async def hear(_: float, __: float | None, message: str | None) -> None:
        if message is not None and "epoch" in message:
            heard.set()

    code = "import time\nprint('epoch 1', flush=True)\nwhile True: time.sleep(0.01)"
    call = asyncio.create_task(
        client.call_tool("run", {"runtime": "long", "code": code}, progress_handler=hear)
    )
    await asyncio.wait_for(heard.wait(), 60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await text(client, "run", runtime="long", code="1 + 1", timeout=60) == "2"
    await text(client, "close", runtime="long")
