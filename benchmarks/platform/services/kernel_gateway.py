"""Jupyter Kernel Gateway: kernels made over HTTP, cells over a websocket to each.

It has no call to move a value, so pickle protocol 5 through a file in memory-backed storage is measured.
"""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar
from urllib.error import URLError

import kernel_gateway  # a missing library is reported before anything starts
import websocket

from benchmarks.platform.service import Namespace, Service
from benchmarks.runtime.contender import CellFailedError

START_LIMIT = 30.0
CELL_LIMIT = 120.0
MEMORY_BACKED = "/dev/shm"


class KernelNamespace(Namespace):
    def __init__(self, host: str, scratch: Path) -> None:
        self._host = host
        self._scratch = scratch
        self._kernel = str(_request(host, "POST", "/api/kernels")["id"])
        url = f"ws://{host}/api/kernels/{self._kernel}/channels"
        self._line = websocket.create_connection(
            url, timeout=CELL_LIMIT, sockopt=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        )
        self._session = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._shared: list[Path] = []

    def execute(self, code: str) -> str:
        """Done when both the reply and the kernel's `idle` have arrived; their order varies."""
        asked = f"{self._session}-{next(self._numbers)}"
        self._line.send(json.dumps(self._cell(asked, code)))
        printed: list[str] = []
        missing = {"execute_reply", "idle"}
        while missing:
            # The gateway's small messages wait for acknowledgements, which the kernel delays by 40 ms.
            self._line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            message = json.loads(self._line.recv())
            if message["parent_header"].get("msg_id") == asked:
                missing -= _heard(message["msg_type"], message["content"], printed)
        return "".join(printed)

    def share(self, name: str) -> object:
        path = self._scratch / f"{uuid.uuid4().hex}.pickle"
        self._shared.append(path)
        self.execute(
            f"import pickle\nwith open({str(path)!r}, 'wb') as f: pickle.dump({name}, f, protocol=5)"
        )
        return path

    def receive(self, name: str, parcel: object) -> None:
        self.execute(f"import pickle\nwith open({str(parcel)!r}, 'rb') as f: {name} = pickle.load(f)")

    def close(self) -> None:
        self._line.close()
        for path in self._shared:
            path.unlink(missing_ok=True)
        _request(self._host, "DELETE", f"/api/kernels/{self._kernel}")

    def _cell(self, asked: str, code: str) -> dict[str, object]:
        return {
            "header": {
                "msg_id": asked,
                "msg_type": "execute_request",
                "session": self._session,
                "username": "",
                "version": "5.3",
            },
            "parent_header": {},
            "metadata": {},
            "channel": "shell",
            "content": {"code": code, "silent": False, "store_history": False, "allow_stdin": False},
        }


def _heard(kind: str, content: dict[str, str], printed: list[str]) -> set[str]:
    """Messages that need not be waited for any more."""
    if kind == "stream":
        printed.append(content["text"])
    if kind == "execute_reply" and content["status"] != "ok":
        raise CellFailedError(f"{content.get('ename')}: {content.get('evalue')}")
    return {kind, content.get("execution_state", "")}


class KernelGateway(Service[KernelNamespace]):
    cheap: ClassVar[bool] = False

    def __init__(self) -> None:
        self._scratch = TemporaryDirectory(dir=MEMORY_BACKED if Path(MEMORY_BACKED).is_dir() else None)
        self._host = f"127.0.0.1:{_free_port()}"
        command = [sys.executable, "-m", kernel_gateway.__name__, "--KernelGatewayApp.ip=127.0.0.1"]
        command.append(f"--KernelGatewayApp.port={self._host.rpartition(':')[2]}")
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_until_up()

    def open(self) -> KernelNamespace:
        return KernelNamespace(self._host, Path(self._scratch.name))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._scratch.cleanup()

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                _request(self._host, "GET", "/api")
            except URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return


def _request(host: str, method: str, path: str) -> dict[str, object]:
    request = urllib.request.Request(f"http://{host}{path}", method=method)
    with urllib.request.urlopen(request, data=b"{}" if method == "POST" else None) as answer:
        found: dict[str, object] = json.loads(answer.read() or b"{}")
        return found


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
