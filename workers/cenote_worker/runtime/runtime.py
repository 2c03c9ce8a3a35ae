"""A runtime as its host manages it: the jail that has its namespace now, and what each of its jails begins with.

Calls that only queue a request never block; `start` does. A request's progress goes to a Listener.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from cenote_security.errors import JailLostError, RuntimeClosedError, UsageError
from cenote_security.network import Allow
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import Decision, EgressLedger
from cenote_worker.execution.programs import ProgramOrder
from cenote_worker.execution.results import Carried, JailStatus, LiveOutput, OnError, SnapshotInfo
from cenote_worker.history.history import History
from cenote_worker.process.log_context import log_context
from cenote_worker.process.metrics import Counts
from cenote_worker.record.lineage import Lineage
from cenote_worker.runtime import jail_requests
from cenote_worker.runtime.attachment import AttachedRuntime
from cenote_worker.runtime.handover.handover_log import NO_HANDOVER_LOG, HandoverLog
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.injection_log import InjectionLog, unkept_files
from cenote_worker.runtime.jail_requests import PYTHON, FormCheck, WorkdirRequest, WrittenForm
from cenote_worker.runtime.jails import RESET, CurrentJail, FreshJails, InjectionDelivery, StartJail
from cenote_worker.runtime.keyed_requests import KeyedCalls, RequestKey
from cenote_worker.runtime.patch_jobs import PatchJobs
from cenote_worker.runtime.programs import begin_program
from cenote_worker.runtime.recorder import SharingListener, StepRecorder, UsageEntry
from cenote_worker.runtime.replay import HostCallReplays
from cenote_worker.runtime.reruns import Reruns
from cenote_worker.runtime.snapshots import check_label, check_target, keeping
from cenote_worker.runtime.state.state_source import NO_STATE_SOURCE, StateSource
from cenote_worker.runtime.submissions import Submissions
from cenote_worker.supervisor.channels.host_calls import HostHandler
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.program import ProgramHandle, ProgramListener
from cenote_worker.supervisor.requests import OWNER, AuthorSession, Listener, Withdraw
from cenote_worker.supervisor.start import start_jail
from cenote_worker.supervisor.supervisor import Supervisor

ASLEEP = JailExit(reason="hibernated", text="the runtime was put to sleep")

NOWHERE = (-1, -1)
"""Not a state of any runtime: see `HostedRuntime.state`."""


class HostedRuntime:
    """One namespace: the values injected into it, the jail that has it now, the steps that ran."""

    place = ""
    """The place of references: their values are in this process."""

    def __init__(
        self,
        policy: SandboxPolicy,
        hosts: HostHandler,
        start: StartJail | None = None,
        name: str = "",
        legacy: HandoverLog = NO_HANDOVER_LOG,
        history: History | None = None,
        counts: Counts | None = None,
        tenant: str = "",
    ) -> None:
        """hosts: carries out the host calls of its jails. start: makes its jails; in this process by default.

        name: its name in errors. legacy: what is recorded for a process that takes it over. history: where its steps
        are recorded; in memory by default. counts: of its process; by default of this runtime alone. tenant: whose it
        is, for the log.
        """
        self.name, self.tenant = name, tenant
        self._pid = os.getpid()
        self.turn = threading.RLock()
        """Only the thread that has it may send requests to the jail."""
        self._legacy = legacy
        self.ledger = EgressLedger(policy.network, counts) if isinstance(policy.network, Allow) else None
        self.jail = CurrentJail(self.is_stored)
        """Under `turn`."""
        self._at_hand: Supervisor | None = None
        """Under `turn`, for a thread that has it without having waited; see `at_hand`."""
        self._closed = False
        self.recorder = StepRecorder(history or History(), counts)
        self.noted = InjectionLog(legacy, self.history, policy.memory_bytes)
        self.replays = HostCallReplays(hosts, self.recorder.host_calls.effect_of)
        deliveries = InjectionDelivery(policy, self.replays, self.recorder.host_calls, legacy)
        self._fresh = FreshJails(
            policy,
            self.ledger,
            self._logged(start or start_jail),
            self.noted,
            deliveries,
            self.recorder,
            legacy,
        )
        self.submissions = Submissions(self, self.jail, deliveries, legacy)
        self._reruns = Reruns(self, legacy)
        self._step = self.history.tree.last
        self.calls = KeyedCalls(name, policy.output_bytes, legacy.settled)
        self.patches = PatchJobs(self, legacy)
        self.refill: StateSource = NO_STATE_SOURCE
        """What fills a fresh jail once it has the injected values."""
        self.carried: Carried | None = None
        """Describes the state that the latest jail began with; None if it began with the injected values only."""
        self.earlier: Lineage | None = None
        """The steps that led to the state which the history begins with, where that is known from elsewhere."""
        self.began_elsewhere = len(self.history.tree) > 0
        """Whether the first steps ran in another runtime or process, which may have begun with other values."""

    def log_context(self) -> AbstractContextManager[None]:
        """What is logged inside, and by what is begun inside, is about this runtime."""
        return log_context(runtime=self.name, tenant=self.tenant, step=lambda: self.step)

    def _logged(self, start: StartJail) -> StartJail:
        def begun(
            policy: SandboxPolicy, ledger: EgressLedger | None = None, ends_at: float | None = None
        ) -> Supervisor:
            with self.log_context():
                return start(policy, ledger, ends_at)

        return begun

    @property
    def policy(self) -> SandboxPolicy:
        """The policy of its jails; its environment by digest, once there has been one."""
        return self._fresh.policy

    def pin(self) -> SandboxPolicy:
        """As `policy`, with the environment by digest now. Blocks while the environment is built."""
        return self._fresh.pin()

    # -- taking over from another process --

    def count_on(self, steps: int, ends_at: float | None) -> None:
        """Sets how many steps have had a number, and when the runtime's time is over, if its first jail has
        started."""
        self._step = max(self._step, steps)
        self._fresh.end_at(ends_at)

    @property
    def history(self) -> History:
        """What has happened in this runtime."""
        return self.recorder.history

    def read_history(self) -> History:
        """As `history`; see Backend."""
        return self.history

    # -- life --

    def start(self, seat: AuthorSession = OWNER) -> None:
        """Makes sure that there is a jail. Blocks for some 10 ms, once per process for the zygote.

        Raises JailLostError, once for each session, when the jail that it has used ended between two calls;
        UnavailableError and IsolationUnavailableError when no jail can be started.
        """
        self.started(seat)

    def started(self, seat: AuthorSession = OWNER) -> Supervisor:
        """The jail that runs now, started if need be; see `start`."""
        with self.turn:
            self.check_open()
            death = self.jail.unheard(seat)
            if death is not None and not self.refill.exact:
                raise JailLostError(death.describe())
            supervisor = self.jail.running or self._at_hand
            if supervisor is None:
                supervisor = self.jail.supervisor = self._fresh.make(self.refill, self._step)
            self.jail.used(seat, supervisor)
            return supervisor

    @contextmanager
    def at_hand(self) -> Iterator[bool]:
        """Whether calls can be begun now without waiting for another thread; if so, this thread has the turn inside.

        There no call starts a jail, which takes as long as the code in it likes: a call to a jail that has ended by
        then ends with it, as if it had come a moment earlier.
        """
        if not self.turn.acquire(blocking=False):
            yield False
            return
        former = self._at_hand
        try:
            self._at_hand = self.jail.running
            yield self._at_hand is not None
        finally:
            self._at_hand = former
            self.turn.release()

    def begin_again(self) -> None:
        """Starts a jail with the values that the history begins with, where none runs. As `start`."""
        with self.turn:
            self.check_open()
            self.jail.supervisor = supervisor = self._fresh.make_again(self._step)
            self.jail.used(OWNER, supervisor)

    def is_stored(self) -> bool:
        """Whether the state that clients were last informed of is stored for another jail. On any thread."""
        return not self._closed and self.refill.is_current

    @property
    def running(self) -> bool:
        """Whether a jail runs, so that `start` would not block."""
        return self.jail.running is not None

    @property
    def supervisor(self) -> Supervisor | None:
        """The supervisor of the jail that runs now, or of the last one."""
        return self.jail.supervisor

    @property
    def isolation(self) -> str:
        """`strict`, `landlock` or `none`: the isolation of the jail that runs now. Starts one if need be."""
        return self.started().isolation

    @property
    def limits(self) -> str:
        """`cgroup v1`, `cgroup v2` or `watchdog`: what enforces the limits of the jail that runs now, as a whole."""
        return self.started().limits

    @property
    def network_log(self) -> tuple[Decision, ...]:
        """What the proxy decided last, oldest first; empty without a network."""
        return self.ledger.decisions if self.ledger is not None else ()

    def reset(self) -> None:
        """Ends the jail; the next call starts a fresh one with the original injected values."""
        with self.turn:
            self.check_open()
            supervisor = self.jail.dismiss()
            self.refill.forget()
            self.carried = None
        if supervisor is not None:
            supervisor.mourned()
            supervisor.end(RESET)
        self.recorder.reset()

    @property
    def begins_otherwise(self) -> str:
        """Why a fresh jail does not begin in the state that the history does; empty if it does, or will once files
        are written there.
        """
        return self.noted.start.obstacle or unkept_files(self.history)

    def start_beside(
        self, policy: SandboxPolicy, ledger: EgressLedger | None, ends_at: float | None
    ) -> Supervisor:
        """See StartJail: a jail that is not recorded for a successor, with a namespace of its own."""
        return self._legacy.start_beside(policy, ledger, ends_at)

    def exchange(self, supervisor: Supervisor | None) -> Supervisor | None:
        """Returns the present jail, which the caller owns from now on, and sets the next; None for a fresh one."""
        with self.turn:
            self.check_open()
            return self.jail.exchange(supervisor)

    def sleep(self) -> None:
        """Ends the jail without loss: its state is stored, and the next call fills another jail with it."""
        supervisor = self.exchange(None)
        if supervisor is not None:
            supervisor.mourned()
            supervisor.end(ASLEEP)

    def doze(self, supervisor: Supervisor, state: tuple[int, int]) -> bool:
        """The same, if that jail is idle and still in that state. Returns whether it sleeps."""
        with self.turn:
            if (
                self._closed
                or supervisor is not self.jail.supervisor
                or supervisor.busy
                or state != self.state
            ):
                return False
            self.sleep()
            return True

    @property
    def state(self) -> tuple[int, int]:
        """Identifies a state of the namespace among later ones: the last step that was begun, and its end."""
        return self._step, self.head

    def close(self) -> None:
        """Ends the jail, for good. Closing twice has no further effect.

        The thread that has the turn waits for the jail, for as long as the code in it likes: so the jail ends first.
        """
        if self._pid == os.getpid():
            self._fresh.close()
            self.patches.close()
            self.refill.finish()
            if (running := self.jail.running) is not None:
                running.end(JailExit(reason="closed"))
        with self.turn:
            if self._closed or self._pid != os.getpid():
                return
            self._closed = True
            supervisor = self.jail.supervisor
            self._reruns.second_jail.close()
        if supervisor is not None:
            supervisor.end(JailExit(reason="closed"))
        self.refill.close()
        self.noted.close()
        self._legacy.close()
        self.history.close()

    def hand_over(self) -> bool:
        """Leaves an idle runtime to another process, which adopts it; then this is closed. False while it works.

        Raises UsageError when nothing is recorded for another process.
        """
        if self._legacy is NO_HANDOVER_LOG:
            raise UsageError("nothing of this runtime is kept for another process; its jail would end")
        self.refill.finish()
        with self.turn:
            self.check_open()
            if self.patches.busy:
                return False
            supervisor = self.jail.running
            if supervisor is not None and not supervisor.let_go():
                return False
            self._closed = True
        self._legacy.leave()
        self.noted.close()
        self.history.close()
        return True

    def check_open(self) -> None:
        """Raises RuntimeClosedError."""
        if self._closed:
            raise RuntimeClosedError("this runtime was closed; make a new one")
        if self._pid != os.getpid():
            raise RuntimeClosedError(
                "this runtime belongs to the process that forked this one; make a new one"
            )

    # -- several authors --

    def attach(self, author: str, *, private: bool) -> AttachedRuntime:
        """One more author, in the common namespace or with names of their own."""
        self.check_open()
        return AttachedRuntime(self, AuthorSession(author=author, private=private))

    def vacate(self, seat: AuthorSession) -> None:
        """The session's client has gone: waiting requests are declined, a running one is interrupted."""
        if self._pid != os.getpid():
            return
        supervisor = self.jail.vacate(seat)
        for request in supervisor.vacate(seat) if supervisor is not None else ():
            request.dispose()
            request.listener.done(RuntimeClosedError(f"{seat.author} was detached; nothing ran"))

    # -- cells --

    @property
    def step(self) -> int:
        """The number of the last step that was begun; 0 before the first.

        Each cell is one, and so is each change that a client makes without code after the first of them.
        """
        return self._step

    def new_step(self) -> int:
        """Takes the next number, and returns it."""
        with self.turn:
            self._step += 1
            return self._step

    def execute(
        self,
        code: str,
        timeout: float | None,
        listener: Listener,
        key: RequestKey | None = None,
        seat: AuthorSession = OWNER,
        cause: str = "",
        entry: UsageEntry | None = None,
        origin: int = 0,
        on_error: OnError = "keep",
    ) -> Withdraw | None:
        """Queues a cell. The listener always gets an ExecutionResult; None when nothing was queued.

        cause: why its author sent it, such as the id of a model call; origin: the step that it stands for; both for
        the history. entry: see UsageEntry.

        With a key, here as in the calls below: a cell that was sent before is not run again. The listener joins the
        running one, or gets the result of the one that ran. UnavailableError instead of a result: nothing ran, and
        the key may be used again. Raises OutcomeUnknownError when that result is not stored any more, RejectedError
        when the history has no room for such code.
        """
        atomic = on_error == "rollback"
        return self.calls.once(
            key,
            listener,
            lambda heard: self.submissions.cell(
                code, timeout, heard, seat, cause, entry, origin, atomic=atomic
            ),
        )

    def join(self, key: RequestKey, listener: Listener) -> Withdraw:
        """The listener joins an earlier request of this key. Raises OutcomeUnknownError."""
        call = self.calls.find(key.text)
        call.join(listener, key)
        return call.withdraw

    def outcome(self, key: str, listener: Listener) -> None:
        """The listener gets the outcome of a request of this key. Raises OutcomeUnknownError."""
        self.join(RequestKey(text=key), listener)

    def leave(self, key: str, listener: Listener) -> None:
        """The listener of a keyed call gets nothing more. The call goes on and can be joined again."""
        self.calls.leave(key, listener)

    def interrupt(self, seat: AuthorSession | None = None) -> bool:
        """Interrupts the running cell, of any session, or only if it is of this one. False when none runs."""
        supervisor = self.jail.supervisor
        return supervisor.interrupt(seat) if supervisor is not None else False

    def resume(self) -> None:
        """A slow listener can take more."""
        if (supervisor := self.jail.supervisor) is not None:
            supervisor.resume()

    def status(self, answer: Callable[[JailStatus | None], None], seat: AuthorSession = OWNER) -> None:
        """`answer` is called, on any thread, with None if the jail ends before it can be asked."""
        self.started(seat).status(answer)

    def live_output(self, after: LiveOutput, answer: Callable[[LiveOutput], None]) -> None:
        """`answer` is called with what the running cell has printed since that look, of any author.

        Starts no jail.
        """
        supervisor = self.jail.running
        answer(supervisor.live_output(after) if supervisor is not None else LiveOutput())

    # -- snapshots --

    @property
    def head(self) -> int:
        """The step whose end the namespace is at; 0 before the first cell, and in a fresh jail."""
        supervisor = self.jail.supervisor
        return supervisor.head if supervisor is not None else 0

    def snapshots(
        self, answer: Callable[[tuple[SnapshotInfo, ...] | None], None], seat: AuthorSession = OWNER
    ) -> None:
        """`answer` is called, on any thread, with the snapshots, by step; None as for `status`."""

        def of_steps(kept: tuple[SnapshotInfo, ...]) -> None:
            answer(tuple(one for one in kept if not self._reruns.is_between(one.step)))

        self.started(seat).snapshots(of_steps, lambda: answer(None))

    def snapshot(
        self, label: str, listener: Listener, key: RequestKey | None = None, seat: AuthorSession = OWNER
    ) -> None:
        """Queues a snapshot of the state. The listener gets a KeptReply, or UnavailableError with the reason."""
        check_label(label)
        self.calls.once(key, listener, lambda heard: self.submissions.submit(keeping(label, heard, seat)))

    def rollback(
        self, to: int | str, listener: Listener, key: RequestKey | None = None, seat: AuthorSession = OWNER
    ) -> None:
        """Queues a rollback to the state after a step, or to that of a label. The listener gets a Rollback.

        The present state is stored as a snapshot before, if possible, so that the next call can go back to it.
        NotKeptError instead, and nothing is done, when there is no snapshot of the target.
        """
        check_target(to)
        self.calls.once(key, listener, lambda heard: self.submissions.rollback(to, heard, seat))

    def rerunning(self) -> Reruns:
        """The operations that changes of the history need."""
        self.check_open()
        return self._reruns

    def begin(
        self,
        order: ProgramOrder,
        listener: ProgramListener,
        seat: AuthorSession = OWNER,
        entry: UsageEntry | None = None,
    ) -> ProgramHandle:
        """Begins a program beside the namespace. entry: see UsageEntry.

        Raises as `start`, and UsageError; the listener gets everything else.
        """
        return begin_program(self, order, listener, seat, entry)

    # -- values --

    def declare(self, injection: Injection) -> None:
        """Every jail of this runtime begins with it; for values known before the first jail. Takes it over."""
        self.noted.identify(injection)
        self._legacy.hold(injection)
        self.noted.add(injection)

    def inject(
        self, injection: Injection, listener: Listener, *, replace: bool, key: RequestKey | None = None
    ) -> None:
        """Queues an injection, and takes it over. Once it succeeded it is repeated in every later jail.

        Raises RejectedError when there is no room for it: then the caller closes it, as after any other error.
        """
        self.calls.once(
            key,
            listener,
            lambda heard: self.submissions.injection(injection, heard, replace=replace),
            injection.close,
        )

    def fetch(
        self,
        name: str,
        listener: Listener,
        *,
        opaque: bool,
        written: WrittenForm = PYTHON,
        seat: AuthorSession = OWNER,
    ) -> None:
        """Queues a request for a value: in the safe encoding, as a sealed pickle, or in another form."""
        if written.form != PYTHON.form:
            listener = FormCheck(listener, written)
        self.submissions.submit(jail_requests.fetch(name, listener, seat, opaque=opaque, written=written))

    def fetch_together(self, names: Sequence[str], states: Sequence[str], listener: Listener) -> None:
        """Queues a request for several variables and states of the process as one sealed pickle."""
        ask = jail_requests.fetch("", listener, OWNER, opaque=True, together=names, states=states)
        self.submissions.submit(ask)

    def share(self, name: str, listener: Listener, seat: AuthorSession = OWNER) -> None:
        """Queues a request for a sealed pickle that other runtimes can use."""
        self.fetch(name, SharingListener(listener), opaque=True, seat=seat)

    def share_together(self, names: Sequence[str], states: Sequence[str], listener: Listener) -> None:
        """As `fetch_together`; other runtimes can use it."""
        self.fetch_together(names, states, SharingListener(listener))

    def delete(
        self, name: str, listener: Listener, key: RequestKey | None = None, seat: AuthorSession = OWNER
    ) -> None:
        """Queues the removal of a variable. Later jails do not begin with it either."""
        self.calls.once(key, listener, lambda heard: self.submissions.deletion(name, heard, seat))

    def describe(self, listener: Listener, seat: AuthorSession = OWNER) -> None:
        """Queues a request for all names and the permitted descriptions of their values."""
        self.submissions.submit(jail_requests.describe(self.recorder.description(listener, seat), seat))

    def file(
        self,
        ask: WorkdirRequest,
        listener: Listener,
        key: RequestKey | None = None,
        seat: AuthorSession = OWNER,
    ) -> None:
        """Queues a request about the working directory. Only requests that change something have a key."""
        self.calls.once(key, listener, lambda heard: self.submissions.file(ask, heard, seat), ask.close)
