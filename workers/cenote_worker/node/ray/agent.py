"""A node, as a Ray actor: a shell over ClusterNode, which starts and watches the actors that serve its runtimes.

No code of a user or a model ever runs in it: code in a Ray process controls the cluster.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import ray
from ray.actor import ActorHandle

from cenote_security.errors import CenoteError
from cenote_worker.descriptor_store.client import RETURN_SECONDS, DescriptorStoreClient, ensure_store
from cenote_worker.node.assignment import Assignment
from cenote_worker.node.certificate import NodeCertificate
from cenote_worker.node.environment_builds import BuildOrder, BuildReport, EnvironmentBuilds
from cenote_worker.node.host import ServedRuntimeStatus
from cenote_worker.node.machine import Carrier, awaited_end, clear, node_of, settle, vacate
from cenote_worker.node.node import ClusterNode, HostGone, NodeStatus, NodeUse
from cenote_worker.node.placement import HostId
from cenote_worker.node.ray.actor_calls import (
    LOOKERS,
    LOOKS,
    THREADS,
    answer,
    ask,
    here,
    is_look,
    looked_up,
    raylet,
)
from cenote_worker.node.ray.actor_watch import ActorWatch
from cenote_worker.node.ray.host import DistantHost, NodeSettings, RuntimeActor, ensure_nursery, nursery_name
from cenote_worker.node.ray.sealed_bytes_unsafe import SealedBytes
from cenote_worker.node.ray.value_copies import ValueCopies
from cenote_worker.node.references import NodeReferences
from cenote_worker.node.state_log import StateLog
from cenote_worker.runtime.state.branches import ForkOrder, ForkPoint
from cenote_worker.serving.endpoints import Endpoints
from cenote_worker.tenancy.audit_events import EventBatch
from cenote_worker.tenancy.shared_quota import Limits

SWEEP_SECONDS: Final = 5.0

GREETING_SECONDS: Final = 60.0
"""Seconds for a process that serves runtimes to start and report its endpoints."""

END_SECONDS: Final = 10.0
"""Seconds for killed processes to be gone."""

_log = logging.getLogger("cenote.cluster")


class NodeAgent:
    """A ClusterNode as a Ray actor: one per machine, for as long as the cluster runs."""

    def __init__(self, settings: NodeSettings) -> None:
        settings.set_up_log()
        self._among_others = not settings.node
        self._settings = settings = _settled(settings) if self._among_others else settings
        folder = Path(settings.folder)
        ensure_store(folder)
        self._nursery = ensure_nursery(settings.folder, settings.set_up_log)
        self._descriptor_store = DescriptorStoreClient(folder, RETURN_SECONDS)
        self._references = NodeReferences(self._descriptor_store, settings.node, settings.room)
        self._certificate = NodeCertificate(self._descriptor_store) if settings.secured else None
        self._copies = ValueCopies(raylet(), self._references)
        self._builds = EnvironmentBuilds()
        self._processes: dict[HostId, int] = {}
        """The processes of running hosts."""
        self._node = ClusterNode(
            node=settings.node,
            folder=folder,
            most=settings.hosts,
            hire=self._hire,
            references=self._references,
            places=settings.places,
        )
        self._welcome_back(self._former_hosts())
        self._node.find_orphans()
        self._node.get_ready()
        threading.Thread(target=self._sweep, name="cenote-sweep", daemon=True).start()
        watch = ActorWatch(lambda: {"nursery": self._nursery})
        never = threading.Event()
        threading.Thread(target=watch.run, args=(never,), name="cenote-watch", daemon=True).start()

    @is_look
    def is_there(self) -> None:
        """Answers at once, unless this process hangs."""

    def name(self) -> str:
        """The node's name in references and places."""
        return self._settings.node

    def lines(self) -> tuple[bool, bool, bool]:
        """Whether the connections to its hosts are secured, whether these have an endpoint for clients, and whether
        it has a number of places.
        """
        return self._settings.secured, self._settings.clients, self._settings.places is not None

    def certificate_request(self, authority: bytes) -> bytes:
        """See NodeCertificate; empty where no certificate is needed."""
        return b"" if self._certificate is None else self._certificate.request(authority)

    def certify(self, certificate: bytes, authority: bytes) -> None:
        """See NodeCertificate."""
        assert self._certificate is not None, "it has asked for none"
        self._certificate.take(certificate, authority)

    def create(self, assignment: Assignment) -> Endpoints:
        return self._node.create(assignment)

    def fork(self, parent: str, branches: Sequence[Assignment], order: ForkOrder) -> ForkPoint:
        return self._node.fork(parent, branches, order)

    def locate(self, runtime: str) -> Endpoints:
        return self._node.locate(runtime)

    def end(self, runtime: str) -> None:
        self._node.end(runtime)

    def rest(self, runtime: str) -> None:
        self._node.rest(runtime)

    def release(self, runtime: str) -> None:
        self._node.release(runtime)

    def runtime(self, runtime: str) -> ServedRuntimeStatus:
        return self._node.runtime(runtime)

    def drain(self, wanted: bool) -> dict[str, bool]:
        """See ClusterNode."""
        return self._node.drain(wanted)

    def use(self) -> NodeUse:
        return self._node.use()

    def leave(self) -> bool:
        """See ClusterNode."""
        return self._node.leave()

    def kept(self) -> set[str]:
        return self._node.kept()

    def facts(self) -> NodeStatus:
        return self._node.facts()

    def deeds(self, written: Mapping[str, int]) -> list[EventBatch]:
        return self._node.deeds(written)

    def limit(self, limits: Mapping[str, Limits]) -> None:
        self._node.limit(limits)

    def build_environment(self, order: BuildOrder) -> BuildReport:
        """See EnvironmentBuilds."""
        return self._builds.look(order)

    def remove_environment(self, digest: str) -> bool:
        """See EnvironmentBuilds."""
        ask(lambda: ray.get_actor(nursery_name()), "retire", digest)
        return self._builds.remove(digest)

    def any_address(self) -> str:
        """The address of a host: each of them has all references of this node."""
        return self._node.any_address()

    def keeps(self, reference: str) -> bool:
        """Whether this node has a value, its own or a copy."""
        return self._references.keeps(reference)

    def record(self, reference: str, tenant: str) -> bytes | None:
        """See ValueCopies."""
        return self._copies.record(reference, tenant)

    def piece(self, reference: str, tenant: str, start: int, raylet: str) -> SealedBytes:
        """See ValueCopies."""
        return self._copies.piece(reference, tenant, start, raylet)

    def fetched(self, reference: str, tenant: str, raylet: str) -> None:
        """See ValueCopies."""
        self._copies.fetched(reference, tenant, raylet)

    def bring(self, reference: str, tenant: str) -> None:
        """See ValueCopies."""
        self._copies.bring(reference, tenant)

    def dissolve(self) -> None:
        """Ends all runtimes and hosts of the node, and its descriptor store; and what killed nodes have left here."""
        if self._certificate is not None:
            self._certificate.give_up()
        self._node.dissolve()
        hosts = self._former_hosts()
        # A host that outlived the store would start another; Ray takes it for dead a little before it has ended.
        with awaited_end([*self._processes.values()], END_SECONDS):
            for handle in (*hosts, self._nursery):
                ray.kill(handle)
        self._descriptor_store.shut_down()
        folder = Path(self._settings.folder)
        if self._among_others:
            clear(folder.parent)
        vacate(folder, with_root=self._among_others)

    # -- hosts --

    def _hire(self) -> None:
        threading.Thread(target=self._hire_one, name="cenote-hire", daemon=True).start()

    def _hire_one(self) -> None:
        try:
            handle = self._hired()
        except Exception:  # noqa: BLE001  (any error: the node waits for the host that it requested)
            _log.exception("no process that serves runtimes could be asked for")
            handle = None
        if handle is None:
            self._node.not_hired()
        else:
            self._welcome(handle, expected=True)

    def _hired(self) -> Any:
        """A new host. None where none can be started, or is needed, now."""
        if not self._node.await_quiet():
            return None
        if self._certificate is not None and not self._certificate.wait(GREETING_SECONDS):
            _log.warning(
                "the gateway has signed no certificate for this node; no process of it can serve yet"
            )
            return None
        return self._new_host()

    def _new_host(self) -> Any:
        name = f"{_hosts()}{secrets.token_hex(6)}"
        remote: Any = ray.remote  # its types do not know groups
        return (
            remote(concurrency_groups={LOOKS: LOOKERS})(RuntimeActor)
            .options(
                name=name,
                lifetime="detached",
                num_cpus=0,
                max_restarts=0,
                max_concurrency=THREADS,
                scheduling_strategy=here(),
            )
            .remote(self._settings, name)
        )

    def _former_hosts(self) -> list[ActorHandle[RuntimeActor]]:
        found = []
        for name in ray.util.list_named_actors():
            if name.startswith(_hosts()):
                with suppress(ValueError):  # it has ended just now
                    found.append(ray.get_actor(name))
        return found

    def _welcome_back(self, handles: Sequence[ActorHandle[RuntimeActor]]) -> None:
        """Greets hosts from before this agent was started again, at once: each may hang, and delays the start."""
        greeting = [
            threading.Thread(target=self._welcome, args=(handle,), kwargs={"expected": False}, daemon=True)
            for handle in handles
        ]
        for thread in greeting:
            thread.start()
        for thread in greeting:
            thread.join()

    def _welcome(self, handle: ActorHandle[RuntimeActor], *, expected: bool) -> None:
        try:
            hello = _hello(handle, expected=expected)
            host = DistantHost(HostId(hello[0]), hello[1], handle)
            self._processes[host.id] = hello[2]
            self._node.joined(host, expected=expected)
        except Exception as error:  # noqa: BLE001  (the same)
            known = isinstance(error, HostGone | CenoteError)
            _log.warning(
                "a process that was to serve runtimes did not come up: %s", error, exc_info=not known
            )
            try:
                ray.kill(handle)
            finally:
                if expected:
                    self._node.not_hired()
            return
        threading.Thread(target=self._mourn, args=(host, handle), daemon=True).start()

    def _mourn(self, host: DistantHost, handle: ActorHandle[RuntimeActor]) -> None:
        ray.wait([handle.last.remote()])
        self._processes.pop(host.id, None)
        self._node.left(host.id)

    def _sweep(self) -> None:
        state = StateLog(_log, "the node could not be swept")
        while True:
            threading.Event().wait(SWEEP_SECONDS)
            try:
                self._node.sweep()
            except Exception as error:  # noqa: BLE001  (no other thread sweeps; the next sweep may work)
                state.failed(error, expected=isinstance(error, CenoteError))
            else:
                state.worked()


def _hello(handle: ActorHandle[RuntimeActor], *, expected: bool) -> tuple[str, Endpoints, int]:
    """expected: it is starting, which takes longer than an answer. Raises as `answer` does."""
    if expected:
        return answer(handle.hello.remote(), GREETING_SECONDS)
    hello: Any = handle.hello  # its types do not know groups
    found: tuple[str, Endpoints, int] = looked_up(lambda: hello.options(concurrency_group=LOOKS).remote())
    return found


def _hosts() -> str:
    """The name prefix of hosts that belong to this process's raylet."""
    return f"host/{raylet()}/"


def _settled(settings: NodeSettings) -> NodeSettings:
    folder = settle(Path(settings.folder), Carrier.of_this_process(raylet()))
    return replace(settings, node=node_of(folder), folder=str(folder))
