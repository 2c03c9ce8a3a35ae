"""What the platform records, each kind in one place. Neither code nor values, unless the operator asks for the code.

What a jail or a client had a say in is cut to a length, so that nobody can fill the log with one entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cenote.gateway.audit.entry import Event, Fact, Facts
from cenote_security.network import Allow
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import Decision
from cenote_worker.results import ExecutionResult

_MAX_TEXT: Final = 300
_MAX_LISTED: Final = 50
_MAX_CODE: Final = 16 * 2**10
"""Characters, each of which may take twelve bytes of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Who did it and where, by ids; empty where there is none, as for a stranger's token or runtime."""

    tenant: str = ""
    token: str = ""
    runtime: str = ""

    def event(self, kind: str, facts: Facts) -> Event:
        return Event(kind=kind, tenant=self.tenant, token=self.token, runtime=self.runtime, facts=facts)


def access_decided(subject: Subject, action: str, *, refusal: str = "") -> Event:
    """Somebody asked for something. refusal: why not, empty if it was allowed."""
    facts: dict[str, Fact] = {"action": _cut(action), "allowed": not refusal, "reason": _cut(refusal)}
    return subject.event("access", facts)


def token_changed(subject: Subject, change: str, token: str, scopes: Iterable[str] = ()) -> Event:
    """change: `issued`, `rotated` or `revoked`. token: the id of the one that it happened to."""
    return subject.event("token", {"change": change, "changed": token, "scopes": _listed(sorted(scopes))})


def tenant_changed(subject: Subject, change: str, name: str) -> Event:
    """change: such as `created`, `closed`, or the limit that was set."""
    return subject.event("tenant", {"change": _cut(change), "name": _cut(name)})


def runtime_created(subject: Subject, name: str, policy: SandboxPolicy) -> Event:
    return subject.event("runtime.created", {"name": _cut(name), "policy": policy_facts(policy)})


def runtime_removed(subject: Subject, reason: str) -> Event:
    return subject.event("runtime.removed", {"reason": _cut(reason)})


def cell_started(
    subject: Subject, code: str, *, verdicts: Iterable[str] = (), keep_code: bool = False
) -> Event:
    """Before it runs. verdicts: names of the rules that had something to say of the code."""
    encoded = code.encode("utf-8", "surrogatepass")
    facts: dict[str, Fact] = {
        "code_sha256": hashlib.sha256(encoded).hexdigest(),
        "code_bytes": len(encoded),
        "verdicts": _listed(verdicts),
    }
    return subject.event("cell.started", facts | ({"code": _cut(code, _MAX_CODE)} if keep_code else {}))


def cell_ended(subject: Subject, result: ExecutionResult) -> Event:
    """Nothing of what it printed or gave; of an error, its kind."""
    facts: dict[str, Fact] = {
        "step": result.step,
        "success": result.success,
        "error": _cut(result.error.type) if result.error else "",
        "reason": _cut(result.error.reason) if result.error else "",
        "state": result.state,
        "wall_us": int(result.usage.wall * 1e6),
        "cpu_us": int(result.usage.cpu * 1e6),
        "peak_memory": result.usage.peak_memory,
        "bytes_written": result.usage.bytes_written,
        "output_bytes": result.usage.output_bytes,
    }
    return subject.event("cell.ended", facts)


def network_decided(subject: Subject, decision: Decision) -> Event:
    """A jail asked for a way out. `decided_at` is when; the entry's own time is when it was recorded."""
    facts: dict[str, Fact] = {
        "decided_at": int(decision.at * 1e6),
        "kind": decision.kind,
        "host": _cut(decision.host),
        "port": decision.port,
        "address": _cut(decision.address),
        "allowed": decision.allowed,
        "reason": _cut(decision.reason),
    }
    return subject.event("network", facts)


def value_moved(subject: Subject, direction: str, reference: str, size: int) -> Event:
    """direction: `shared`, `injected` or `retrieved`. size: bytes."""
    return subject.event("value", {"direction": direction, "reference": _cut(reference), "bytes": size})


def policy_facts(policy: SandboxPolicy) -> dict[str, Fact]:
    """What a jail may do, without the values of its environment, which people use for secrets against all advice."""
    return {
        "isolation": policy.isolation,
        "limits": policy.limits,
        "memory": policy.memory_bytes,
        "disk": policy.disk_bytes,
        "output": policy.output_bytes,
        "millicpus": int(policy.cpus * 1000),
        "processes": policy.processes,
        "cell_timeout_us": _microseconds(policy.cell_timeout),
        "runtime_timeout_us": _microseconds(policy.runtime_timeout),
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


def _cut(text: str, most: int = _MAX_TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
