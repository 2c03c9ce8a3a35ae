"""A process that forks platforms on one state folder, one per line of its input, to be killed at any moment.

A line gives the port. Each prints its pid, and its address.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.checkpoints.lives import live, say

from cenote.gateway.machines import local_nodes
from cenote.gateway.process.daemon_lock import Running
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import serve
from cenote.gateway.store.state_folder import StateFolder


class Told:
    """An Announcer to the reader of the output."""

    def ready(self, running: Running) -> None:
        say("listens", running.address)

    def beat(self) -> None:
        pass

    def condition(self, condition: object) -> None:
        pass

    def ending(self) -> None:
        pass


def platform(state: Path, port: int) -> None:
    """Runs until it is killed."""
    os.setpgid(0, 0)
    options = PlatformOptions(state=StateFolder(path=state), port=port, without_ray=True, no_http=True)
    serve(options, Told())


if __name__ == "__main__":
    # Half of a platform's start-up time: numpy and pandas, which no runtime here needs.
    local_nodes._warm = lambda: None
    live(lambda line: platform(Path(sys.argv[1]), int(line)))
