"""What one client may take of a server, and how long the server waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OLDEST_VERSION: Final = 1
NEWEST_VERSION: Final = 1
"""Of the service's protocol, as spoken here."""

FIRST_HOST_CALL: Final = 1 << 63
"""Host calls are numbered from here, and calls of clients below: a chunk's number means one thing."""

MAX_STREAMS: Final = 1_000
"""Streams and calls at once, of all clients together."""

MAX_CLIENTS: Final = 256
"""Of one runtime, with those that a broken line took away a moment ago."""

MAX_CALLS: Final = 1_000
"""Calls of one client that wait for their answers."""

MAX_IN_FLIGHT: Final = 8
"""Of those, how many the runtime works on or has queued; the others wait in their session. The outcome of a cell can
be three times the policy's `output`, and all of them may have to wait for a client that reads slowly."""

MAX_CARRIED: Final = 2
"""Values and files on their way to one client: as large as the policy allows, in memory until they are sent."""

MAX_OUTBOX_BYTES: Final = 16 << 20
MAX_OUTBOX_FRAMES: Final = 1_000
"""Of frames that a client has not taken. Beyond that it is not listened to, and nothing new is begun for it."""

WINDOW: Final = 1 << 20
"""Characters of a cell's output that may be on their way before the jail is made to wait for its client."""

MAX_CODE: Final = 64 << 20
"""Bytes of one cell."""

MAX_NAME: Final = 1_000
"""Characters of variables' names, authors, and what else people name."""

MAX_NAMES: Final = 10_000
"""Things that one injection defines."""

MAX_UNITS: Final = 200
"""Artifacts of one declaration, and dependencies of each. How many a runtime may have, its history says."""

MAX_PATH: Final = 4_095
"""Bytes: PATH_MAX without its end."""

MAX_TOKEN: Final = 8 << 10
"""Characters. Nothing longer is looked at."""

MAX_ARGUMENTS: Final = 64 << 20
"""Bytes of arguments that came inline with the host calls of one jail that wait: it makes calls as fast as it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimeouts:
    """Seconds.

    handshake: until a stream has said who it is. grace: for which a client whose line broke may come back: until then
    its cells go on, and calls of its functions wait. After that its cells are taken back and the calls fail.
    stop: for which streams may go on when the server is closed.
    """

    handshake: float = 10.0
    grace: float = 30.0
    stop: float = 1.0


SERVER_TIMEOUTS: Final = ServerTimeouts()
