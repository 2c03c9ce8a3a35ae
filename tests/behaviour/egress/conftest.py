"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.egress.fixtures import (
    doors,
    network_runtime,
    nursery,
    open_door,
    plain_site,
    retrying_site,
    sink,
    tls_site,
    world,
)

__all__ = [
    "doors",
    "network_runtime",
    "nursery",
    "open_door",
    "plain_site",
    "retrying_site",
    "sink",
    "tls_site",
    "world",
]
