"""The place where attempts run: a jail, a neighbour that it must not touch, witnesses outside."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

from tests.support.processes import CHOOSES_NUMBERS, children_of, status_of, tree_of
from tests.waiting import PATIENCE

from cenote.runtime import AsyncPythonRuntime, ExecutionResult, PythonRuntime
from cenote_security.attacks.escape_attempt import EscapeAttempt, outcome_of
from cenote_security.attacks.witnesses import Witnesses
from cenote_security.policy import Isolation, Mount, SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.account.worker_process import pid_of


class Arena:
    """One level's jail and neighbour, shared by all attempts; a lost jail is replaced."""

    def __init__(self, level: Isolation, **policy: Any) -> None:
        self.witnesses = Witnesses()
        mount = Mount(source=str(self.witnesses.shown))
        self.policy = SandboxPolicy(isolation=level, preload=(), mounts=[mount], **policy)
        # A tracker is no wall, and it inspects everything that earlier attempts left: attempts must not be slowed.
        self.runtime = PythonRuntime(sandbox=replace(self.policy, tracking=False))
        self.neighbour = PythonRuntime(sandbox=replace(self.policy, tracking=False, snapshots="none"))
        self._secret = self.witnesses.secret
        said = self.neighbour.execute(
            f"import os; open('mine', 'w').write({self._secret!r}); os.getcwd()"
        ).value
        self._neighbour_folder = str(said).strip("'")
        self._neighbour = worker_of(self.neighbour)

    def small_policy(self) -> SandboxPolicy:
        """The arena's own policy, so that its zygote fits, with low limits."""
        return SandboxPolicy(
            isolation=self.policy.isolation,
            preload=(),
            mounts=self.policy.mounts,
            memory="128MiB",
            disk="64MiB",
            processes=16,
            output="1MiB",
        )

    def facts(self) -> dict[str, str | int]:
        return {
            **self.witnesses.facts(),
            "neighbour": self._neighbour,
            "neighbour_folder": self._neighbour_folder,
        }

    def run(self, attempt: EscapeAttempt) -> ExecutionResult:
        return self.runtime.execute(attempt.cell(self.facts()), timeout=PATIENCE)

    def hold(self, attempt: EscapeAttempt) -> None:
        """Makes an attempt. Fails the test when something outside was touched, or when it was not really tried."""
        result = self.run(attempt)
        breaches, ended = self.breaches(result), outcome(result)
        assert [] == breaches, f"{attempt.reference} got through"
        assert ended in attempt.outcomes, (
            f"{attempt.reference}: {ended} {result.stdout[-500:]} {result.error}"
        )

    def breaches(self, result: ExecutionResult) -> list[str]:
        """The breaches, seen from outside: witnesses, the neighbour, the walls of the jail's processes."""
        found = self.witnesses.breaches(f"{result.stdout}{result.stderr}{result.value}{result.error}")
        if self._secret != self.neighbour.execute("open('mine').read()").value.strip("'"):  # type: ignore[union-attr]
            found.append("the neighbour's file changed")
        if self._neighbour != worker_of(self.neighbour):
            found.append("the neighbour died")
        if self.runtime.core.running:
            found += [f"process {pid} has {what}" for pid, what in unconfined(warden_of(self.runtime))]
        return found

    def close(self) -> None:
        self.runtime.close()
        self.neighbour.close()
        self.witnesses.close()


def outcome(result: ExecutionResult) -> str:
    """An attempt's outcome, as it reports it, or as the supervisor does when its jail is gone."""
    return outcome_of(result.stdout) or (result.error.reason if result.error else "")


def warden_of(runtime: PythonRuntime | AsyncPythonRuntime) -> int:
    """The pid of a jail's first process, as this process sees it."""
    host = runtime.core.backend
    assert isinstance(host, HostedRuntime)
    supervisor = host.supervisor
    assert supervisor is not None
    return pid_of(supervisor._ends.pidfd)


def worker_of(runtime: PythonRuntime | AsyncPythonRuntime) -> int:
    return children_of(warden_of(runtime))[0]


WALLS = {"NoNewPrivs": "1", "Seccomp": "2"}
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapAmb")
OF_A_WARDEN = {"CapPrm": CHOOSES_NUMBERS, "CapEff": CHOOSES_NUMBERS}
"""A warden's capabilities: no code of a cell ever runs in it."""


def unconfined(top: int) -> list[tuple[int, str]]:
    """`(pid, missing wall)` of a jail's processes, empty when all walls stand."""
    found = []
    for pid in tree_of(top):
        status = status_of(pid)
        if not status or status["State"][0] in "ZX":
            continue
        found += [(pid, name) for name, value in WALLS.items() if status[name] != value]
        more = OF_A_WARDEN if pid == top else {}
        found += [(pid, name) for name in CAPABILITIES if int(status[name], 16) & ~more.get(name, 0)]
        if os.geteuid() == 0 and "0" in status["Uid"].split():
            found.append((pid, "root"))
    return found


def stop_for_good(pid: int) -> None:
    """Kills a process at the end of a test, so that nothing that it started stays."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
