"""Runs the conformance suite of the Model Context Protocol against `/mcp`, and reports the result of each scenario.

    npm install @modelcontextprotocol/conformance@0.1.16 node@22      (in FOLDER; the suite needs Node 22)
    python -m tests.peers.mcp_conformance FOLDER

The suite sends no token, so this server adds one. It calls tools, prompts and resources of a server made for it; the
scenarios of what every server has are those in `OFFERED`. Exit status 1: one of these fails.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import Receive, Scope, Send

from cenote import SandboxPolicy
from cenote.doors.callers import OneCaller
from cenote.doors.http_app import http_app
from cenote.doors.open_runtimes import LocalSource, OpenRuntimes

OFFERED: Final = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)
TOKEN: Final = "a-token-of-this-run"


class WithToken:
    """The application, for clients that cannot send a token."""

    def __init__(self) -> None:
        self._app = http_app(OneCaller(TOKEN, OpenRuntimes(LocalSource(SandboxPolicy(preload=())))))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            header = (b"authorization", f"Bearer {TOKEN}".encode())
            scope = {**scope, "headers": [*scope["headers"], header]}
        await self._app(scope, receive, send)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the suite is installed")
    parser.add_argument("scenarios", nargs="*", help="by default those of what is offered")
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(WithToken(), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        url = f"http://localhost:{listening.getsockname()[1]}/mcp"
        failed = [name for name in options.scenarios or OFFERED if not passes(options.folder, url, name)]
    finally:
        server.should_exit = True
        thread.join()
    print(f"failed: {', '.join(failed)}" if failed else "all pass")
    return 1 if failed else 0


def passes(folder: Path, url: str, scenario: str) -> bool:
    modules = folder.resolve() / "node_modules"
    node, suite = (
        modules / "node" / "bin" / "node",
        modules / "@modelcontextprotocol/conformance/dist/index.js",
    )
    command = [node, suite, "server", "--url", url, "--scenario", scenario]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if "assed" in line or "✗" in line or "rror" in line]
    print(
        f"{scenario}: {'passes' if done.returncode == 0 else 'fails'}: {' | '.join(lines)[:300]}", flush=True
    )
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
