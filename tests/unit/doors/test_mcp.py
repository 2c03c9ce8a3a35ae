"""MCP clients use a runtime: its tools, its resources, and their errors."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult

from cenote import SandboxPolicy
from cenote.doors.mcp_server import Context, mcp_server
from cenote.doors.mcp_tools import TOOLS
from cenote.doors.open_runtimes import MOST_OPEN, LocalSource, OpenRuntimes
from cenote.tokens import count_tokens

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Speaker:
    """A client that calls tools and returns their answers."""

    def __init__(self, client: Client, runtimes: OpenRuntimes) -> None:
        self.client = client
        self.runtimes = runtimes

    async def call(self, tool: str, **arguments: object) -> CallToolResult:
        return await self.client.call_tool(tool, arguments)

    async def text(self, tool: str, **arguments: object) -> str:
        result = await self.call(tool, **arguments)
        assert not result.is_error, result
        return text_of(result)

    async def error(self, tool: str, **arguments: object) -> str:
        result = await self.call(tool, **arguments)
        assert result.is_error, result
        return text_of(result)


def serving(runtimes: OpenRuntimes) -> Callable[[Context], Awaitable[OpenRuntimes]]:
    async def of(_: Context) -> OpenRuntimes:
        return runtimes

    return of


def text_of(result: CallToolResult) -> str:
    assert result.content[0].type == "text"
    return result.content[0].text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door() -> AsyncIterator[Speaker]:
    """One server for all: each test has a runtime with its own name."""
    runtimes = OpenRuntimes(LocalSource(SandboxPolicy(preload=("pandas",))))
    over = asyncio.Event()
    there = asyncio.get_running_loop().create_future()

    async def hold() -> None:  # the task that entered a client has to leave it
        async with Client(mcp_server(serving(runtimes))) as client:
            there.set_result(client)
            await over.wait()

    holding = asyncio.create_task(hold())
    yield Speaker(await there, runtimes)
    over.set()
    await holding
    await runtimes.close()


@pytest.mark.slow
async def test_the_descriptions_of_all_tools_are_short(door: Speaker) -> None:
    tools = (await door.client.list_tools()).tools
    assert [tool.name for tool in tools] == list(TOOLS)
    shown = [{"name": one.name, "description": one.description, "schema": one.input_schema} for one in tools]
    assert count_tokens(json.dumps(shown), "gpt-4o") <= 1_500


async def test_variables_stay_between_calls_and_steps_name_the_door(door: Speaker) -> None:
    await door.text("open", runtime="named")
    assert await door.text("run", runtime="named", code="x = 20") == "(no output)"
    assert await door.text("run", runtime="named", code="print('hi')\nx + 1") == "hi\n21"
    assert "x: int, 28 bytes" in await door.text("inspect", runtime="named")
    shown = await door.text("history", runtime="named", last=1)
    assert shown == "(1 earlier step)\n2 by mcp ok: print('hi') ..."


async def test_the_first_runtime_opens_by_itself(door: Speaker) -> None:
    assert await door.text("run", code="1 + 1") == "2"


async def test_code_that_fails_is_an_error_with_what_it_printed(door: Speaker) -> None:
    shown = await door.error("run", code="print('before')\nundefined_name")
    assert shown.startswith("before\nError: NameError: name 'undefined_name' is not defined")


async def test_a_cell_that_takes_too_long_is_ended_and_the_state_stays(door: Speaker) -> None:
    await door.text("open", runtime="slow")
    await door.text("run", runtime="slow", code="kept = 1")
    assert "ran longer than 0.3 s" in await door.error(
        "run", runtime="slow", code="while True: pass", timeout=0.3
    )
    assert await door.text("run", runtime="slow", code="kept") == "1"


async def test_arguments_that_do_not_fit_are_all_named(door: Speaker) -> None:
    wrong = await door.error("run", timeout=-1, cod="1")
    assert all(name in wrong for name in ("code: ", "timeout: ", "cod: ")), wrong


async def test_a_part_of_a_table_a_list_and_a_text(door: Speaker) -> None:
    await door.text("open", runtime="parts")
    await door.text("run", runtime="parts", code="import pandas as pd\ndf = pd.DataFrame({'a': range(100)})")
    await door.text("run", runtime="parts", code="items = list('abcdef')\ntext = 'one\\ntwo\\nthree'")
    assert await door.text("read", runtime="parts", variable="df", start=40, count=2) == (
        "rows 40 to 41 of 100:\n2 rows x 1 columns\nindex:int64|a:int64\n40|40\n41|41"
    )
    assert (
        await door.text("read", runtime="parts", variable="items[1:]", start=3)
        == "items 3 to 4 of 5:\n[e, f]"
    )
    assert (
        await door.text("read", runtime="parts", variable="text", start=1, count=1)
        == "lines 1 to 1 of 3:\ntwo"
    )
    assert await door.text("read", runtime="parts", variable="items", start=9) == (
        "there are 6 items, and none from 9 on"
    )
    assert "name or an expression" in await door.error("read", runtime="parts", variable="items; import os")


async def test_files_are_written_listed_read_in_parts_and_deleted(door: Speaker) -> None:
    await door.text("open", runtime="files")
    data = "0123456789" * 1_000
    assert "10,000 bytes" in await door.text(
        "files", runtime="files", action="write", path="d/a.txt", text=data
    )
    assert await door.text("files", runtime="files", action="list") == "d/"
    assert await door.text("files", runtime="files", action="list", path="d") == "a.txt 10,000"
    first = await door.text("files", runtime="files", action="read", path="d/a.txt")
    assert first == data[:8_000] + "\n[2,000 bytes follow; offset=8000 reads on]"
    assert (
        await door.text("files", runtime="files", action="read", path="d/a.txt", offset=8_000) == data[8_000:]
    )
    await door.text("files", runtime="files", action="delete", path="d/a.txt")
    assert await door.text("files", runtime="files", action="list", path="d") == "(empty)"
    assert "no such file" in await door.error("files", runtime="files", action="read", path="d/a.txt")
    assert "below the working directory" in await door.error(
        "files", runtime="files", action="read", path="../../etc/passwd"
    )
    assert "`path` is missing" in await door.error("files", runtime="files", action="write", text="x")


async def test_a_command_beside_the_namespace(door: Speaker) -> None:
    await door.text("open", runtime="shell")
    await door.text("run", runtime="shell", code="open('made', 'w').close()")
    assert await door.text("shell", runtime="shell", command="ls; pwd") == "made\n/workspace"
    assert await door.error("shell", runtime="shell", command="echo no >&2; exit 3") == "no\nexit code 3"
    assert "timeout" in await door.error("shell", runtime="shell", command="sleep 60", timeout=0.2)


async def test_back_to_a_step_and_to_a_label(door: Speaker) -> None:
    await door.text("open", runtime="back")
    await door.text("run", runtime="back", code="n = [1]")
    await door.text("checkpoint", runtime="back", label="good")
    await door.text("run", runtime="back", code="n.append(2)")
    await door.text("run", runtime="back", code="n.append(3)")
    assert await door.text("rollback", runtime="back", to=2) == "back at the end of step 2"
    assert await door.text("run", runtime="back", code="n") == "[1, 2]"
    await door.text("rollback", runtime="back", to="good")
    assert await door.text("run", runtime="back", code="n") == "[1]"
    assert "kept are 0, 1 good" in await door.error("rollback", runtime="back", to=77)


async def test_a_fork_is_tried_merged_and_closed(door: Speaker) -> None:
    await door.text("open", runtime="trunk")
    await door.text("run", runtime="trunk", code="n = [1]")
    await door.text("fork", runtime="trunk", branch="try")
    await door.text("run", runtime="try", code="n.append(2)\nmore = 5")
    assert await door.text("run", runtime="trunk", code="n") == "[1]"
    assert "taken: n, more" in await door.text("merge", runtime="trunk", branch="try")
    assert (await door.text("run", runtime="trunk", code="n, more")).startswith("([1, 2], 5)")
    assert "exists already" in await door.error("fork", runtime="trunk", branch="try")
    await door.text("close", runtime="try")
    assert "no runtime 'try' is open" in await door.error("run", runtime="try", code="n")


async def test_a_variable_is_handed_to_another_runtime(door: Speaker) -> None:
    await door.text("open", runtime="giver")
    await door.text("open", runtime="taker")
    await door.text("run", runtime="giver", code="import pandas as pd\ndf = pd.DataFrame({'a': range(3)})")
    for _ in range(2):  # the second time, the name exists
        await door.text("share", runtime="giver", variable="df", to="taker", new_name="frame")
    assert await door.text("run", runtime="taker", code="frame.a.sum()") == "np.int64(3)"
    assert "not_there" in await door.error("share", runtime="giver", variable="not_there", to="taker")


async def test_a_patch_is_first_explained_and_then_runs_only_what_depends_on_it(door: Speaker) -> None:
    await door.text("open", runtime="patched")
    for code in ("a = 1", "b = a + 1", "c = 'apart'", "d = b * 10"):
        await door.text("run", runtime="patched", code=code)
    plan = await door.text("patch", runtime="patched", step=2, code="b = a + 5")
    assert plan.startswith("2 steps to run")
    assert await door.text("run", runtime="patched", code="d") == "20"
    shown = await door.text("patch", runtime="patched", step=2, code="b = a + 5", apply=True)
    assert shown.startswith("Patched; ran again: 2, 4-5.\n")
    assert "c" not in shown.partition("Changed:")[2].split("\n")[0]
    assert await door.text("run", runtime="patched", code="d") == "60"
    assert "d was last written in step" in await door.text("history", runtime="patched", variable="d")
    assert (
        "nothing was patched"
        in (await door.error("patch", runtime="patched", step=6, code="1/0", apply=True)).lower()
    )


@pytest.mark.slow
async def test_pictures_come_as_images_and_as_resources(door: Speaker) -> None:
    await door.text("open", runtime="figures")
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    result = await door.call("run", runtime="figures", code=code)
    assert result.content[1].type == "image"
    picture = base64.b64decode(result.content[1].data)
    assert picture.startswith(b"\x89PNG")
    listed = [str(one.uri) for one in (await door.client.list_resources()).resources]
    assert "cenote://figures/figures/1/0" in listed
    found = (await door.client.read_resource("cenote://figures/figures/1/0")).contents[0]
    assert base64.b64decode(found.blob) == picture  # type: ignore[union-attr]


async def test_resources_give_facts_never_values(door: Speaker) -> None:
    await door.text("open", runtime="facts")
    await door.text("run", runtime="facts", code="secret_value = 'do not show ' * 50")
    await door.text("files", runtime="facts", action="write", path="a b.txt", text="in a file")

    async def read(path: str) -> str:
        content = (await door.client.read_resource(f"cenote://facts/{path}")).contents[0]
        return base64.b64decode(content.blob).decode() if hasattr(content, "blob") else content.text

    variables = json.loads(await read("variables"))
    assert [(one["name"], one["type"], one["shape"]) for one in variables] == [("secret_value", "str", None)]
    assert json.loads(await read("variables/secret_value"))["step"] == 1
    assert json.loads(await read("history"))["head"] == 2
    assert await read("files/a%20b.txt") == "in a file"
    for wrong in ("variables/nope", "nothing", "figures/1/0", "files/../../etc/passwd"):
        with pytest.raises(MCPError) as caught:
            await read(wrong)
        assert caught.value.code == -32602


async def test_one_runtime_too_many_is_refused_with_the_way_out() -> None:
    runtimes = OpenRuntimes(LocalSource(SandboxPolicy(preload=())))
    runtimes._held = dict.fromkeys(map(str, range(MOST_OPEN)))  # type: ignore[arg-type]  # as if they were there
    async with Client(mcp_server(serving(runtimes))) as client:
        refused = await client.call_tool("open", {"runtime": "one more"})
    assert refused.is_error
    assert "close one" in text_of(refused)


async def test_a_long_cell_reports_progress_and_ends_when_it_is_cancelled(door: Speaker) -> None:
    await door.text("open", runtime="long")
    heard = asyncio.Event()
    messages = list[str | None]()

    async def hear(_: float, __: float | None, message: str | None) -> None:
        messages.append(message)
        if message is not None:
            heard.set()

    code = "import time\nprint('epoch 1', flush=True)\nwhile True: time.sleep(0.01)"
    call = asyncio.create_task(
        door.client.call_tool("run", {"runtime": "long", "code": code}, progress_callback=hear)
    )
    await heard.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert "epoch 1" in messages
    assert await door.text("run", runtime="long", code="1 + 1") == "2"


@pytest.mark.slow
async def test_over_stdio_as_a_client_starts_it_and_a_state_in_a_store_is_there_again(tmp_path: Path) -> None:
    command = ["-m", "cenote.cli.main", "mcp", "--store", str(tmp_path / "store")]
    for code, expected in (("n = 41", "(no output)"), ("n + 1", "42")):
        started = StdioServerParameters(command=sys.executable, args=command, cwd=tmp_path)
        async with Client(stdio_client(started)) as client:
            assert client.server_info is not None
            assert client.server_info.name == "cenote"
            assert text_of(await client.call_tool("run", {"code": code})) == expected


async def test_what_only_says_that_it_is_a_picture_is_none(door: Speaker) -> None:
    await door.text("open", runtime="forged")
    await door.text("files", runtime="forged", action="write", path="chart.png", text="no picture")
    read = await door.call("files", runtime="forged", action="read", path="chart.png")
    assert [(part.type, getattr(part, "text", "")) for part in read.content] == [("text", "no picture")]
    code = "class P:\n    def _repr_png_(self): return b'none'\nP()"
    shown = await door.call("run", runtime="forged", code=code)
    assert [part.type for part in shown.content] == ["text"]


async def test_a_label_of_digits_can_be_returned_to(door: Speaker) -> None:
    await door.text("open", runtime="digits")
    await door.text("run", runtime="digits", code="x = 1")
    await door.text("checkpoint", runtime="digits", label="2026")
    await door.text("run", runtime="digits", code="x = 2")
    assert await door.text("rollback", runtime="digits", to="2026") == "back at the end of step 1"
    assert "at least 1 character" in await door.error("checkpoint", runtime="digits", label="")


@pytest.mark.parametrize("name", [".", "..", ". .", " "])
async def test_dots_alone_are_no_name(door: Speaker, name: str) -> None:
    """Clients would leave them out of addresses."""
    assert "more than dots" in await door.error("open", runtime=name)


async def test_a_resource_whose_address_is_none(door: Speaker) -> None:
    with pytest.raises(MCPError, match="is no address"):
        await door.client.read_resource("cenote://[::1/variables")
