"""A Jupyter kernel driven through jupyter_client, as notebooks and most code interpreters do it.

Jupyter has no call to move a value. What a careful user writes is measured: pickle protocol 5 through a file
in memory-backed storage, which beats source text with base64 many times over.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
from pathlib import Path
from typing import ClassVar, Self

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from benchmarks.runtime.contender import CellFailedError, Contender

START_LIMIT = 60.0
CELL_LIMIT = 300.0


class IpykernelContender(Contender):
    separate: ClassVar[bool] = True

    def __init__(self) -> None:
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel()
        self._client: BlockingKernelClient = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=START_LIMIT)
        self._one_cell_at_a_time = threading.Lock()

    def execute(self, code: str) -> str:
        printed: list[str] = []

        def collect(message: dict[str, dict[str, str]]) -> None:
            printed.append(message["content"].get("text", ""))

        with self._one_cell_at_a_time:
            reply = self._client.execute_interactive(code, output_hook=collect, timeout=CELL_LIMIT)
        if reply["content"]["status"] != "ok":
            raise CellFailedError(f"{reply['content'].get('ename')}: {reply['content'].get('evalue')}")
        return "".join(printed)

    def inject(self, name: str, value: object) -> None:
        path = _scratch_file()
        with path.open("wb") as file:
            pickle.dump(value, file, protocol=5)
        self._load(name, path)
        path.unlink()

    def retrieve(self, name: str) -> object:
        path = self._dump(name)
        with path.open("rb") as file:
            value: object = pickle.load(file)
        path.unlink()
        return value

    def prepare_hand_over(self, name: str) -> object:
        return self._dump(name)

    def receive(self, name: str, parcel: object, giver: Self) -> None:  # noqa: ARG002  (the interface's)
        if not isinstance(parcel, Path):
            raise TypeError(type(parcel))
        self._load(name, parcel)

    def status(self) -> None:
        message = self._client.session.msg("kernel_info_request")
        self._client.control_channel.send(message)
        self._client.get_control_msg(timeout=CELL_LIMIT)

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()

    def _load(self, name: str, path: Path) -> None:
        self.execute(f"import pickle\nwith open({str(path)!r}, 'rb') as f: {name} = pickle.load(f)")

    def _dump(self, name: str) -> Path:
        path = _scratch_file()
        self.execute(
            f"import pickle\nwith open({str(path)!r}, 'wb') as f: pickle.dump({name}, f, protocol=5)"
        )
        return path


def _scratch_file() -> Path:
    """A new file in memory-backed storage, under the directory that the driver removes at its end."""
    descriptor, path = tempfile.mkstemp(dir=os.environ.get("BENCH_SCRATCH"))
    os.close(descriptor)
    return Path(path)
