"""What both ends of a gRPC channel must agree on: message sizes and how they find out that the other has gone.

And what their processes tell gRPC when they load it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MAX_MESSAGE: Final = 4 << 20
"""Bytes; gRPC's own default. What is longer goes in parts and chunks of 1 MiB."""

PING_EVERY: Final = 30
"""Seconds between two pings of a client, calls or not: what makes a dead peer known within a minute."""

PING_PATIENCE: Final = 20
"""Seconds until a ping that is not answered means that the peer is gone."""

Options = tuple[tuple[str, int], ...]

_BOTH: Final[Options] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", PING_EVERY * 1000),
    ("grpc.keepalive_timeout_ms", PING_PATIENCE * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

CLIENT: Final[Options] = _BOTH

SERVER: Final[Options] = (
    *_BOTH,
    # By default the connection of whoever pings twice in 300 s ends. Besides for life, clients ping to learn how much
    # is on its way, at moments that they do not choose; a flood is held off by a bound of its own.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 100),  # of one connection; a client needs one per runtime
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a second server behind the same address
)

ENVIRONMENT: Final[Mapping[str, str]] = {
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
}
"""What a process finds that loads gRPC, unless it says otherwise. gRPC reads it once.

Of late gRPC has threads that look after sockets in Python, too: one hears that something has come, hands it to one
that reads, and that to the one that had waited for it. Without them the last one reads by itself, as it used to: half
as many threads are woken for each message. A version that does not know these words any more does as it likes.
"""
