"""The process that works on a team: `python -m cenote.gateway.teams.process SETTINGS`."""

from __future__ import annotations

import logging
import os
import sys
import threading

from cenote.gateway.teams.ledger import SupersededError
from cenote.gateway.teams.orchestrator import Orchestrator
from cenote.gateway.teams.orchestrator_settings import OrchestratorSettings
from cenote_security.errors import CenoteError

log = logging.getLogger("cenote.teams")


def main(settings: str) -> int:
    """Its exit status. It is started again as long as there is something to do."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    threading.Thread(target=_end_with_the_gateway, name="cenote-gateway", daemon=True).start()
    try:
        Orchestrator(OrchestratorSettings.from_json(settings)).work()
    except SupersededError:
        return 0
    except CenoteError as error:
        log.error("%s", error)
        return 1
    return 0


def _end_with_the_gateway() -> None:
    while os.read(
        0, 4096
    ):  # not by sys.stdin, whose lock is held then, and which the end of this process takes
        pass
    os._exit(1)  # at once: whoever works on the team next goes on from what is written down


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
