"""A process that forks platforms on one state folder, one per line of its input, to be killed at any moment.

A line says at which port. Each prints its pid, and where it listens.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from cenote.gateway.options import PlatformOptions
from cenote.gateway.platform import serve
from cenote.gateway.state_folder import StateFolder


def platform(state: Path, port: int) -> None:
    """Until it is killed."""
    os.setpgid(0, 0)
    options = PlatformOptions(state=StateFolder(path=state), port=port, without_ray=True)
    serve(options, lambda running: print("listens", running.address, flush=True))


def main(state: str) -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                platform(Path(state), int(line))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        print("pid", child, flush=True)
        os.waitpid(child, 0)
        print("over", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
