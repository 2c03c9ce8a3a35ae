"""When the worker is copied: the worker's side of snapshots. Which copies are kept is the warden's decision."""

from __future__ import annotations

import errno
import gc
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from cenote_worker.jail.forking import python_threads
from cenote_worker.jail.forking.fork_safety import ForkSafety
from cenote_worker.jail.forking.python_threads import NONE as NO_POOLS
from cenote_worker.jail.process.authors import TurnState
from cenote_worker.jail.snapshots import frozen_process
from cenote_worker.jail.snapshots.deltas.bindings import BindingsBaseline, Sources, difference
from cenote_worker.jail.snapshots.deltas.replay import (
    ReplayableCell,
    ReplayLog,
    is_told_by_cells,
    turn_and_bindings,
    with_turn,
)
from cenote_worker.jail.snapshots.descriptors import CopiedDescriptors, Parting
from cenote_worker.jail.snapshots.frozen_process import fork_beside, freeze
from cenote_worker.jail.snapshots.memory import FreeMemory, HugePages, Imported, Withheld, cost_of_copy
from cenote_worker.jail.snapshots.protocol import (
    AT_ONCE,
    BEGINNING,
    FORGONE,
    LIVE,
    MAX_BINDINGS,
    MAX_LABEL,
    Beginning,
    Message,
    number,
    receive,
    send,
    send_bindings,
    send_copied,
    send_initial_state,
    unpacked,
    wake_warden,
)
from cenote_worker.jail.snapshots.workdir_snapshots import NONE, WorkdirSnapshots
from cenote_worker.jail.sockets import pair, socket_of
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_fstat, _getcwd, _chdir, _now = os.fstat, os.getcwd, os.chdir, time.thread_time


NO_LINE: Final = "this runtime keeps no snapshots"
_THREADS: Final = "threads were running that a copy of the process would not have"
_FORESEEN: Final = (
    "it was given up: the cell rewrites so much memory that keeping it would have taken too long"
)
_ENDED: Final = "the copy that had it has ended, or was given up since the cell wrote too much memory"

_FORGOING_SECONDS: Final = 1.0
"""Ending a copy takes some milliseconds a gigabyte."""

_MAX_REASON: Final = 500

_STREAMS: Final = 3
"""Descriptors that `keep` begins with. The request socket follows, then what else a copy keeps open."""


