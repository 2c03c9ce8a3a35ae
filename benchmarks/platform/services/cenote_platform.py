"""A platform started with `cenote up` in its own folders, and its runtimes over gRPC."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import ClassVar

import cenote
from benchmarks.platform.service import Namespace, Service
from benchmarks.platform.services.ray_machine import PATIENCE, RayMachine
from benchmarks.runtime.contender import CellFailedError
from cenote.gateway.process.launch import start_platform, stop_platform
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.store.state_folder import StateFolder, state_folder
from cenote.runtime import PythonRuntime, Variable


class CenoteNamespace(Namespace):
    def __init__(self, address: str) -> None:
        self._runtime = PythonRuntime(address=address)

    def execute(self, code: str) -> str:
        result = self._runtime.execute(code)
        if not result.success:
            raise CellFailedError(str(result.error))
        return result.stdout

    def share(self, name: str) -> object:
        return self._runtime.share(name)

    def receive(self, name: str, parcel: object) -> None:
        self._runtime.inject(Variable(name, parcel))

    def close(self) -> None:
        self._runtime.close()


@contextmanager
def _config(folder: Path) -> Iterator[None]:
    """Where a platform stores its user's token, and where the user's client looks for it."""
    before = os.environ["XDG_CONFIG_HOME"]
    os.environ["XDG_CONFIG_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ["XDG_CONFIG_HOME"] = before


def _wait_for_machines(address: str, wanted: int) -> None:
    until = time.monotonic() + PATIENCE
    while sum(not node.silent for node in cenote.connect(address).describe().nodes) < wanted:
        if time.monotonic() > until:
            raise TimeoutError(f"{wanted} machines did not come")
        time.sleep(0.2)


class CenotePlatform(Service[CenoteNamespace]):
    """A platform that the user already runs is not touched."""

    cheap: ClassVar[bool] = True

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="cb-"))  # short: a socket path has at most 107 bytes
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(self._folder)
        self._state = state_folder()
        self._address = start_platform(PlatformOptions(state=self._state, port=0)).address

    @property
    def address(self) -> str:
        return self._address

    def open(self) -> CenoteNamespace:
        return CenoteNamespace(self._address)

    @contextmanager
    def apart(self) -> Iterator[tuple[Callable[[], CenoteNamespace], Callable[[], CenoteNamespace]]]:
        """A second platform on a cluster of two machines: runtimes go to the less loaded one, so they alternate."""
        with ExitStack() as opened, _config(self._folder / "apart-config"):
            head = RayMachine()
            opened.callback(head.end)
            opened.callback(RayMachine(head.address).end)
            state = StateFolder(path=self._folder / "apart")
            address = start_platform(PlatformOptions(state=state, port=0, ray_address=head.address)).address
            opened.callback(stop_platform, state)
            _wait_for_machines(address, 2)
            yield partial(CenoteNamespace, address), partial(CenoteNamespace, address)

    def close(self) -> None:
        stop_platform(self._state)
        rmtree(self._folder, ignore_errors=True)
