"""A runtime whose jail, journal and injections are stored in the descriptor store of its node."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cenote_security.errors import UnavailableError, UnknownRuntimeError
from cenote_security.policy import SandboxPolicy
from cenote_worker.descriptor_store.client import DescriptorStoreClient
from cenote_worker.descriptor_store.message import close_all
from cenote_worker.egress.ledger import EgressLedger
from cenote_worker.record.jail_journal import JailJournal
from cenote_worker.record.journal import Journal, JournalFile
from cenote_worker.record.journal_replay import JailReplay, JournalReplay
from cenote_worker.runtime.injection import Injection, from_record, to_record
from cenote_worker.supervisor.channels.host_calls import HostLog, NoHostLog
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.journal_port import NO_JOURNAL, SupervisorState
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.supervisor.start import start_ends, supervise
from cenote_worker.supervisor.supervisor import Supervisor

_log = logging.getLogger("cenote.descriptor_store")

StartEnds = Callable[[SandboxPolicy], JailEnds]
"""Starts a jail, in this process or elsewhere."""


@dataclass(slots=True, kw_only=True)
class _KeptJail:
    """channel: both ends of its host channel, once there may be host calls."""

    ends: JailEnds
    journal: JailJournal
    channel: tuple[socket.socket, socket.socket] | None = None


class StoredHandoverLog:
    """The HandoverLog of a runtime, and its StartJail: the descriptor store always has what a successor needs.

    A store that was replaced is filled again by `refill`; what cannot be put meanwhile is put then.
    """

    def __init__(
        self,
        name: str,
        policy: SandboxPolicy,
        descriptor_store: DescriptorStoreClient,
        file: JournalFile,
        start: StartEnds,
    ) -> None:
        self._place = f"runtime/{name}/"
        self._about = {"runtime": name}
        self._policy = policy
        self._descriptor_store = descriptor_store
        self._start_ends = start
        self._lock = threading.Lock()
        self._last_injection = 0
        self._injections: dict[int, Injection] = {}
        self._jails: dict[int, _KeptJail] = {}
        """The jails that have not ended, by number: the runtime's own, and one that waits while a patch is
        applied."""
        self._patch = ""
        """Key of the patch that was begun last."""
        self._over: Callable[[], None] | None = None
        """Called when that patch is settled."""
        self._telling = threading.Lock()
        self._left = False
        """Whether the entries belong to another process: later events change nothing in the store. The end of a jail
        is reported after its runtime was closed, when there may be another runtime of the same name."""
        self._journal = Journal(file, policy.output_bytes, self._hand_journal, self._give_up)

    @classmethod
    def fresh(
        cls,
        name: str,
        policy: SandboxPolicy,
        descriptor_store: DescriptorStoreClient,
        start: StartEnds = start_ends,
    ) -> StoredHandoverLog:
        """For a new runtime. start: makes its jails. Raises UnavailableError when there is no descriptor store."""
        if policy.isolation == "gvisor":
            raise UnavailableError(
                "a jail in gVisor sends its memory in pieces, which cannot be received further from the middle: "
                "it cannot outlive the process that supervises it; use another isolation for this runtime"
            )
        file = JournalFile.create()
        try:
            descriptor_store.put(f"runtime/{name}/journal", b"", [file.descriptor])
        except BaseException:
            file.close()
            raise
        return cls(name, policy, descriptor_store, file, start)

    @classmethod
    def found(
        cls,
        name: str,
        policy: SandboxPolicy,
        descriptor_store: DescriptorStoreClient,
        start: StartEnds = start_ends,
    ) -> StoredHandoverLog:
        """For a runtime whose process has ended.

        Raises UnknownRuntimeError when nothing is stored for it, UnavailableError when its process still lives.
        """
        kept = descriptor_store.get(f"runtime/{name}/journal")
        if kept is None:
            raise UnknownRuntimeError(name)
        try:
            file = JournalFile(kept.descriptors[0])
        except OSError as error:
            close_all(kept.descriptors)
            raise UnavailableError(f"the process that hosts runtime {name!r} has not ended yet") from error
        return cls(name, policy, descriptor_store, file, start)

    # -- StartJail --

    def start_jail(
        self, policy: SandboxPolicy, ledger: EgressLedger | None, ends_at: float | None
    ) -> Supervisor:
        """See StartJail."""
        number = self._journal.begin(ends_at)
        ends = self._start_ends(policy)
        jail = self._adopted(number, ends)
        jail.journal.begin(ends.frames)
        self._put_jail(number, jail)
        try:
            return supervise(ends, policy, ledger, ends_at, jail.journal)
        except BaseException:
            self._gone(number)  # after that no process has its ends open, and it ends
            ends.close()
            raise

    def _adopted(self, number: int, ends: JailEnds) -> _KeptJail:
        journal = JailJournal(self._journal, number, self._policy.output_bytes, lambda: self._gone(number))
        with self._lock:
            self._jails[number] = jail = _KeptJail(ends=ends, journal=journal)
        return jail

    def _gone(self, number: int) -> None:
        with self._lock:
            self._jails.pop(number, None)
        self._drop(f"jail/{number}")
        self._drop(f"hosts/{number}")

    # -- what a former process has left --

    def story(self) -> JournalReplay:
        return self._journal.story()

    def found_story(self) -> JournalReplay:
        """The runtime's state, with a jail that was set aside, if any, as its own again. Entries of other jails are
        dropped."""
        if self.story().aside is not None:
            self._journal.taken_back()
        for what in ("jail", "hosts"):
            for key in self._descriptor_store.keys(f"{self._place}{what}/"):
                if key != f"{self._place}{what}/{self._journal.jail}":
                    self._descriptor_store.drop(key)
        return self.story()

    def find_ends(self, jail: int) -> JailEnds | None:
        """The ends of that jail, if they are stored."""
        kept = self._descriptor_store.get(f"{self._place}jail/{jail}")
        if kept is None:
            return None
        ends = JailEnds.arrived(kept.record, kept.descriptors)
        self._adopted(jail, ends)
        return ends

    def find_injections(self) -> dict[int, Injection]:
        """The stored injections, by number: accepted or under way."""
        place = self._place + "injection/"
        for key in self._descriptor_store.keys(place):
            kept = self._descriptor_store.get(key)
            number = int(key.removeprefix(place))
            if kept is not None:
                self._injections[number] = from_record(kept.record, kept.descriptors, number)
        self._last_injection = max(self._injections, default=0)
        return dict(self._injections)

    def find_host_channel(self, jail: int) -> tuple[socket.socket, socket.socket, HostLog] | None:
        """Our end, the jail's end, and the log."""
        kept = self._descriptor_store.get(f"{self._place}hosts/{jail}")
        if kept is None:
            return None
        ours, theirs = (socket.socket(fileno=descriptor) for descriptor in kept.descriptors)
        if (found := self._jails.get(jail)) is None:
            ours.close()
            theirs.close()
            return None
        found.channel = ours, theirs
        return ours, theirs, found.journal

    def supervise(
        self, ends: JailEnds, story: JailReplay, ledger: EgressLedger | None, succession: SupervisorState
    ) -> Supervisor:
        """Continues with a jail that was found."""
        ends_at = story.jail.ends_at or None
        journal = self._jails[story.jail.jail].journal
        return supervise(ends, self._policy, ledger, ends_at, journal, succession)

    def take_up(self, ends: JailEnds, story: JailReplay) -> None:
        """Continues to write where the journal ends."""
        self._jails[story.jail.jail].journal.take_up(ends.frames, story)

    def mourned(self, jail: int) -> None:
        """The runtime's owner was informed that this jail, which was found, has ended."""
        self._journal.mourned(jail)

    # -- HandoverLog --

    def hold(self, injection: Injection) -> None:
        with self._lock:
            self._last_injection += 1
            injection.number = self._last_injection
            self._injections[injection.number] = injection
        self._put_injection(injection)

    def release(self, injection: Injection) -> None:
        with self._lock:
            self._injections.pop(injection.number, None)
        self._drop(f"injection/{injection.number}")

    def accept(self, injection: Injection | None, superseded: Sequence[Injection]) -> None:
        number = injection.number if injection is not None else 0
        self._journal.accepted(number, [old.number for old in superseded])

    def filled(self, head: int, steps: int) -> None:
        self._journal.filled(head, steps)

    def host_channel(self, ours: socket.socket, theirs: socket.socket) -> HostLog:
        with self._lock:
            number = self._journal.jail
            if (jail := self._jails.get(number)) is None:  # it has ended, so nothing will come from it
                return NoHostLog()
            jail.channel = ours, theirs
        self._put_channel(number, jail.channel)
        return jail.journal

    def settled(self, key: str, outcome: Outcome) -> None:
        self._journal.settled(key, outcome)
        if key == self._patch and self._over is not None:
            over, self._over = self._over, None
            over()

    def start_beside(
        self, policy: SandboxPolicy, ledger: EgressLedger | None, ends_at: float | None
    ) -> Supervisor:
        ends = self._start_ends(policy)
        try:
            return supervise(ends, policy, ledger, ends_at, NO_JOURNAL)
        except BaseException:
            ends.close()
            raise

    def patch_begun(self, key: str, head: int, steps: int) -> None:
        self._patch = key
        self._journal.patch_begun(key, head, steps)

    def set_aside(self, *, intact: bool) -> None:
        self._journal.set_aside(intact=intact)

    def taken_back(self) -> None:
        self._journal.taken_back()

    def stays(self, over: Callable[[], None]) -> None:
        self._over = over

    def close(self) -> None:
        self._leave_places()
        with suppress(UnavailableError):  # then nothing is stored
            for key in self._descriptor_store.keys(self._place):
                self._descriptor_store.drop(key)
        self.leave()

    def leave(self) -> None:
        self._leave_places()
        with self._lock:
            self._jails.clear()
            injections = list(self._injections.values())
        for injection in injections:  # those that were still on their way to a jail
            injection.close()
        self._journal.close()

    # -- the descriptor store --

    def refill(self) -> None:
        """Puts everything once more, because the store is a new and empty one. Waits for it: there may be thousands
        of injections, and each one that waits to be put takes descriptors.
        """
        with self._lock:
            jails, injections = dict(self._jails), list(self._injections.values())
        for injection in injections:
            self._put_injection(injection)
            self._descriptor_store.settle()
        for number, jail in jails.items():
            self._put_jail(number, jail)
            if jail.channel is not None:
                self._put_channel(number, jail.channel)
        self._journal.hand()

    def _hand_journal(self, descriptor: int) -> None:
        self._put("journal", b"", [descriptor])

    def _give_up(self) -> None:
        self._drop("journal")

    def _put_injection(self, injection: Injection) -> None:
        record, descriptors, content = to_record(injection)
        self._put(f"injection/{injection.number}", record, descriptors)
        content.close()

    def _put_jail(self, number: int, jail: _KeptJail) -> None:
        self._put(f"jail/{number}", jail.ends.record(), jail.ends.descriptors())

    def _put_channel(self, number: int, ends: tuple[socket.socket, socket.socket]) -> None:
        self._put(f"hosts/{number}", b"", [end.fileno() for end in ends])

    def _leave_places(self) -> None:
        with self._telling:
            self._left = True

    def _put(self, what: str, record: bytes, descriptors: Sequence[int]) -> None:
        try:
            with self._telling:
                if not self._left:
                    self._descriptor_store.put_soon(self._place + what, record, descriptors)
        except UnavailableError as error:
            _log.warning("%s%s is not kept for a successor: %s", self._place, what, error, extra=self._about)

    def _drop(self, what: str) -> None:
        try:
            with self._telling:
                if not self._left:
                    self._descriptor_store.drop_soon(self._place + what)
        except UnavailableError as error:
            _log.warning("%s%s could not be dropped: %s", self._place, what, error, extra=self._about)
