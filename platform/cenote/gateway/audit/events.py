"""The events that the platform records, each kind in one place. Neither code nor values.

Text from a jail or a client is truncated, so that one entry cannot fill the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from cenote.gateway.audit.entries import AuditEvent, Fact, Facts
from cenote_security.network import Allow
from cenote_security.options import definitions
from cenote_security.policy import SandboxPolicy
from cenote_worker.tenancy.audit_events import CellAuditEvent, NetworkAuditEvent, RuntimeAuditEvent
from cenote_worker.tenancy.usage import policy_digest

_MAX_TEXT: Final = 300
_MAX_LISTED: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Who did it and where, by ids; empty where there is none, as for an unknown token or runtime."""

    tenant: str = ""
    token: str = ""
    runtime: str = ""

    def event(self, kind: str, facts: Facts) -> AuditEvent:
        return AuditEvent(kind=kind, tenant=self.tenant, token=self.token, runtime=self.runtime, facts=facts)


def access_decided(subject: Subject, action: str, *, refusal: str = "") -> AuditEvent:
    """A caller requested an action. refusal: why it was refused, empty if it was allowed."""
    facts: dict[str, Fact] = {"action": _cut(action), "allowed": not refusal, "reason": _cut(refusal)}
    return subject.event("access", facts)


def token_changed(subject: Subject, change: str, token: str, scopes: Iterable[str] = ()) -> AuditEvent:
    """change: `issued`, `extended`, `rotated`, `revoked`, or `ended` with its job. token: id of the changed one."""
    return subject.event("token", {"change": change, "changed": token, "scopes": _listed(sorted(scopes))})


def tenant_changed(subject: Subject, change: str, name: str) -> AuditEvent:
    """change: such as `created`, `closed`, or the limit that was set."""
    return subject.event("tenant", {"change": _cut(change), "name": _cut(name)})


def runtime_created(subject: Subject, name: str, policy: SandboxPolicy, *, parent: str = "") -> AuditEvent:
    """parent: the id of the runtime that it is a branch of."""
    facts: dict[str, Fact] = {"name": _cut(name), "policy": policy_facts(policy)}
    return subject.event("runtime.created", facts | ({"parent": parent} if parent else {}))


def runtime_removed(subject: Subject, reason: str) -> AuditEvent:
    return subject.event("runtime.removed", {"reason": _cut(reason)})


def environment_changed(subject: Subject, change: str, name: str, digest: str, detail: str) -> AuditEvent:
    """change: `requested`, `built`, `failed` or `removed`. detail: packages, or why it has failed."""
    facts: dict[str, Fact] = {"name": _cut(name), "digest": digest, "detail": _cut(detail)}
    return subject.event(f"environment.{change}", facts)


def cell_ran(deed: CellAuditEvent) -> AuditEvent:
    """A cell has ended. Has a digest and the beginning of its code, its error's kind, its output's size."""
    subject = Subject(tenant=deed.origin.tenant, token=deed.token, runtime=deed.origin.runtime)
    facts: dict[str, Fact] = {
        "ended_at": int(deed.at * 1e6),
        "author": _cut(deed.author),
        "policy_sha256": deed.origin.policy,
        "code_sha256": deed.code.sha256,
        "code_bytes": deed.code.size,
        "first_line": _cut(deed.code.first_line),
        "step": deed.step,
        "success": deed.success,
        "error": _cut(deed.error),
        "reason": _cut(deed.reason),
        "state": deed.state,
        "wall_us": int(deed.wall * 1e6),
        "cpu_us": int(deed.cpu * 1e6),
        "peak_memory": deed.peak_memory,
        "bytes_written": deed.bytes_written,
        "output_bytes": deed.output_bytes,
    }
    return subject.event("cell", facts)


def network_used(deed: NetworkAuditEvent) -> AuditEvent:
    """A jail requested a connection, or one has ended. `decided_at`, with host and port, identifies it."""
    decision = deed.decision
    subject = Subject(tenant=deed.origin.tenant, runtime=deed.origin.runtime)
    facts: dict[str, Fact] = {
        "decided_at": int(decision.at * 1e6),
        "kind": decision.kind,
        "host": _cut(decision.host),
        "port": decision.port,
        "address": _cut(decision.address),
        "allowed": decision.allowed,
        "reason": _cut(decision.reason),
    }
    if deed.passed is None:
        return subject.event("network", facts)
    return subject.event("network.ended", facts | {"bytes": deed.passed})


def deed_done(deed: RuntimeAuditEvent, source: str, number: int) -> AuditEvent:
    """source, number: of the event; they show whether it is recorded."""
    event = cell_ran(deed) if isinstance(deed, CellAuditEvent) else network_used(deed)
    return replace(event, facts={**event.facts, "source": source, "number": number})


def deeds_lost(source: str, number: int, lost: int | None, reason: str) -> AuditEvent:
    """Events that are not recorded, and never will be. number: the last one that this covers. lost: how many; None if
    that is unknown.
    """
    return Subject().event("gap", {"source": source, "number": number, "lost": lost, "reason": _cut(reason)})


def policy_facts(policy: SandboxPolicy) -> dict[str, Fact]:
    """What a jail may do, without the values of its environment, which may contain secrets despite all advice."""
    facts: dict[str, Fact] = {}
    for known in definitions(SandboxPolicy):
        value = getattr(policy, known.name)
        if known.option.unit == "seconds":
            facts[f"{known.name}_us"] = _microseconds(value)
        elif isinstance(value, str | int):
            facts[known.name] = value
    return {
        **facts,
        "sha256": policy_digest(policy),
        "millicpus": policy.millicpus,
        "call_timeout_us": _microseconds(policy.call_seconds),
        "network": _listed(policy.network.destinations) if isinstance(policy.network, Allow) else [],
        "env_names": _listed(policy.env),
        "mounts": _listed(f"{mount.source}:{'rw' if mount.writable else 'ro'}" for mount in policy.mounts),
    }


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e6)


def _listed(texts: Iterable[str]) -> list[Fact]:
    listed = list(texts)
    more = len(listed) - _MAX_LISTED
    shown: list[Fact] = [_cut(text) for text in listed[:_MAX_LISTED]]
    return [*shown, f"... and {more} more"] if more > 0 else shown


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... ({len(text)} characters)"
