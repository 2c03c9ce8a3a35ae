"""Limits on what one client may use of a server, and on how long the server waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OLDEST_VERSION: Final = 1
NEWEST_VERSION: Final = 1
"""Version of the service's protocol spoken here."""

FIRST_HOST_CALL: Final = 1 << 63
"""Host calls are numbered from here, and calls of clients below: a chunk's number means one thing."""

MAX_STREAMS: Final = 1_000
"""Streams and calls at once, of all clients together."""

MAX_CLIENTS: Final = 256
"""Clients of one runtime, including those that lost their connection a moment ago."""

MAX_CALLS: Final = 1_000
"""Calls of one client that wait for their answers."""

MAX_IN_FLIGHT: Final = 8
"""How many of those the runtime runs or has queued; the others wait in their session. The outcome of a cell can be
three times the policy's `output`, and all outcomes may have to wait for a client that reads slowly."""

MAX_CARRIED: Final = 2
"""Values and files being sent to one client: each as large as the policy allows, in memory until it is sent."""

MAX_OUTBOX_BYTES: Final = 16 << 20
MAX_OUTBOX_FRAMES: Final = 1_000
"""Frames that a client has not taken. Beyond that its frames are not read, and nothing new is begun for it."""

WINDOW: Final = 1 << 20
"""Characters of a cell's output that may be unacknowledged before the jail is made to wait for its client."""

MAX_CODE: Final = 64 << 20
"""Bytes of one cell."""

MAX_NAME: Final = 1_000
"""Characters of names: variables, authors, and others that users choose."""

MAX_NAMES: Final = 10_000
"""Things that one injection defines."""

MAX_UNITS: Final = 200
"""Artifacts of one declaration, and dependencies of each. The history limits how many a runtime has."""

MAX_PATH: Final = 4_095
"""Bytes: PATH_MAX without its end."""

MAX_TOKEN: Final = 8 << 10
"""Characters. Longer tokens are refused unread."""

MAX_ARGUMENTS: Final = 64 << 20
"""Bytes of inline arguments of one jail's waiting host calls: a jail makes calls as fast as it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimeouts:
    """Seconds.

    handshake: for a stream to identify its client. grace: for a client to reconnect after its connection broke:
    meanwhile its cells go on, and calls of its functions wait; then its cells are withdrawn and the calls fail.
    stop: for streams to go on when the server is closed.
    """

    handshake: float = 10.0
    grace: float = 30.0
    stop: float = 1.0


SERVER_TIMEOUTS: Final = ServerTimeouts()
