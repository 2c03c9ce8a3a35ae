"""Messages of a jail are understood or refused, in bounded time, with every descriptor closed."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.descriptors import all_closed
from tests.support.supervisor.frame_fuzzer import Seed, bodies, corpus, feed, mutations

from cenote_proto.v1 import jail_pb2

SEEDS = corpus()
SLOWEST = 2.0
"""Seconds of work for one message: honest ones take some microseconds."""


def fuzz(seed: int, count: int) -> tuple[int, int]:
    """How many broken messages were accepted and refused."""
    taken = 0
    with all_closed():
        for broken in mutations(SEEDS, random.Random(seed), count):
            started = time.thread_time()
            taken += feed(broken)
            assert time.thread_time() - started < SLOWEST, broken
    return taken, count - taken


def test_the_corpus_has_every_kind_of_frame() -> None:
    """A new frame needs an entry in the corpus."""
    frame, reply = jail_pb2.WorkerFrame.DESCRIPTOR, jail_pb2.Reply.DESCRIPTOR
    fields = [*frame.oneofs_by_name["body"].fields, *reply.oneofs_by_name["body"].fields]
    assert {field.name for field in fields} == bodies(SEEDS)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.decoder}, {seed.name}")
def test_the_corpus(seed: Seed) -> None:
    """Each message is accepted or refused; descriptors that it does not name make it a violation and are closed."""
    with all_closed():
        feed(seed)
        if seed.decoder == "edge":
            assert not feed(seed, descriptors=2)


def test_broken_messages() -> None:
    """Mutations of the corpus: many of both outcomes, so that the fuzzer gets past the first check."""
    taken, refused = fuzz(random.randrange(2**32), 10_000)
    assert taken > 200
    assert refused > 1_000


@given(st.sampled_from(["edge", "host", "control"]), st.binary(min_size=1, max_size=400))
@settings(max_examples=200, deadline=None)
def test_noise(decoder: str, data: bytes) -> None:
    """Random bytes that derive from no message."""
    feed(Seed(decoder, data, "noise"))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(8))
def test_many_broken_messages(seed: int) -> None:
    """A quarter of a million of them each."""
    fuzz(seed, 250_000)
