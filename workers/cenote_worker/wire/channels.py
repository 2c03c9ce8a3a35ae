"""What both ends of a gRPC channel must agree on: message sizes and how they find out that the other has gone."""

from __future__ import annotations

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
