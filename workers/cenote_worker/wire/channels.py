"""Settings on which both ends of a gRPC channel must agree: message sizes, and the detection of a dead peer.

Also the settings with which their processes load gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MAX_MESSAGE: Final = 4 << 20
"""Bytes; gRPC's own default. Longer data is sent in parts and chunks of 1 MiB."""

PING_EVERY: Final = 30
"""Seconds between two pings of a client, with or without calls: a dead peer is detected within a minute."""

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
    # By default the connection of a client that pings twice in 300 s ends. Besides keepalive pings, clients also send
    # pings for flow control, at moments that they do not choose; a separate limit stops floods.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 100),  # of one connection; a client needs one per runtime
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a second server at the same address
)

ENVIRONMENT: Final[Mapping[str, str]] = {
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
}
"""Default environment variables of a process that loads gRPC, which reads them once.

Recent versions of gRPC use threads to poll sockets in Python, too: one notices data, a second one reads it, and wakes
the waiting one. Without these experiments the waiting thread reads by itself, as in older versions: half as many
threads are woken for each message. A version that does not know these names ignores them.
"""
