"""Records the host calls of the running step as they pass."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_worker.execution.results import HostFailure
from cenote_worker.history.events import EFFECT_NAMES
from cenote_worker.history.step import HostCallRecord, HostEffect
from cenote_worker.supervisor.channels.host_calls import HostAnswer, HostCall
from cenote_worker.transport.content import Content

MAX_CALLS: Final = 1_000
"""Calls recorded of one step. Further ones are only counted."""

MAX_KEPT: Final = 4 * 2**20
"""Bytes of arguments and replies recorded of one step. Each is also limited to the size of a packet."""

MAX_DIGESTED: Final = 16 * 2**20
"""Largest arguments compared by digest, in bytes: 15 ms on the thread that serves all jails of a process."""


MAX_LOOKED_AT: Final = 64 * 2**20
"""Bytes of arguments digested per step: a jail can pass the same memory in call after call."""


class ArgumentDigests:
    """Digests of the arguments of one step's calls, in call order: a second run gives the same ones."""

    def __init__(self) -> None:
        self._room = MAX_LOOKED_AT

    def of(self, arguments: Content) -> str:
        """Equal for equal arguments. Empty for arguments that are too large, and when the step's limit is reached."""
        if arguments.size > min(MAX_DIGESTED, self._room):
            return ""
        self._room -= arguments.size
        return digest_of(arguments)


class HostCallNotes:
    """The HostWitness of a runtime's jails. Calls belong to the step that runs when they are made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._effects: dict[str, HostEffect] = {}
        self._calls: dict[int, HostCallRecord] = {}
        self._dropped = 0
        self._room = MAX_KEPT
        self._digests = ArgumentDigests()

    def offered(self, hosts: Iterable[jail_pb2.HostTarget]) -> None:
        """Records the declared effects of calls to these targets."""
        effects = {host.address or host.name: EFFECT_NAMES.get(host.effect, "external") for host in hosts}
        with self._lock:
            self._effects |= effects

    def effect_of(self, target: str) -> HostEffect:
        """The effect that the client has declared; `external` by default."""
        with self._lock:
            return self._effects.get(target, "external")

    def called(self, call: HostCall) -> None:
        effect = self._effects.get(call.target, "external")
        passes = call.opaque is not None or bool(call.reference)
        with self._lock:
            if len(self._calls) >= MAX_CALLS:
                self._dropped += 1
                return
            digest = "" if passes else self._digests.of(call.arguments)
            self._calls[call.id] = HostCallRecord(
                target=call.target,
                method=call.method,
                effect=effect,
                digest=digest,
                arguments=self._kept(call.arguments),
            )

    def answered(self, call_id: int, answer: HostAnswer) -> None:
        with self._lock:
            noted = self._calls.get(call_id)
            if noted is None:
                return
            if isinstance(answer, HostFailure):
                self._calls[call_id] = replace(noted, error=answer)
            elif isinstance(answer, Content):
                self._calls[call_id] = replace(noted, reply=self._kept(answer), parts=answer.count)

    def take(self) -> tuple[tuple[HostCallRecord, ...], int]:
        """The recorded calls of a step that ends now, and the number of further ones."""
        if not self._calls:  # the worker that makes calls has just answered, so there is no race
            return (), 0
        with self._lock:
            calls, dropped = tuple(self._calls.values()), self._dropped
            self._calls, self._dropped, self._room = {}, 0, MAX_KEPT
            self._digests = ArgumentDigests()
        return calls, dropped

    def _kept(self, content: Content) -> bytes | None:
        data = content.inline
        if data is None or len(data) > self._room:
            return None
        self._room -= len(data)
        return data


def digest_of(arguments: Content) -> str:
    """A digest of encoded arguments: equal for equal ones."""
    digest = hashlib.blake2b(arguments.count.to_bytes(8, "little"), digest_size=16)
    digest.update(arguments.memory.map() if arguments.memory is not None else arguments.inline or b"")
    return digest.hexdigest()
