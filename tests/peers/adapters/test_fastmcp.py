"""Jails as the sandbox of FastMCP's code mode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cenote import PythonRuntime, SandboxPolicy

pytest.importorskip("fastmcp", reason="needs fastmcp: `make test-peers` has it")

from fastmcp import Client, Context, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode

from cenote.adapters.fastmcp import CenoteSandboxProvider, with_returns
from cenote_security.errors import UsageError

SMALL = SandboxPolicy(memory="512MiB")


def server_over(provider: CenoteSandboxProvider) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("tools", transforms=[CodeMode(sandbox_provider=provider)])

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def who(ctx: Context) -> str:
        return str(ctx.request_id)

    @server.tool
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    return server


async def asked(client: Client[Any], code: str) -> tuple[bool, str]:
    """Whether it failed, and the text of the answer."""
    answer = await client.call_tool("execute", {"code": code}, raise_on_error=False)
    return answer.is_error, "\n".join(part.text for part in answer.content)


async def test_code_calls_tools() -> None:
    """Tools run in the server, with what it knows of the request; code has all installed packages."""
    async with Client(server_over(CenoteSandboxProvider(sandbox=SMALL))) as client:
        three = "r = await call_tool('add', {'a': 1, 'b': 2})\nreturn r"
        assert (False, '{"result":3}') == await asked(client, three)
        assert (False, '[{"a":1}]') == await asked(
            client, "import pandas as pd\npd.DataFrame({'a': [1]}).to_dict('records')"
        )
        failed, _ = await asked(client, "return (await call_tool('who', {}))['result']")
        assert not failed
        assert (False, "printed") == await asked(client, "print('printed')")


async def test_failures_are_for_the_model() -> None:
    """Of code, of a tool's arguments, of limits; what was printed before comes with it."""
    codes = {
        "print('out')\n1/0": "out\nZeroDivisionError",
        "return await call_tool('nothing', {})": "Unknown tool: nothing",
        "return await call_tool('add', {'a': 'x'})": "Valid parameters for add",
        "while True: pass": "ran longer than 3 s",
        "import os\nos._exit(3)": "as it was before this code",
        "return object()": "`return` takes plain data",
        "return (": "SyntaxError",
    }
    async with Client(server_over(CenoteSandboxProvider(timeout=3, sandbox=SMALL))) as client:
        told = {code: await asked(client, code) for code in codes}
    assert [] == [(code, told[code]) for code, sign in codes.items() if (sign in told[code][1]) is not True]
    assert all(failed for failed, _ in told.values())


async def test_blocks_have_nothing_in_common() -> None:
    """Each has a jail of its own, also at once; variables do not stay."""
    async with Client(server_over(CenoteSandboxProvider(sandbox=SMALL))) as client:
        await asked(client, "kept = 5")
        assert "NameError" in (await asked(client, "return kept"))[1]
        codes = [
            f"x = {n}\nreturn x + (await call_tool('add', {{'a': {n}, 'b': 0}}))['result']" for n in range(3)
        ]
        answers = await asyncio.gather(*(asked(client, code) for code in codes))
        assert [(False, str(2 * n)) for n in range(3)] == answers


async def test_a_runtime_of_the_caller() -> None:
    """Variables stay, blocks run one after the other, and it is not closed."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        async with Client(server_over(CenoteSandboxProvider(runtime))) as client:
            await asked(client, "kept = [1]")
            await asyncio.gather(*(asked(client, f"kept.append({n})") for n in (2, 3)))
            assert (False, "3") == await asked(client, "return len(kept)")
        assert [1, 2, 3] == sorted(runtime.retrieve("kept"))
    with pytest.raises(UsageError, match="sandbox can only be given for a new one"):
        CenoteSandboxProvider(runtime, sandbox=SMALL)


async def test_a_request_that_is_cancelled() -> None:
    """Its cell ends, and the namespace is free for the next one."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        provider = CenoteSandboxProvider(runtime, timeout=60)
        started = asyncio.Event()

        async def begun() -> None:
            started.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(provider.run("await begun()", external_functions={"begun": begun}))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert 2 == await provider.run("x = 1\nx + 1", inputs={"given": 5})


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return 1", "_returned((1))"),
        ("return", "_returned()"),
        ("if x:\n    return x, 2  # two", "if x:\n    _returned((x, 2))  # two"),
        ("def f():\n    return 1\nf()", "def f():\n    return 1\n_returned((f()))"),
        ("class A:\n    def f(self): return 1", "class A:\n    def f(self): return 1"),
        ("for é in 'é': return 'é' + é", "for é in 'é': _returned(('é' + é))"),
        ("(1\n+ 2)", "_returned(((1\n+ 2)))"),
        ("try: return 3\nexcept: return 4", "try: _returned((3))\nexcept: _returned((4))"),
        ("match 1:\n    case 1: return 5", "match 1:\n    case 1: _returned((5))"),
        ("async with a as b: return b", "async with a as b: _returned((b))"),
        ("return (", "return ("),
        ("x = lambda: 1", "x = lambda: 1"),
        ("", ""),
    ],
)
def test_returns(code: str, expected: str) -> None:
    """Only those outside of functions change, and the last expression; lines stay."""
    assert expected == with_returns(code)
