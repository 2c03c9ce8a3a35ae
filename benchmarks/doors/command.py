"""Runs one small cell through each interface to the same runtime, in turns, and measures the HTTP server at rest.

HTTP and MCP are served by `cenote up`, and by a `cenote serve` in front of it. HTTP is called with httpx, and over a
bare connection, which shows what of it is the client's library.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

import cenote
from cenote import AsyncPythonRuntime

CELL = "x = 1"
NAME = "measured"
GRPC_PORT = 8475
HTTP_PORT = 8485
UP_PORT = 8486
REST = 10.0
"""Seconds for which the server is left idle."""

Way = Callable[[], Awaitable[object]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cells", type=int, default=100, help="of each way in a round")
    parser.add_argument("--quick", action="store_true", help="does everything run?")


def run(arguments: argparse.Namespace) -> None:
    rounds, cells = (1, 5) if arguments.quick else (arguments.rounds, arguments.cells)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder)}
        stack.enter_context(_platform(environment))
        server = stack.enter_context(_server(environment))
        token = (folder / "cenote" / "token").read_text().strip()
        rest = 1.0 if arguments.quick else REST
        _at_rest(server, rest, "before its first call")
        asyncio.run(_measured(token, rounds, cells))
        _at_rest(server, rest, "after these calls, with MCP's and gRPC's libraries loaded")


async def _measured(token: str, rounds: int, cells: int) -> None:
    base, up = f"http://127.0.0.1:{HTTP_PORT}", f"http://127.0.0.1:{UP_PORT}"
    headers = {"Authorization": f"Bearer {token}"}
    platform = cenote.connect(f"localhost:{GRPC_PORT}", token)
    with cenote.PythonRuntime() as embedded:
        took = [await _timed(lambda: asyncio.to_thread(embedded.execute, CELL)) for _ in range(2 * cells)]
        print(f"embedded {1000 * statistics.median(took[cells:]):9.2f} ms")
    async with (
        await platform.async_runtime(NAME) as runtime,
        httpx.AsyncClient(base_url=base, headers=headers, timeout=60) as http,
        httpx.AsyncClient(base_url=up, headers=headers, timeout=60) as http_of_up,
        create_mcp_http_client(headers=headers) as line,
        Client(streamable_http_client(f"{base}/mcp", http_client=line)) as mcp,
        Client(streamable_http_client(f"{up}/mcp", http_client=line)) as mcp_of_up,
    ):
        ways: dict[str, Way] = {
            "gRPC": lambda: _by_grpc(runtime),
            "HTTP of up": lambda: _by_http(http_of_up),
            "HTTP, bare, of up": BareHttp(UP_PORT, token),
            "MCP of up": lambda: mcp_of_up.call_tool("run", {"code": CELL, "runtime": NAME}),
            "HTTP of serve": lambda: _by_http(http),
            "HTTP, bare, of serve": BareHttp(HTTP_PORT, token),
            "MCP of serve": lambda: mcp.call_tool("run", {"code": CELL, "runtime": NAME}),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            order = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
            for name in order:
                took = [await _timed(ways[name]) for _ in range(cells)]
                if number:  # the first round warms up
                    found[name].append(statistics.median(took))
    print(f"{'way':20} {'median ms':>10} {'/ gRPC':>8}")
    for name, medians in found.items():
        ratio = statistics.median(one / grpc for one, grpc in zip(medians, found["gRPC"], strict=True))
        print(f"{name:20} {1000 * statistics.median(medians):10.2f} {ratio:8.2f}")


async def _timed(way: Way) -> float:
    began = time.perf_counter()
    await way()
    return time.perf_counter() - began


async def _by_grpc(runtime: AsyncPythonRuntime) -> None:
    assert (await runtime.execute(CELL)).success


async def _by_http(http: httpx.AsyncClient) -> None:
    answer = await http.post(f"/v1/runtimes/{NAME}/cells", json={"code": CELL})
    assert json.loads(answer.content)["success"]


class BareHttp:
    """Writes each request as it stands and reads its answer, and does no more."""

    def __init__(self, port: int, token: str) -> None:
        body = json.dumps({"code": CELL}).encode()
        head = (
            f"POST /v1/runtimes/{NAME}/cells HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._port = port
        self._request = head.encode() + body
        self._line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __call__(self) -> None:
        if self._line is None or self._line[0].at_eof():  # the server ends connections that are idle
            self._line = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._line
        writer.write(self._request)
        status, *headers = (await reader.readuntil(b"\r\n\r\n")).splitlines()
        assert b" 200 " in status
        fields = dict(line.lower().split(b": ", 1) for line in headers if line)
        assert json.loads(await reader.readexactly(int(fields[b"content-length"])))["success"]


def _at_rest(server: int, seconds: float, when: str) -> None:
    before, began = _cpu(server), time.perf_counter()
    time.sleep(seconds)
    busy = (_cpu(server) - before) / (time.perf_counter() - began)
    resident = next(
        int(line.split()[1])
        for line in Path(f"/proc/{server}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    print(f"the HTTP server at rest {when}: {100 * busy:.2f} % of a core, {resident / 1024:.0f} MiB resident")


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _platform(environment: dict[str, str]) -> Iterator[None]:
    _cenote(environment, "up", "--without-ray", "--port", str(GRPC_PORT), "--http", f"127.0.0.1:{UP_PORT}")
    try:
        yield
    finally:
        _cenote(environment, "down")


@contextmanager
def _server(environment: dict[str, str]) -> Iterator[int]:
    """The server's process."""
    words = ["serve", "--port", str(HTTP_PORT), "--address", f"localhost:{GRPC_PORT}"]
    command = [sys.executable, "-m", "cenote.cli.main", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert "listening" in server.stdout.readline()
            yield server.pid
        finally:
            server.terminate()


def _cenote(environment: dict[str, str], *words: str) -> None:
    subprocess.run([sys.executable, "-m", "cenote.cli.main", *words], env=environment, check=True)
