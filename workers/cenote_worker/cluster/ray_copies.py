"""Values of other nodes, brought to this one through Ray's object store: each once, whoever wants it here."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final

import ray
from ray.actor import ActorHandle

from cenote_security.errors import UnavailableError, UnknownReferenceError
from cenote_worker.cluster.kept_references import KeptReferences, content_of, view_of
from cenote_worker.cluster.node import HostGone
from cenote_worker.cluster.ray_calls import answer, answers
from cenote_worker.cluster.sealed_bytes_unsafe import SealedBytes

AGENT: Final = "node/"
"""What the names of agents begin with, before the short id of their raylet."""

LOOK_SECONDS: Final = 10.0
"""For all nodes to say whether they have a value."""

_TURNS: Final = 64


class Copies:
    """Of one node, in its agent. raylet: the short id of that which carries the node."""

    def __init__(self, raylet: str, references: KeptReferences) -> None:
        self._raylet = raylet
        self._references = references
        self._turns = [threading.Lock() for _ in range(_TURNS)]
        """One value is brought after the other where their names share one: so none is brought twice at once."""

    def bring(self, reference: str, tenant: str) -> None:
        """Raises UnknownReferenceError when no node has it; UnavailableError while one does not answer."""
        with self._turns[hash(reference) % _TURNS]:
            if not self._references.keeps(reference):
                record, stored = self._exported(reference, tenant)
                sealed: SealedBytes = answer(stored)
                self._references.adopt(reference, tenant, record, content_of(record, sealed.view))

    def export(self, reference: str, tenant: str) -> tuple[bytes, Any]:
        """The record and the bytes of a value of this node: in Ray's store while somebody fetches them."""
        record, content = self._references.sealed(reference, tenant)
        try:
            return record, ray.put(SealedBytes(view_of(content)))
        finally:
            content.close()

    def _exported(self, reference: str, tenant: str) -> tuple[bytes, ray.ObjectRef[SealedBytes]]:
        others = agents()
        del others[self._raylet]
        kept: dict[str, bool] = answers(
            {node: agent.keeps.remote(reference) for node, agent in others.items()}, LOOK_SECONDS
        )
        for node in (node for node, keeps in kept.items() if keeps):
            with suppress(HostGone):  # others may have it
                exported: tuple[bytes, ray.ObjectRef[SealedBytes]] = answer(
                    others[node].export.remote(reference, tenant)
                )
                return exported
        if len(kept) < len(others):
            raise UnavailableError("a node that may have this value does not answer; try again")
        raise UnknownReferenceError(reference)


def agents() -> dict[str, ActorHandle[Any]]:
    """Those of this platform that there are, by the short ids of their raylets."""
    found = {}
    for name in ray.util.list_named_actors():
        if name.startswith(AGENT):
            with suppress(ValueError):  # it has ended just now
                found[name.removeprefix(AGENT)] = ray.get_actor(name)
    return found
