"""The process that works on a team, or a job: `python -m cenote.gateway.work.process SETTINGS`."""

from __future__ import annotations

import logging
import os
import sys
import threading
from concurrent.futures import Future

from cenote.doors.otlp import export_to
from cenote.gateway.process import logs
from cenote.gateway.work.settings import OrchestratorSettings, WorkLoop, loop_of, loop_type
from cenote.gateway.work.workload import SupersededError
from cenote_security.errors import CenoteError

log = logging.getLogger("cenote.orchestrators")


def main(settings: str) -> int:
    """Returns the exit status. The process is restarted as long as there is something to do."""
    given = OrchestratorSettings.from_json(settings)
    logs.set_up(logging.WARNING, as_json=given.log_json)
    if not given.work:
        loop_type(given.kind)
        if not (line := _line()):
            return 0
        given = OrchestratorSettings.from_json(line)
    made: Future[WorkLoop] = Future()
    threading.Thread(target=_hear_the_gateway, args=(made,), name="cenote-gateway", daemon=True).start()
    flush = export_to(given.otlp, "cenote") if given.otlp else lambda: None
    try:
        made.set_result(loop := loop_of(given))
        loop.work()
    except SupersededError:
        return 0
    except CenoteError as error:
        log.error("%s", error)
        return 1
    finally:
        flush()
    return 0


def _line() -> str:
    """The next line of standard input, of which what is behind it stays; empty if the gateway has ended."""
    read = bytearray()
    while not read.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return ""
        read += byte
    return read.decode()


def _hear_the_gateway(made: Future[WorkLoop]) -> None:
    """Each byte asks it to make room. End of file means that the gateway has ended."""
    while os.read(0, 4096):  # not sys.stdin: reading holds its lock, which the exit of this process takes
        made.add_done_callback(lambda done: done.result().make_room())
    os._exit(1)  # at once: the next process continues from what is recorded


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
