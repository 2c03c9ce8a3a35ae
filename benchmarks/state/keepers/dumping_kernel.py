"""A Jupyter kernel whose whole namespace is dumped to a file and loaded from it, as users do by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar, Self

from benchmarks.kernel import Kernel
from benchmarks.state.keeper import Kept
from benchmarks.state.keepers.kernel_keeper import KernelKeeper


class DumpingKeeper(KernelKeeper):
    """library: what the kernel imports. dump, load: cells; `{path}` is the file."""

    library: ClassVar[str]
    dump: ClassVar[str]
    load: ClassVar[str]

    def __init__(self, folder: Path, memory: int, *, keeping: bool = True) -> None:
        super().__init__(folder, memory, keeping=keeping)
        __import__(self.library)
        self._path = folder / f"namespace.{self.library}"
        self._kernel = self._start()

    def _start(self) -> Kernel:
        kernel = Kernel(sys.executable, folder=str(self.folder))
        kernel.execute(f"import {self.library}")
        return kernel

    def execute(self, code: str) -> str:
        printed = self._kernel.execute(code)
        if self.keeping:
            self._dump()
        return printed

    def prepare(self, code: str) -> None:
        self._kernel.execute(code)

    def peek(self, code: str) -> str:
        return self._kernel.execute(code)

    def keep(self) -> Kept:
        return Kept.by(self._dump)

    def _dump(self) -> int:
        self._kernel.execute(self.dump.format(path=str(self._path)))
        return self._path.stat().st_size

    def go_back(self) -> None:
        self._kernel.execute(self.load.format(path=str(self._path)))

    def branch(self) -> Self:
        other = type(self)(self.folder, self.memory, keeping=self.keeping)
        other.go_back()
        return other


class DillKeeper(DumpingKeeper):
    """dill's own call for a whole session."""

    library = "dill"
    dump = "dill.dump_module({path!r})"
    load = "dill.load_module({path!r})"


class CloudpickleKeeper(DumpingKeeper):
    """cloudpickle has no such call: names that begin with an underscore and IPython's own are left out."""

    library = "cloudpickle"
    dump = """\
with open({path!r}, "wb") as _file:
    _names = {{name: value for name, value in globals().items() if not name.startswith("_")}}
    for _name in ("In", "Out", "get_ipython", "exit", "quit", "open"):
        _names.pop(_name, None)
    cloudpickle.dump(_names, _file, protocol=5)
    del _names
"""
    load = """\
import pickle as _pickle
with open({path!r}, "rb") as _file:
    globals().update(_pickle.load(_file))
"""
