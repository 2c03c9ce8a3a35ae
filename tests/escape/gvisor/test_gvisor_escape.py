"""No technique tried at the other levels escapes gVisor.

The result inside is ignored: gVisor permits much that Linux refuses to a jail, against a kernel that belongs to the
jail. Only effects outside count.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.escape.attempts_files import FILES
from tests.support.escape.attempts_kernel import DOORS, NAMESPACES, PRIVILEGES
from tests.support.escape.attempts_network import NETWORK, SHARED_MEMORY
from tests.support.escape.attempts_processes import DESCRIPTORS, PROC, SIGNALS, TRACING

from cenote.runtime import PythonRuntime
from cenote_security.attacks.escape_attempt import EscapeAttempt, Family
from cenote_security.attacks.short_set_unsafe import SHORT
from cenote_security.attacks.witnesses import Witnesses
from cenote_security.policy import Mount, SandboxPolicy

FAMILIES = (
    SHORT,
    FILES,
    DOORS,
    NAMESPACES,
    PRIVILEGES,
    NETWORK,
    SHARED_MEMORY,
    DESCRIPTORS,
    PROC,
    SIGNALS,
    TRACING,
)
PATIENCE = 20.0
"""Seconds for one attempt. Only a hanging cell takes so long."""


class Range:
    """A jail to attack from, a neighbour with a file, and the witnesses."""

    def __init__(self, witnesses: Witnesses) -> None:
        self.witnesses = witnesses
        mounts = [Mount(source=str(witnesses.shown))]
        policy = SandboxPolicy(isolation="gvisor", preload=(), memory="512MiB", mounts=mounts)
        self.runtime, self.neighbour = PythonRuntime(sandbox=policy), PythonRuntime(sandbox=policy)
        self.neighbour.execute(f"open('mine', 'w').write({witnesses.secret!r})")

    def breaches(self, attempt: EscapeAttempt) -> list[str]:
        known = {"client": self.witnesses.bystander, "neighbour": self.witnesses.bystander}
        facts = self.witnesses.facts() | known | {"neighbour_folder": "/workspace"}
        result = self.runtime.execute(attempt.cell(facts), timeout=PATIENCE)
        assert "" != f"{result.stdout}{result.error or ''}", "the attempt was not made"
        found = self.witnesses.breaches(f"{result.stdout}{result.stderr}{result.value}{result.error}")
        untouched = repr(self.witnesses.secret) == self.neighbour.execute("open('mine').read()").value
        return found if untouched else [*found, "the neighbour was harmed"]


@pytest.fixture(scope="module")
def attack_range(gvisor: PythonRuntime) -> Iterator[Range]:
    assert "gvisor" == gvisor.isolation
    with Witnesses() as witnesses:
        made = Range(witnesses)
        with made.runtime, made.neighbour:
            yield made


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name.replace(" ", "_"))
def test_nothing_gets_out(attack_range: Range, family: Family) -> None:
    """Files, processes, listeners and the host's parameters are unchanged; so is the neighbour's file."""
    got_through = {attempt.name: attack_range.breaches(attempt) for attempt in family.attempts}
    assert {} == {name: breaches for name, breaches in got_through.items() if breaches}
