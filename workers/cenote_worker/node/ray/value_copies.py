"""Values of other nodes, fetched to this one through Ray's object store: each once for all who use it here."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Any, Final

import ray
from ray.actor import ActorHandle

from cenote_security.errors import UnavailableError, UnknownReferenceError
from cenote_security.sealed_memory import SealedDraft
from cenote_worker.node.node import HostGone
from cenote_worker.node.ray.actor_calls import answer, arriving
from cenote_worker.node.ray.sealed_bytes_unsafe import SealedBytes
from cenote_worker.node.references import COPY_SECONDS, NodeReferences, content_of, size_in, view_of
from cenote_worker.transport.content import Content

AGENT: Final = "node/"
"""The prefix of agents' names, before the short id of their raylet."""

LOOK_SECONDS: Final = 10.0
"""Seconds for all nodes to report whether they have a value."""

PIECE: Final = 32 * 1024 * 1024
"""Bytes that go through Ray's store at once. The same memory of it serves piece after piece: touching as much fresh
memory as a large value has, in the stores of both machines, takes several times as long as the transfer."""

PIECES_AT_ONCE: Final = 4

PIECE_SECONDS: Final = 60.0
"""Seconds for one piece to arrive, over the slowest connection between two machines. A stopped process sends none."""

_CROSSING: Final = "on its way to "
"""The holder of a value that another node fetches."""

_TURNS: Final = 64


class ValueCopies:
    """The copies of one node, in its agent. raylet: the short id of the node's raylet."""

    def __init__(self, raylet: str, references: NodeReferences) -> None:
        self._raylet = raylet
        self._references = references
        self._turns = [threading.Lock() for _ in range(_TURNS)]
        """Values whose names share a lock are fetched one after the other: so none is fetched twice at once."""

    def bring(self, reference: str, tenant: str) -> None:
        """Raises UnknownReferenceError when no node has it; UnavailableError while one does not answer."""
        with self._turns[hash(reference) % _TURNS]:
            if not self._references.keeps(reference):
                self._fetch(reference, tenant)

    def _fetch(self, reference: str, tenant: str) -> None:
        """Fetches from the first node that reports having it; if that one ends meanwhile, from the next."""
        others = agents()
        del others[self._raylet]
        asked: dict[str, ray.ObjectRef[bytes | None]] = {
            node: agent.record.remote(reference, tenant) for node, agent in others.items()
        }
        answered = 0
        for node, record in arriving(asked, LOOK_SECONDS):
            answered += 1
            if record is not None:
                with suppress(HostGone, UnknownReferenceError):
                    self._references.adopt(
                        reference, tenant, record, self._fetched(others[node], reference, tenant, record)
                    )
                    return
        if answered < len(others):
            raise UnavailableError("a node that may have this value does not answer; try again")
        raise UnknownReferenceError(reference)

    def _fetched(self, agent: ActorHandle[Any], reference: str, tenant: str, record: bytes) -> Content:
        draft, size = SealedDraft(), size_in(record)
        try:
            for piece in self._pieces(agent, reference, tenant, size):
                draft.write(piece.view)
            return content_of(record, draft.seal())
        finally:
            draft.close()
            if size > PIECE:
                agent.fetched.remote(reference, tenant, self._raylet)

    def _pieces(
        self, agent: ActorHandle[Any], reference: str, tenant: str, size: int
    ) -> Iterator[SealedBytes]:
        """In order. While one is copied out of Ray's store here, the next are copied into it, or on their way."""
        starts = iter(range(0, size, PIECE))
        asked: deque[ray.ObjectRef[SealedBytes]] = deque()
        while True:
            for start in islice(starts, PIECES_AT_ONCE - len(asked)):
                asked.append(agent.piece.remote(reference, tenant, start, self._raylet))
            if not asked:
                return
            # Ray fetches what a call waits for, and continues with that after the call.
            ray.wait(list(asked), timeout=0, num_returns=len(asked))
            yield answer(asked.popleft(), PIECE_SECONDS)

    # -- for other nodes --

    def record(self, reference: str, tenant: str) -> bytes | None:
        """The record of a value of this node; None for one that is not here."""
        try:
            record, content = self._references.sealed(reference, tenant)
        except UnknownReferenceError:
            return None
        content.close()
        return record

    def piece(self, reference: str, tenant: str, start: int, raylet: str) -> SealedBytes:
        """A piece of a value, which this node stores until the raylet's node calls `fetched`, or calls no more."""
        _, content = self._references.sealed(reference, tenant)
        with closing(content):
            if content.size > PIECE:
                self._references.hold(reference, tenant, holder=_CROSSING + raylet, lease=COPY_SECONDS)
            return SealedBytes(view_of(content)[start : start + PIECE])

    def fetched(self, reference: str, tenant: str, raylet: str) -> None:
        with suppress(UnknownReferenceError):  # its other holders have released it too
            self._references.release(reference, tenant, holder=_CROSSING + raylet)


def agents() -> dict[str, ActorHandle[Any]]:
    """The running agents of this platform, by the short ids of their raylets."""
    found = {}
    for name in ray.util.list_named_actors():
        if name.startswith(AGENT):
            with suppress(ValueError):  # it has ended just now
                found[name.removeprefix(AGENT)] = ray.get_actor(name)
    return found
