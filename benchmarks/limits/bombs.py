"""Programs that allocate memory as fast as possible, each in a way that per-process limits do not see."""

from __future__ import annotations

from typing import Final


def _processes(count: int) -> str:
    return f"""
import os
for _ in range({count}):
    if not os.fork():
        held = []
        while True:
            held.append(bytearray(b"x" * (4 << 20)))
            if len(held) > 30:
                break
        while True: pass
while True:
    _, status = os.wait()
    if status:
        raise ChildProcessError("a child was killed")
"""


BOMBS: Final = {
    "memory files": """
import os
data = memoryview(bytes(16 << 20))
while True:
    os.write(os.memfd_create("bomb"), data)
""",
    "disk": """
data = bytes(16 << 20)
with open("bomb", "wb") as file:
    while True:
        file.write(data)
""",
    "shared mappings": """
import mmap
held = []
while True:
    held.append(mmap.mmap(-1, 16 << 20))
    held[-1].write(bytes(16 << 20))
""",
    "8 processes": _processes(8),
    "24 processes": _processes(24),
    "page tables": """
import ctypes, mmap
libc, size = ctypes.CDLL(None), 1 << 40
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))
libc.madvise(ctypes.c_void_p(place), ctypes.c_size_t(size), 15)
for step in range(place, place + size, 1 << 21):
    ctypes.c_char.from_address(step).value
""",
    "sockets": """
import os, socket
for _ in range(8):
    if not os.fork():
        break
data, held = b"x" * 60_000, []
while True:
    try:
        held.append(socket.socketpair())
        held[-1][0].setblocking(False)
        while True:
            held[-1][0].send(data)
    except OSError:
        continue
""",
}
"""Name and source. Each ends with a kill of its jail or of one of its processes."""
