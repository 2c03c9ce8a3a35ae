"""Programs that take memory as fast as they can, each of a kind that limits of single processes do not see."""

from __future__ import annotations

from typing import Final

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
    "8 processes": """
import os
for _ in range(8):
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
""",
}
"""Name and source. Each ends with a kill, of its jail or of one of its processes."""
