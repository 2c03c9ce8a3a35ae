"""The timed cells: the code that prepares one, and the work that it repeats."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cell:
    """prepare: run once per sandbox. code: the body of a function, run once per sample; its result is dropped.

    In both, `{folder}` stands for the sandbox's writable folder and `{times}` for how often the work is done.
    """

    name: str
    title: str
    prepare: str
    code: str
    times: int

    def preparation(self, folder: str, times: int) -> str:
        """A cell that defines the work."""
        body = "\n".join("    " + line for line in self.code.strip().splitlines())
        source = f"{self.prepare.strip()}\ndef {self.function}():\n{body}\n"
        return source.replace("{folder}", folder).replace("{times}", str(times))

    @property
    def function(self) -> str:
        return f"work_{self.name}"

    @property
    def timed(self) -> str:
        """A cell that does the work once and prints the seconds that it took."""
        return (
            "import time\n"
            "_started = time.perf_counter()\n"
            f"{self.function}()\n"
            "print(time.perf_counter() - _started)"
        )


EMPTY = Cell(name="nothing", title="a cell that does nothing", prepare="", code="pass", times=1)

CELLS = (
    Cell(
        name="loop",
        title="a loop of integer arithmetic in Python",
        prepare="",
        code="""
total = 0
for i in range({times}):
    total += i * i % 7
return total
""",
        times=1_500_000,
    ),
    Cell(
        name="matmul",
        title="products of two 256 x 256 matrices, one thread of BLAS",
        prepare="""
import numpy
left = numpy.random.default_rng(1).random((256, 256))
""",
        code="""
for _ in range({times}):
    left @ left
""",
        times=150,
    ),
    Cell(
        name="calls",
        title="60,000 system calls: stat of a library file, read of 64 bytes of it, getpid",
        prepare="""
import os
path = os.__file__
descriptor = os.open(path, os.O_RDONLY)
""",
        code="""
stat, pread, getpid = os.stat, os.pread, os.getpid
for _ in range({times}):
    stat(path)
    pread(descriptor, 64, 0)
    getpid()
""",
        times=20_000,
    ),
    Cell(
        name="files",
        title="small files: create, write 64 bytes, close, remove; in memory-backed storage",
        prepare="import os",
        code="""
for _ in range({times}):
    with open("{folder}/small", "xb") as made:
        made.write(b"64 bytes" * 8)
    os.remove("{folder}/small")
""",
        times=4000,
    ),
    Cell(
        name="open",
        title="open a library file, read 64 bytes of it, close",
        prepare="import os\npath = os.__file__",
        code="""
for _ in range({times}):
    with open(path, "rb", buffering=0) as opened:
        opened.read(64)
""",
        times=8000,
    ),
)
