"""The process of a platform: `python -m cenote.gateway.process.daemon OPTIONS PIPE`, started by `watcher`."""

from __future__ import annotations

import logging
import sys

from cenote.gateway.process import logs
from cenote.gateway.process.announcement import PipeAnnouncer, refused
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import serve
from cenote_security.errors import CenoteError


def main(options: str, pipe: int) -> int:
    """Returns the exit status. Errors before the platform is ready go through the pipe."""
    given = PlatformOptions.from_json(options)
    logs.set_up(logging.INFO, as_json=given.log_json)
    logging.getLogger("cenote.gateway").info("starting: %s", options)
    with PipeAnnouncer(pipe) as told:
        try:
            serve(given, told)
        except CenoteError as error:
            logging.getLogger("cenote.gateway").error("%s", error)
            told.failed(error)
            return 1
        except OSError as error:
            logging.getLogger("cenote.gateway").exception("the system refuses what the platform needs")
            told.failed(refused(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
