"""A platform as `cenote up` starts it, in folders of its own, and its runtimes over gRPC."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import ClassVar

from benchmarks.platform.service import Namespace, Service
from benchmarks.runtime.contender import CellFailedError
from cenote.gateway.launch import start_platform, stop_platform
from cenote.gateway.options import PlatformOptions
from cenote.gateway.state_folder import state_folder
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


class CenotePlatform(Service[CenoteNamespace]):
    """The user's own platform, if one runs, is not touched."""

    cheap: ClassVar[bool] = True

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="cb-"))  # short: the path of a socket has 107 bytes
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(self._folder)
        self._state = state_folder()
        self._address = start_platform(PlatformOptions(state=self._state, port=0)).address

    def open(self) -> CenoteNamespace:
        return CenoteNamespace(self._address)

    def close(self) -> None:
        stop_platform(self._state)
        rmtree(self._folder, ignore_errors=True)