class NotCopied(Exception):
    """No copy of this process would be able to compute; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latest:
    """The copy that was made last. names: its bindings; None if they cannot be compared, so that no later state can
    be sent as bindings. holdings: its descriptors. files: the version of the working directory that belongs to it.
    """

    pid: int
    names: BindingsBaseline | None
    holdings: CopiedDescriptors
    files: int


class Snapshots:
    """Keeps the state when it has changed and a client may want to restore it.

    A copy is made as soon as the worker is idle, so that no client waits for it; at the latest before the next cell.
    None is made if the latest copy, with some names bound to small values, is the current state, whatever has become
    of files: then the warden gets these bindings, and a process that continues from the copy binds them first. Nor is
    one made if the cells since the latest copy can be run again for less than copies cost: see `replay.py`.
    """

    def __init__(
        self,
        line: int,
        *,
        pulse: int,
        beginning: Beginning,
        files: WorkdirSnapshots,
        namespace: dict[str, object],
        sources: Sources,
        turn_state: Callable[[], TurnState | None],
        held: Callable[[], Mapping[str, object]],
        keep: Callable[[], tuple[int, ...]],
        quiet: Callable[[], None],
        is_collecting: Callable[[], bool],
        adopt: Callable[[int, bytes, TurnState | None], tuple[str, ...]],
        answer: Callable[[socket.socket, int], None],
    ) -> None:
        """line: descriptor of the socket to the warden, -1 for none. pulse: that of the timer that wakes it,
        likewise. beginning: whether the current state is kept as the initial one. files: the working directory, kept
        with each copy. sources, held: see `difference`. turn_state: see `Kernel.turn_state`.

        keep: gives the descriptors that a copy keeps open. quiet: called before each copy; ends those threads of ours
        that can be started again. is_collecting: see `Imported`. adopt: turns a fork of a copy into the state of a
        later step, given its number, bindings in this namespace (see `difference`) or cells (see `replay.py`), and
        that state's turn; returns what differs. answer: see `borrow`; it gets the number of the copy's files as well.
        """
        self._line = socket_of(line) if line >= 0 else None
        self._inode = _fstat(line).st_ino if line >= 0 else 0
        self._news = select.poll()
        """Tells whether a message has come from the warden: polled before and after each cell, and rarely true."""
        if line >= 0:
            self._news.register(line, select.POLLIN)
        self._pulse = pulse
        self._files = files
        self._namespace = namespace
        self._sources = sources
        self._turn_state = turn_state
        self._held = held
        self._keep = keep
        self._quiet = quiet
        self._adopt = adopt
        self._answer = answer
        self._safety = ForkSafety()
        self._imported = Imported(is_collecting)
        self._huge_pages = HugePages()
        self._free_memory = FreeMemory()
        self._withheld = Withheld(())
        """Memory that this process, a copy, lacks."""
        self._pools = NO_POOLS
        """Pools whose threads this process, a copy, lacks."""
        self._is_beginning = beginning.is_kept
        """Whether this is the worker's initial state: no request has come yet."""
        self._changed = True
        self._bound: frozenset[str] | None = None
        self.log = ReplayLog(is_whole=False)
        """The log of the cells since the latest copy. `is_told`: the kept state is that copy with these cells."""
        self._copy_seconds = 0.0
        """CPU time that making the latest copy took."""
        self._passing = False
        self._latest: _Latest | None = None
        """The latest copy, which the kept state is based on; None once it has ended."""
        self._ended = False
        """Whether that copy has ended early."""
        self.given_up: list[int] = []
        """Steps whose states the warden has given up for what they cost, until a result has named them."""
        self._step = 0
        self._wanted = NONE
        """The version of the files for the state that this process, come from a copy, is to have."""
        self._is_copy = False
        """Whether this process was forked from a worker and has replaced it."""
        self._unkept = "" if line >= 0 else NO_LINE
        self.severed: frozenset[int] = frozenset()
        """Descriptors that were pipes and sockets when the copy was made that this process came from, or files with a
        lock that another process holds now."""
        self.severed_pipes: frozenset[int] = frozenset()
        self._differing: tuple[str, ...] = ()
        """What cells that were run again have changed and had not changed the first time."""
        self.amiss: tuple[str, ...] = ()
        """What else differs from the former state, a line each."""

    @property
    def step(self) -> int:
        """The last step that ran."""
        return self._step

    def changed(
        self,
        step: int | None = None,
        *,
        bound_only: frozenset[str] | None = None,
        cell: ReplayableCell | None = None,
        passing: bool = False,
    ) -> None:
        """The state differs from the one that was copied. step: of the cell that changed it, if one did.

        bound_only: names that it has written, if nothing else can have changed but files of the working directory.
        cell: a repeatable cell, if nothing else has changed the state. passing: the state is about to be replaced by
        the one before, and is copied only if another cell comes first.
        """
        self._bound = None if self._changed else bound_only
        self.log.add(None if self._changed else cell)
        self._changed, self._passing = True, passing
        self._step = self._step if step is None else step

    def may_differ(self) -> None:
        """User code that is no cell may have run: no later state is sent as bindings of the latest copy."""
        self.log.add(None)
        if self._latest is not None:
            self._latest = replace(self._latest, names=None)

    def begun(self) -> None:
        """A request has come that may change the initial state."""
        self._is_beginning = False

    def image(
        self, write: Callable[[Callable[[], None]], tuple[int, ...] | None], way: int
    ) -> tuple[int, ...] | None:
        """Has a copy of this process write itself. Returns None as soon as the copy needs nothing more of this
        process.

        In another process that was made from what was written: returns the descriptors that it was given. The first
        is for the caller; the others replaced those that `keep` names after the streams and the request socket.

        way: the descriptor that the copy writes to. write: the copy's work. It gets a function that lets this process
        continue, and returns None in the copy, else those descriptors. Raises NotCopied, OSError.
        """
        self._quiet()
        self._files.end_watch()
        if reasons := self._safety.make_quiet():
            raise NotCopied(f"{_THREADS}: {', '.join(map(str, reasons))}"[:_MAX_REASON])
        self._pools = self._safety.idle
        self._imported.settle()
        holdings = CopiedDescriptors.now((*self._kept(), way))
        spent = int(time.process_time() * 1e6)
        waiting, telling = os.pipe2(os.O_CLOEXEC)
        with Parting(needed=bool(holdings.positions)) as parting:
            pid = self._fork()
            if pid is not None:
                os.close(telling)
                os.read(waiting, 1)
                os.close(waiting)
                return None
            return self._write(write, holdings, spent, parting, telling)

    def _write(
        self,
        write: Callable[[Callable[[], None]], tuple[int, ...] | None],
        holdings: CopiedDescriptors,
        spent: int,
        parting: Parting,
        telling: int,
    ) -> tuple[int, ...]:
        """The life of a copy that writes itself. Returns in a process made from it. spent: microseconds."""
        given, folder, collects, mask = None, "", gc.isenabled(), os.umask(0)
        with suppress(BaseException):
            os.umask(mask)
            gc.disable()  # gc would write to the pages of all objects
            folder = _getcwd()
            holdings.sever()
            parting.done()
            self.severed, self.severed_pipes = holdings.links, holdings.pipes
            given = write(lambda: os.close(telling))
        if given is None:
            os._exit(0)
        if collects:
            gc.enable()
        os.umask(mask)
        with suppress(OSError):  # it had been removed, or was not in the jail
            _chdir(folder)
        self._withheld.make_up()
        self._pools.part()
        frozen_process.go_on(spent, self._namespace)
        links = self._keep()[_STREAMS + 1 :]
        for come, wanted in zip(given[1:], links, strict=False):
            os.dup2(come, wanted, inheritable=False)
            os.close(come)
        unlinked = frozenset(links[len(given) - 1 :])
        lost = holdings.bring(unlinked)
        self.severed, self.severed_pipes = holdings.links | lost, holdings.pipes | lost - holdings.own
        self.amiss = self._pools.renew()
        self._pools = NO_POOLS
        self._files.begin_anew()
        self._latest, self._unkept = None, NO_LINE if self._line is None else ""
        self._ended, self._passing, self._is_beginning, self._is_copy = False, False, False, True
        self._changed, self._bound = True, None
        if self._line is not None:
            self._inode = _fstat(self._line.fileno()).st_ino
        return given

    def number(self, step: int) -> None:
        """The state is also that of another step: it is kept under this number, too."""
        if step != self._step:
            self.changed(step)

    def rest(self, is_idle: Callable[[], bool]) -> bool:
        """Called when the worker is idle: copies a changed state, unless the next request is there. See `take`. Not
        before the first cell: several injections often follow each other then."""
        if not self._changed or self._passing or self._line is None or not self._step:
            return False
        if is_idle() and not self.log.may_tell(cost_of_copy(self._copy_seconds)):
            self._huge_pages.gather(is_idle, alone=self._latest is None)
        return is_idle() and self.take()

    def settle(self, is_idle: Callable[[], bool]) -> bool:
        """Called when the worker has been idle for a while: copies a state that would take long to make again by
        running cells. See `take`."""
        if not self.is_slow:
            return False
        self._quiet()
        if self._safety.make_quiet():
            return False  # the cells still describe it
        self.log.add(None)
        self._changed, self._bound = True, None
        return self.rest(is_idle)

    def take(self, *, firmly: bool = False) -> bool:
        """Copies the state if it has changed, or its copy has ended. firmly: makes a real copy instead of relying on
        replayed cells.

        True in a process that came from the copy: it is the worker now.
        """
        if self._line is None:
            return False
        try:
            self._heed(self._line)
            if not self._changed and not self._ended and not (firmly and self.log.is_told):
                return False
            self._changed = False
            if firmly:
                self.log.add(None)
                self._bound = None if self.log.is_told else self._bound
            return not self._is_told(self._line) and self._make_copy(self._line)
        except OSError as error:
            self._unkept = f"no copy of the process could be made ({error.strerror})"
            return False

    def unkept(self) -> str:
        """Why the last state is not kept; empty when it is, according to the warden's messages."""
        if self._line is not None:
            with suppress(OSError):
                self._heed(self._line)
        return self._unkept or (_ENDED if self._ended else self._files.unkept)

    def unkeepable(self) -> str:
        """What the cell that has just ended has left that prevents any copy; empty if that was reported before."""
        if self._line is None:
            return ""
        return ", ".join(map(str, self._safety.lasting()))[:_MAX_REASON]

    def forgo(self) -> None:
        """Gives up all copies that no client has asked for, since what runs next would pay too much for them.

        Returns when they have ended, and their memory is this process's alone.
        """
        if self._line is None or self._unkept:
            return
        here, there = pair(socket.SOCK_SEQPACKET)
        with here, suppress(OSError):
            with there:
                send(self._line, {"op": "forgo"}, there)
                self._ring()
            here.settimeout(_FORGOING_SECONDS)
            if here.recv(len(FORGONE)) == FORGONE:
                self._unkept, self._latest = _FORESEEN, None

    def go_on_from(self, beginning: Beginning, amiss: tuple[str, ...]) -> None:
        """This process is to have a state that a client wants, based on the initial one. amiss: how it differs.

        Raises ValueError.
        """
        assert beginning.wanted is not None
        names = BindingsBaseline.of(self._namespace)
        self._changed = False
        self._step = number(beginning.wanted, "step")
        self._go_on(beginning.wanted)
        self.amiss = (*self._differing, *amiss)
        names = None if self.log.is_told else names
        files = number(beginning.wanted, "files")
        self._latest = _Latest(pid=BEGINNING, names=names, holdings=self._holdings(), files=files)

    def skip(self) -> None:
        """Like `forgo`, if the state may not have been copied yet: then it is not copied, which costs nothing."""
        if self._line is None:
            return
        if self._changed:
            self._unkept = ""  # it was about another state
        self.forgo()
        if self._changed:
            self._unkept = _FORESEEN

    @property
    def is_kept(self) -> bool:
        """Whether the last state is kept, as far as `take` knows."""
        return not (self._unkept or self._ended or self._files.unkept)

    @property
    def is_slow(self) -> bool:
        """Whether the current state is kept as cells that take long to run again."""
        return self._line is not None and not self._changed and self.log.is_slow

    @property
    def may_cost(self) -> bool:
        """Whether a cell may pay for a copy: one may share its memory. Nothing shares that of the initial state."""
        return self._latest is None or self._latest.pid != BEGINNING

    @property
    def is_lost(self) -> bool:
        """Whether the latest copy has ended since, as far as `unkept` knows."""
        return self._ended

    def alive(self) -> None:
        """Tells the warden that this process, come from a copy, works. Raises OSError."""
        if self._line is not None:
            send(self._line, {"op": "alive"})

    def served(self) -> None:
        """Tells the warden that this process, come from a copy, has answered a request."""
        if self._line is None:
            return
        with suppress(OSError):  # a cell has closed the line: no further state is kept, which is reported
            send(self._line, {"op": "served"})

    def label(self, text: str) -> None:
        """Names the copy of this state. Raises OSError."""
        assert self._line is not None
        send(self._line, {"op": "label", "step": self._step, "label": text[:MAX_LABEL]})

    def borrow(self, step: int) -> socket.socket | None:
        """A socket to a fork of the copy of that step, which runs `answer` at the other end; None if no copies are
        kept.

        The socket is at its end at once when there is no such copy. Raises OSError.
        """
        if self._line is None:
            return None
        here, there = pair(socket.SOCK_SEQPACKET)
        with there:
            send(self._line, {"op": "lend", "step": step}, there)
            self._ring()
        return here

    def _ring(self) -> None:
        """Wakes the warden, which may be idle when no copy is kept; see there."""
        if self._latest is not None and self._latest.pid == BEGINNING:
            wake_warden(self._pulse)

    def _is_told(self, line: socket.socket) -> bool:
        """Whether sending the warden the bindings since the latest copy, or the cells run, was enough."""
        latest = self._latest
        if latest is None:
            return False
        bindings, is_bound = self._told(latest)
        # A file may still be open without a name.
        if bindings is None or self._holdings() != latest.holdings:
            return False
        data = with_turn(self._turn_state(), bindings)
        if len(data) > MAX_BINDINGS:
            return False
        files = self._files.keep()
        if files == NONE or not (is_bound or files == latest.files):
            return False
        self.log.is_told = self.log.is_told or not is_bound
        send_bindings(line, latest.pid, self._step, files, data)
        self._unkept = ""
        return True

    def _told(self, latest: _Latest) -> tuple[bytes | None, bool]:
        """What turns that copy's state into the current one, and whether that is bindings. After replayed cells it is
        unknown which objects they have changed."""
        if self._bound is not None and latest.names is not None and not self.log.is_told:
            bindings = difference(latest.names, self._namespace, self._bound, self._sources, self._held())
            if bindings is not None:
                return bindings, True
        return self.log.told(cost_of_copy(self._copy_seconds)), False

    def _make_copy(self, line: socket.socket) -> bool:
        """Copies the state. See `take`."""
        began, self.log = _now(), ReplayLog()
        self._latest, self._ended = None, False
        if self._is_beginning:
            self._tell_beginning(line)
            return False
        self._quiet()
        if reasons := self._safety.make_quiet():
            self._unkept = f"{_THREADS}: {', '.join(map(str, reasons))}"[:_MAX_REASON]
            return False
        self._pools = self._safety.idle
        self._imported.settle()
        files = self._files.keep()
        holdings = self._holdings()
        names = BindingsBaseline.of(self._namespace)
        here, there = pair(socket.SOCK_SEQPACKET)
        with here, there, Parting(needed=bool(holdings.positions)) as parting:
            pid = self._fork()
            if pid is not None:
                send_copied(line, pid, self._step, files, here)
                self._unkept = ""
                self._latest = _Latest(pid=pid, names=names, holdings=holdings, files=files)
                self._copy_seconds = _now() - began
                return False
            return self._freeze(here, there, holdings, parting, names, files)

    def _fork(self) -> int | None:
        """See `fork_beside`."""
        self._withheld = self._free_memory.withhold()
        pid: int | None = os.getpid()
        python_threads.begin_fork()
        try:
            pid = fork_beside()
        finally:
            if pid is not None:
                python_threads.end_fork(is_copy=self._is_copy)
                self._withheld.give_back()
        return pid

    def _tell_beginning(self, line: socket.socket) -> None:
        files = self._files.keep()
        send_initial_state(line, self._step, files)
        self._is_beginning, self._unkept = False, ""
        names = BindingsBaseline.of(self._namespace)
        self._latest = _Latest(pid=BEGINNING, names=names, holdings=self._holdings(), files=files)

    def _holdings(self) -> CopiedDescriptors:
        return CopiedDescriptors.now(self._kept())

    def _kept(self) -> tuple[int, ...]:
        return *self._keep(), *self.line

    @property
    def line(self) -> tuple[int, ...]:
        """Descriptors of the socket to the warden and of the timer that wakes it, if there are any."""
        return () if self._line is None else (self._line.fileno(), self._pulse)

    def _heed(self, line: socket.socket) -> None:
        """Reads which copies still exist. Raises OSError."""
        if _fstat(line.fileno()).st_ino != self._inode:
            raise OSError(errno.EBADF, "a cell has closed the line to the warden")
        if not self._news.poll(0):
            return
        with suppress(BlockingIOError, ValueError):
            while (heard := receive(line, AT_ONCE)) is not None:
                if self._latest is not None and heard.message.get("gone") == self._latest.pid:
                    self._latest, self._ended = None, True
                self.given_up += heard.given_up
                numbers = heard.message.get("files")
                if isinstance(numbers, list):
                    self._files.wanted(numbers, number(heard.message, "newest"))

    def _freeze(
        self,
        here: socket.socket,
        there: socket.socket,
        holdings: CopiedDescriptors,
        parting: Parting,
        names: BindingsBaseline | None,
        files: int,
    ) -> bool:
        """The copy's life. Returns in a process that is the worker now, after the process it was copied from has
        died."""
        with suppress(BaseException):
            here.close()
            self._unkept, self._is_copy = "", True
            holdings.sever()
            parting.done()
            copy = os.getpid()
            freeze(there, self._go_on, self._lend)
            amiss = self._files.restore(self._wanted)  # before the locks: closing a file would release them
            unlocked = holdings.restore()
            self.severed, self.severed_pipes = holdings.links | unlocked, holdings.pipes | unlocked
            self.amiss = (*self._differing, *amiss, *self._pools.renew())
            self._pools = NO_POOLS
            self._ended = os.getpid() == copy  # it is no copy any more, since this is the worker now
            if not self._ended:
                names = None if self.log.is_told else names
                self._latest = _Latest(pid=copy, names=names, holdings=self._holdings(), files=files)
            return True
        os._exit(1)

    def _go_on(self, told: Message) -> None:
        """Called in a fork of a copy. told: bindings of a later step than the copy's, if wanted. Raises
        ValueError."""
        self._files.end_watch()
        self._withheld.make_up()
        self._pools.part()
        self._wanted = number(told, "files")
        if "cpu" in told:
            frozen_process.go_on(number(told, "cpu"), self._namespace)
        bindings = told.get("bindings")
        if isinstance(bindings, str):
            self._step = number(told, "step")
            turn, data = turn_and_bindings(unpacked(bindings))
            self.log.add(None)
            self.log.is_told = is_told_by_cells(data)
            if self.log.is_told and told.get("op") == LIVE:
                self._files.restore(self._wanted)  # the cells may read them
            self._differing = self._adopt(self._step, data, turn)

    def _lend(self, line: socket.socket) -> None:
        """In a fork of a copy that is lent: answers only if the state is the one that was requested."""
        if not self._differing:
            self._answer(line, self._wanted)
