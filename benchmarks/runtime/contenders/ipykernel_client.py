"""A Jupyter kernel driven through jupyter_client, as notebooks and most code interpreters do it.

Jupyter has no call to move a value, so pickle protocol 5 through a file in memory-backed storage is measured, which
is many times faster than base64 in source text.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import ClassVar, Self

from benchmarks.kernel import CELL_LIMIT, Kernel
from benchmarks.runtime.contender import Contender


class IpykernelContender(Contender):
    separate: ClassVar[bool] = True

    def __init__(self) -> None:
        self._kernel = Kernel(sys.executable)

    def execute(self, code: str) -> str:
        return self._kernel.execute(code)

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
        client = self._kernel.client
        client.control_channel.send(client.session.msg("kernel_info_request"))
        client.get_control_msg(timeout=CELL_LIMIT)

    def close(self) -> None:
        self._kernel.close()

    def _load(self, name: str, path: Path) -> None:
        self.execute(f"import pickle\nwith open({str(path)!r}, 'rb') as f: {name} = pickle.load(f)")

    def _dump(self, name: str) -> Path:
        path = _scratch_file()
        self.execute(
            f"import pickle\nwith open({str(path)!r}, 'wb') as f: pickle.dump({name}, f, protocol=5)"
        )
        return path


def _scratch_file() -> Path:
    """A new file in memory-backed storage, in the directory that the driver removes at its end."""
    descriptor, path = tempfile.mkstemp(dir=os.environ.get("BENCH_SCRATCH"))
    os.close(descriptor)
    return Path(path)
