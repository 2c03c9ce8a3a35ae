"""Five clients in turn work on one table of 200 MB in one runtime, without a copy; then one of them rolls back.

The E2B SDK makes it, and an MCP client, a Jupyter client, HTTP and gRPC each add a column. The record names the
interface of each step. Needs `pip install 'cenote[platform,http,mcp,jupyter,data]' e2b-code-interpreter` and a
platform:

    cenote up --without-ray
    python examples/doors.py [--address HOST:PORT] [--http URL] [--token TOKEN]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from e2b_code_interpreter import Sandbox
from jupyter_client.manager import start_new_kernel
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from cenote import connect

TABLE = """
import numpy as np, pandas as pd
df = pd.DataFrame({"amount": np.arange(25_000_000, dtype=float)})
place = df["amount"].to_numpy().ctypes.data
df["amount"].nbytes
"""
COLUMN = 'df["{door}"] = 1\ndf["amount"].to_numpy().ctypes.data == place'
"""The value shows whether the numbers are still at the same address."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--address", default="localhost:8470")
    parser.add_argument("--http", default="http://localhost:8480")
    parser.add_argument(
        "--token", default=os.environ.get("CENOTE_TOKEN", ""), help="default: $CENOTE_TOKEN, or yours"
    )
    options = parser.parse_args()
    token = options.token or (Path.home() / ".config/cenote/token").read_text().strip()
    with Sandbox.create(
        api_url=options.http, sandbox_url=options.http, api_key=token, timeout=600
    ) as sandbox:
        show("e2b", f"{int(sandbox.run_code(TABLE).text or 0) // 10**6} MB")
        name = sandbox.sandbox_id
        show("mcp", asyncio.run(by_mcp(options.http, token, name)))
        show("jupyter", by_jupyter(options.address, token, name))
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"{options.http}/v1/runtimes/{name}", headers=headers, timeout=60) as http:
            show("http", http.post("/cells", json={"code": COLUMN.format(door="http")}).json()["value"])
            with connect(options.address, token).runtime(name) as runtime:
                show("grpc", runtime.execute(COLUMN.format(door="grpc")).value)
                authors = [step["author"] or "grpc" for step in http.get("/steps").json()]
                print("steps by", ", ".join(authors))
                http.post("/rollback", json={"to": 2}).raise_for_status()
                print("back at step 2, by http")
                show("grpc", runtime.execute("list(df)").value)
        show("e2b", sandbox.run_code("list(df)").text)


def show(door: str, said: object) -> None:
    print(f"{door:8}{said}")


async def by_mcp(http: str, token: str, name: str) -> str:
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as line,
        Client(streamable_http_client(f"{http}/mcp", http_client=line)) as client,
    ):
        result = await client.call_tool("run", {"runtime": name, "code": COLUMN.format(door="mcp")})
    return str(result.content[0].text)  # type: ignore[union-attr]


def by_jupyter(address: str, token: str, name: str) -> str:
    """In a notebook's kernel that attaches to the runtime."""
    said = list[str]()

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] == "execute_result":
            said.append(message["content"]["data"]["text/plain"])

    with TemporaryDirectory() as folder:
        os.environ |= {"JUPYTER_DATA_DIR": folder, "CENOTE_TOKEN": token}
        attach = [sys.executable, "-m", "cenote.cli.main", "jupyter", "attach", name, "--address", address]
        subprocess.run(attach, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  (this interpreter)
        manager, client = start_new_kernel(kernel_name=f"cenote-{name}")
        client.execute_interactive(COLUMN.format(door="jupyter"), output_hook=hear, timeout=60)
        client.stop_channels()
        manager.shutdown_kernel()
    return said[0]


if __name__ == "__main__":
    main()
