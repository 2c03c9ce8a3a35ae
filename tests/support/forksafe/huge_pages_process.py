"""Puts its memory on huge pages, in a process that does nothing else; prints how much of it lies there, in bytes.

    python huge_pages_process.py alone | shared | busy

Before, after, and after a copy of it was made and has ended. `shared`: while there is one already. `busy`: a request
waits all the time.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from sharing_process import forked

from cenote_worker.jail.snapshots.memory import HugePages

OBJECTS = 2_500_000
"""Small ones, of 32 bytes, and the list of them: 100 MB."""


def on_huge_pages() -> int:
    told = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return 1024 * int(told["AnonHugePages"].split()[0])


def main(what: str) -> None:
    objects = [number + 10**6 for number in range(OBJECTS)]
    found = [on_huge_pages()]
    with forked() if what == "shared" else nullcontext():
        HugePages().gather(lambda: what != "busy", alone=True)
        found.append(on_huge_pages())
    with forked():
        pass
    found.append(on_huge_pages())
    assert sum(objects) == sum(range(10**6, 10**6 + OBJECTS))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
