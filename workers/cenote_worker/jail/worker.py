"""The process that holds a namespace: takes one request at a time from its supervisor and answers it.

Requests are read by the main thread between cells; while a cell runs nothing is read, so that user code has the
process to itself. Interrupts and status questions go to the warden, a separate process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from cenote_proto.scalars import utf8_text, utf8_texts
from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_worker.execution import messages
from cenote_worker.execution.messages import fill_variable
from cenote_worker.execution.trace import Location, StepTrace
from cenote_worker.jail.forking.frozen_copy import live_briefly
from cenote_worker.jail.forking.random_state import draw_anew, stir
from cenote_worker.jail.kernel import Kernel
from cenote_worker.jail.libraries.duckdb_threads import THREADS
from cenote_worker.jail.output import e2b_forms
from cenote_worker.jail.output.frame_sink import FrameSink
from cenote_worker.jail.output.limits import KernelLimits
from cenote_worker.jail.output.streams import write_whole_lines
from cenote_worker.jail.process.authors import Turn, TurnState
from cenote_worker.jail.process.proc_info import is_single_threaded
from cenote_worker.jail.snapshots.cost_forecast import Foresight
from cenote_worker.jail.snapshots.dead_handles import severed_names
from cenote_worker.jail.snapshots.deltas.bindings import bring_about, is_plain
from cenote_worker.jail.snapshots.deltas.replay import (
    ReplayableCell,
    is_told_by_cells,
    nothing_printed,
    replayable,
    run_again,
)
from cenote_worker.jail.snapshots.protocol import Beginning, pulse_timer
from cenote_worker.jail.snapshots.workdir_snapshots import WorkdirSnapshots
from cenote_worker.jail.snapshots.worker_snapshots import NotCopied, Snapshots
from cenote_worker.jail.sockets import socket_of
from cenote_worker.jail.state import image_unsafe as image
from cenote_worker.jail.state.branch_merge_unsafe import BranchMerge
from cenote_worker.jail.state.branch_transfer import Borrow, BranchTransfer
from cenote_worker.jail.state.checkpointing import Checkpointing
from cenote_worker.jail.state.pickles_unsafe import NotKept
from cenote_worker.jail.values.value_requests import RequestRefused, ValueRequests
from cenote_worker.jail.workdir.requests import Workdir
from cenote_worker.process.pristine import BUILTINS, keep_library
from cenote_worker.process.worker_settings import WorkerSettings
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import Packet, receive_packet, send_in_pieces, send_packet

__builtins__ = BUILTINS

_processor_time = time.process_time

_BEHIND_A_COPY = frozenset({"execute", "snapshot"})
"""Requests before which the state is copied, if it has changed since the last copy."""

_CHANGES = frozenset({"execute", "inject", "delete", "restore", "carry", "forget", "load"})
_FILE_CHANGES = (jail_pb2.FileRequest.WRITE, jail_pb2.FileRequest.DELETE, jail_pb2.FileRequest.NOTE)

_LONG_PAUSE = 2_000
"""Milliseconds after which an idle worker makes a copy that would only have cost time before."""

_CROWDED = "the kernel has too many descriptors of this user's jails under way; try again later"


def main(frames_fd: int, settings: WorkerSettings) -> None:
    """Serves the supervisor at the other end of `frames_fd` until it hangs up."""
    # As at Python's prompt: programs with an argument parser would take the worker's arguments for their own.
    sys.argv = [""]
    write_whole_lines()
    keep_library()
    sock = socket_of(frames_fd)
    # A broken pipe means that the supervisor is gone, so no client remains.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        beginning = Beginning.told(settings)
        kept_files = WorkdirSnapshots(settings, is_mount=settings.isolation == "strict")
        if settings.borrower >= 0:
            live_briefly(lambda: Worker(sock, settings, beginning, kept_files).lend(settings.borrower))
        amiss = None if beginning.wanted is None else _bring_files(kept_files, beginning)
        worker = Worker(sock, settings, beginning, kept_files)
        if amiss is None:
            worker.say_ready()
        else:
            worker.go_on(amiss)
        worker.serve()


def _bring_files(kept: WorkdirSnapshots, beginning: Beginning) -> tuple[str, ...]:
    """Returns which files could not be restored. Raises ValueError."""
    if not beginning.is_parked:
        return kept.restore(beginning.files)
    kept.learn(beginning.files)
    return ()


class Worker:
    """The namespace and the requests about it."""

    def __init__(
        self,
        sock: socket.socket,
        settings: WorkerSettings,
        beginning: Beginning,
        kept_files: WorkdirSnapshots,
    ) -> None:
        self._sock = sock
        self._beginning = beginning
        # gVisor does not let descriptors be passed out.
        self._send_packet = send_in_pieces if settings.isolation == "gvisor" else send_packet
        self._sink = FrameSink(sock, self._send_packet)
        os.chdir(settings.workdir)  # the kernel takes it as every author's first directory
        self._gives_traces = settings.policy.tracking
        self._kernel = Kernel(
            self._sink,
            limits=e2b_forms.LIMITS if e2b_forms.wanted() else KernelLimits(),
            tracking=self._gives_traces,
            watching=settings.warden >= 0,
            guarded=True,
            checking=settings.policy.check_first,
            changes=kept_files,
        )
        self._namespace = self._kernel.namespace  # the common one, while no author has the turn
        self._files = Workdir(settings.workdir)
        self._pulse = settings.pulse
        self._checkpointing = Checkpointing(self._kernel, settings.workdir, self._send_packet)
        merging = BranchMerge(self._kernel, self._checkpointing.anchors, self._checkpointing.landing)
        self._values = ValueRequests(self._kernel, self._send_packet, self._checkpointing.offer, merging)
        self._carrying = BranchTransfer(self._kernel, self._checkpointing, settings.workdir, kept_files)
        self._copies = Snapshots(
            settings.warden,
            pulse=settings.pulse,
            beginning=beginning,
            files=kept_files,
            namespace=self._namespace,
            sources=self._kernel.source_of,
            turn_state=lambda: self._kernel.turn_state,
            held=lambda: self._kernel.held_by_turns,
            keep=self._kept_descriptors,
            quiet=self._quiet,
            is_collecting=lambda: self._kernel.between_cells.is_collecting,
            adopt=self._adopt,
            answer=self._carrying.give,
        )
        self._foresight = Foresight(self._kernel, self._copies)
        self._bound_only: frozenset[str] | None = None
        self._cell: ReplayableCell | None = None
        self._looks_ahead = False
        """Whether something was brought in that no cell has used yet."""
        self._is_new = False
        """Whether this process has come from a copy, and has not answered a request yet."""
        self._taken_over = 0
        """The id of the request that turned this process into an image's, until that is answered."""

    def say_ready(self) -> None:
        self._sink.send(jail_pb2.WorkerFrame(ready=jail_pb2.Ready(pid=os.getpid())))

    def go_on(self, amiss: tuple[str, ...]) -> None:
        """Continues from the initial state. amiss: which of its files were not restored. Raises ValueError."""
        self._copies.go_on_from(self._beginning, amiss)
        self._revive()

    def lend(self, borrower: int) -> None:
        """See `Snapshots.borrow`. borrower: descriptor of the socket to the borrower. Raises ValueError, OSError."""
        self._copies.go_on_from(self._beginning, ())
        with socket_of(borrower) as line:
            self._carrying.give(line, self._beginning.files)

    def serve(self) -> None:
        while (packet := self._next()) is not None:
            request = jail_pb2.Request.FromString(packet.data)
            if request.WhichOneof("body") == "snapshot" and request.state:
                self._copies.number(request.state)
            if self._foresight.is_costly(request):
                self._copies.skip()
                self._answer(request, packet.descriptors)
            elif request.WhichOneof("body") in _BEHIND_A_COPY and self._copied(_is_asked_for(request)):
                packet.close()  # it was for the process that this one was copied from
            else:
                self._answer(request, packet.descriptors)

    def _next(self) -> Packet | None:
        if self._looks_ahead and self._is_idle():
            self._looks_ahead = False
            self._kernel.look_ahead()
        if self._is_idle(self._foresight.patience()) and self._rest(self._copies.rest):
            self._revive()
        self._resume()
        if self._copies.is_slow and not self._is_asked(_LONG_PAUSE):
            if self._rest(self._copies.settle):
                self._revive()
            self._resume()
        while not self._is_asked():
            pass
        return receive_packet(self._sock)

    def _rest(self, rest: Callable[[Callable[[], bool]], bool]) -> bool:
        """rest: of `Snapshots`, called when the worker is idle."""
        try:
            return rest(self._is_idle)
        except Exception as stray:
            self._copies.may_differ()
            self._copies.changed()  # so it is tried again before the next cell
            self._kernel.show_stray(stray)
            return False

    def _is_asked(self, patience: int = -1) -> bool:
        """Waits for a request; a user thread may have an exception raised here. patience: see `_is_idle`."""
        try:
            return not self._is_idle(patience)
        except BaseException as stray:
            self._kernel.show_stray(stray)
            return False

    def _is_idle(self, patience: int = 0) -> bool:
        """Whether no request is there yet, or comes within that many milliseconds; -1 waits without limit."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return not poll.poll(patience)

    def _copied(self, firmly: bool) -> bool:
        """Copies the state if it has changed. True in a process that continues from the copy."""
        if self._copies.take(firmly=firmly):
            self._revive()
            return True
        self._resume()
        return False

    def _kept_descriptors(self) -> tuple[int, ...]:
        """The pipes and sockets of this process that a copy needs."""
        hosts = () if self._values.hosts is None else (self._values.hosts.sock.fileno(),)
        return 0, 1, 2, self._sock.fileno(), *hosts

    def _quiet(self) -> None:
        self._kernel.before_fork()
        if self._values.hosts is not None:
            self._values.hosts.rest()

    def _resume(self) -> None:
        THREADS.begin_again()
        if self._values.hosts is not None:
            self._values.hosts.resume()

    def _revive(self) -> None:
        THREADS.begin_again()
        self._kernel.revive()
        self._values.revive()
        self._copies.alive()
        self._is_new = True

    def _adopt(self, step: int, bindings: bytes, turn: TurnState | None) -> tuple[str, ...]:
        """In a fork of a copy: moves to a later step, which has bound some names, or which rerunning cells leads to.
        Returns what differs, a line each."""
        if is_told_by_cells(bindings):
            self._kernel.revive()
            with nothing_printed():
                differing = run_again(bindings, self._run_again)
            self._kernel.restore_turn(turn)
            return differing
        names, sources = bring_about(self._namespace, bindings)
        self._kernel.take_sources(sources)
        self._kernel.forget(names)
        self._kernel.restore_turn(turn)
        self._checkpointing.ran(step)
        return ()

    def _run_again(self, code: str, step: int, turn: Turn) -> StepTrace | None:
        self._kernel.enter(*turn)
        trace = self._kernel.run_again(code, step)
        self._checkpointing.ran(step)
        return trace

    def _answer(self, request: jail_pb2.Request, descriptors: list[int]) -> None:
        frame = jail_pb2.WorkerFrame()
        frame.reply.id = request.id
        content: Content | None = None
        self._bound_only = self._cell = None
        self._copies.begun()
        self._kernel.enter(request.author, request.private)
        try:
            content = self._dispatch(request, descriptors, frame.reply)
        except RequestRefused as refused:
            refused.fill(frame.reply.refusal)
        if self._taken_over:
            frame.reply.id, self._taken_over = self._taken_over, 0
        if _is_note(request):
            self._bound_only = frozenset()  # nothing but files can have changed
        elif request.WhichOneof("body") != "execute":
            self._kernel.look_anew()  # pickling or describing may have run user code
        if _changes_something(request):
            number = request.execute.step or request.state or None
            passing = _is_undone(request, frame.reply)
            self._copies.changed(number, bound_only=self._bound_only, cell=self._cell, passing=passing)
            self._looks_ahead = request.WhichOneof("body") != "execute"
        attached = [content.memory.fileno()] if content is not None and content.memory is not None else []
        self._send(frame, attached)
        if self._is_new:
            self._is_new = False
            self._copies.served()
        if content is not None:
            content.close()

    def _send(self, frame: jail_pb2.WorkerFrame, attached: list[int]) -> None:
        try:
            self._sink.send_reply(frame, attached)
        except OSError as error:
            # Descriptors in flight are counted per user, and the jails of a zygote may all run as one user: another
            # jail can use the count up. That must not cost this one its namespace.
            if error.errno != errno.ETOOMANYREFS:
                raise
            refusal = jail_pb2.WorkerFrame()
            refusal.reply.id = frame.reply.id
            RequestRefused(jail_pb2.Refusal.FAILED, message=_CROWDED).fill(refusal.reply.refusal)
            self._sink.send_reply(refusal, [])

    def _dispatch(
        self, request: jail_pb2.Request, descriptors: list[int], reply: jail_pb2.Reply
    ) -> Content | None:
        match request.WhichOneof("body"):
            case "execute":
                self._execute(request.execute, descriptors, reply.executed)
            case "inject":
                reply.done.SetInParent()
                self._values.inject(request.inject, descriptors, reply.done)
                self._kernel.settle()
            case "fetch":
                name = request.fetch.name
                own = not request.fetch.opaque and request.fetch.form == jail_pb2.PYTHON_VALUE
                if not own and not (name and is_plain(self._kernel.namespace.get(name))):
                    self._copies.may_differ()
                return self._values.fetch(request.fetch, reply.value)
            case "delete":
                self._values.delete(request.delete.name)
                self._kernel.settle()
                reply.done.SetInParent()
            case "describe":
                reply.variables.SetInParent()
                for info in self._values.described(request.describe):
                    fill_variable(reply.variables.variables.add(), info)
            case "file":
                return self._file(request.file, descriptors, reply)
            case "snapshot":
                reply.kept.step = self._snapshot(request.snapshot.label)
            case "survey":
                names = severed_names(
                    self._kernel.namespace, self._copies.severed, self._copies.severed_pipes
                )
                reply.surveyed.severed.extend(utf8_texts(names))
                reply.surveyed.amiss.extend(utf8_texts(self._copies.amiss))
                reply.surveyed.step = self._copies.step
            case "make_checkpoint":
                self._make_checkpoint(request.make_checkpoint, descriptors)
                reply.done.SetInParent()
            case "restore" if request.restore.kind == jail_pb2.RestorePiece.IMAGE:
                self._become(request, descriptors)
            case "restore":
                self._restore(request.restore, descriptors)
                self._copies.changed(self._checkpointing.restored_at or None)
                self._kernel.settle()
                reply.done.SetInParent()
                reply.done.differing.extend(utf8_texts(self._checkpointing.differing))
            case "versions":
                self._versions(request.versions, descriptors, reply.versioned)
            case "carry" | "forget" | "load":
                self._move(request, descriptors)
                self._kernel.settle()
                reply.done.SetInParent()
            case "lend":
                self._lend(descriptors)
                reply.done.SetInParent()
        return None

    def _snapshot(self, label: str) -> int:
        """The state was copied, or could not be, before this call."""
        if reason := self._copies.unkept():
            raise RequestRefused(jail_pb2.Refusal.FAILED, message=reason)
        if label:  # a labelled state is kept
            self._copies.label(label)
        return self._copies.step

    # -- cells --

    def _execute(
        self, request: jail_pb2.Execute, descriptors: list[int], executed: jail_pb2.Executed
    ) -> None:
        content = Content.delivered(request.code, descriptors)
        # Lone surrogates, which a model can write in JSON, are for the compiler to refuse.
        code = content.only_part().decode("utf-8", "surrogatepass")
        content.close()
        # A copy that a client has asked for is kept whatever it costs the cell.
        foresee = None if request.atomic else self._foresight.see
        self._foresight.begin_cell()
        called, began = self._calls_made, _processor_time()
        with pulse_timer(self._pulse if self._copies.may_cost and not request.atomic else -1):
            outcome = self._kernel.run_cell(
                code, request.step, after_interrupt=request.after_interrupt, foresee=foresee
            )
        executed.unkept = utf8_text(self._copies.unkept())
        executed.kept_as = "" if executed.unkept else "cells" if self._copies.log.is_told else "copy"
        executed.unkeepable = utf8_text(self._copies.unkeepable())
        executed.given_up.extend(self._copies.given_up)
        self._copies.given_up.clear()
        self._foresight.end_cell(code)
        self._checkpointing.ran(request.step)
        self._bound_only = outcome.bound_only
        if outcome.uses is not None and called == self._calls_made and not executed.unkeepable:
            self._cell = replayable(
                outcome.trace,
                outcome.uses,
                step=request.step,
                code=code,
                turn=self._kernel.turn,
                seconds=_processor_time() - began,
                wait=outcome.duration,
            )
        (outcome if self._gives_traces else replace(outcome, trace=None)).fill(executed)
        executed.differing.extend(utf8_texts(self._checkpointing.differing))
        self._checkpointing.differing = ()

    @property
    def _calls_made(self) -> int:
        return 0 if self._values.hosts is None else self._values.hosts.made

    # -- checkpoints --

    def _make_checkpoint(self, request: jail_pb2.MakeCheckpoint, descriptors: list[int]) -> None:
        try:
            if request.form in (jail_pb2.MakeCheckpoint.IMAGE, jail_pb2.MakeCheckpoint.IMAGE_ALONE):
                self._make_image(descriptors, with_files=request.form == jail_pb2.MakeCheckpoint.IMAGE)
                return
            with self._kernel.interruptible():
                self._checkpointing.make(request, descriptors)
        except NotCopied as reason:
            raise RequestRefused(jail_pb2.Refusal.FAILED, message=str(reason)) from None
        except (Exception, KeyboardInterrupt) as error:  # no memory for a copy, or no process
            text = f"{type(error).__name__}: {error}"
            raise RequestRefused(jail_pb2.Refusal.FAILED, message=text) from None

    def _make_image(self, descriptors: list[int], *, with_files: bool) -> None:
        """Raises NotCopied, OSError."""
        with socket_of(descriptors.pop(0)) as sock:
            way = sock.fileno()
            given = self._copies.image(
                lambda tell: self._checkpointing.ship_image(
                    sock, tell, self._severed(), with_files=with_files
                ),
                way,
            )
        if given is None:
            self._resume()
            return
        asked = jail_pb2.Request.FromString(os.pread(given[0], os.fstat(given[0]).st_size, 0))
        os.close(given[0])
        self._revive()
        stir()
        content = Content.delivered(asked.restore.content, [])
        order = checkpoint_pb2.ProcessOrder.FromString(content.whole())
        if order.draw_anew:
            draw_anew()
        self._taken_over = asked.id

    def _severed(self) -> list[str]:
        copies = self._copies
        return severed_names(self._kernel.namespace, copies.severed, copies.severed_pipes, is_image=True)

    def _become(self, request: jail_pb2.Request, descriptors: list[int]) -> None:
        """Replaces this process by another one, which answers; unless that is refused."""
        self._quiet()
        try:
            with (
                self._refusing("the process cannot become another one"),
                image.GivenImage(request.restore, descriptors) as given,
            ):
                if not is_single_threaded():
                    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
                note = os.memfd_create("cenote-order", os.MFD_CLOEXEC)
                os.write(note, request.SerializeToString())
                fixed = 1 + max((self._sock.fileno(), *self._copies.line))
                links = [number for number in self._kept_descriptors() if number >= fixed]
                given.become(fixed, (note, *links))
        finally:
            self._resume()

    def _restore(self, request: jail_pb2.RestorePiece, descriptors: list[int]) -> None:
        with self._refusing("it cannot be rebuilt"), self._kernel.interruptible():
            self._checkpointing.restore(request, descriptors)

    # -- parts of former states --

    def _versions(
        self, request: jail_pb2.Versions, descriptors: list[int], versioned: jail_pb2.Versioned
    ) -> None:
        locations = _locations(request.locations, descriptors)
        with self._refusing("the state cannot be looked at"), self._kernel.interruptible():
            messages.fill_versions(versioned, self._carrying.versions(locations))

    def _move(self, request: jail_pb2.Request, descriptors: list[int]) -> None:
        match request.WhichOneof("body"):
            case "carry":
                locations = _locations(request.carry.locations, descriptors)
                with (
                    _lender(request.carry, descriptors, self._copies.borrow) as borrow,
                    self._refusing("it cannot be rebuilt"),
                ):
                    self._carrying.carry(request.carry.step, locations, borrow)
            case "forget" if request.forget.arrange:
                self._carrying.arrange(_locations(request.forget.locations, descriptors))
            case "forget":
                self._carrying.forget(_locations(request.forget.locations, descriptors))
            case "load":
                self._carrying.load(request.load.modules)

    def _lend(self, descriptors: list[int]) -> None:
        """Lends this state to another jail of this runtime, where it cannot be copied."""
        with (
            socket_of(descriptors.pop(0)) as line,
            self._refusing("it cannot be lent"),
            self._kernel.interruptible(),
        ):
            self._carrying.give(line)

    @contextlib.contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """A user's class may raise any error while it is inspected or rebuilt."""
        try:
            yield
        except NotKept as error:
            raise RequestRefused(jail_pb2.Refusal.FAILED, message=str(error)) from None
        except (Exception, KeyboardInterrupt) as error:
            text = f"{what}: {type(error).__name__}: {error}"
            raise RequestRefused(jail_pb2.Refusal.FAILED, message=text) from None

    # -- files --

    def _file(
        self, request: jail_pb2.FileRequest, descriptors: list[int], reply: jail_pb2.Reply
    ) -> Content | None:
        try:
            with self._kernel.interruptible():
                return self._files.answer(request, descriptors, reply)
        except FileNotFoundError:
            raise RequestRefused(jail_pb2.Refusal.NO_FILE) from None
        except FileExistsError:
            raise RequestRefused(jail_pb2.Refusal.FILE_EXISTS) from None
        except OSError as error:
            text = "a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
            raise RequestRefused(jail_pb2.Refusal.FILE_REFUSED, message=text) from None
        except (Exception, KeyboardInterrupt) as error:  # a cell may have replaced what this calls
            text = f"{type(error).__name__}: {error}"
            raise RequestRefused(jail_pb2.Refusal.FILE_REFUSED, message=text) from None


def _changes_something(request: jail_pb2.Request) -> bool:
    body = request.WhichOneof("body")
    return body in _CHANGES or (body == "file" and request.file.operation in _FILE_CHANGES)


def _is_asked_for(request: jail_pb2.Request) -> bool:
    """Whether the client asked for the copy before it."""
    return request.WhichOneof("body") == "snapshot" or request.execute.atomic


def _is_note(request: jail_pb2.Request) -> bool:
    """Whether it says that something other than a cell may have changed files."""
    return request.WhichOneof("body") == "file" and request.file.operation == jail_pb2.FileRequest.NOTE


def _locations(payload: jail_pb2.Payload, descriptors: list[int]) -> list[Location]:
    content = Content.delivered(payload, descriptors)
    told = jail_pb2.Locations.FromString(content.only_part()).locations
    content.close()
    return [Location(each) for each in told]


@contextlib.contextmanager
def _lender(carry: jail_pb2.Carry, descriptors: list[int], from_copies: Borrow) -> Iterator[Borrow]:
    """The source of parts of a former state: a copy of this process, or another jail, whose socket is closed if
    nothing is borrowed."""
    if not carry.from_another:
        yield from_copies
        return
    with socket_of(descriptors.pop(0)) as line:
        yield lambda _step: line


def _is_undone(request: jail_pb2.Request, reply: jail_pb2.Reply) -> bool:
    """Whether the cell has failed, and will be undone."""
    return request.execute.atomic and not reply.executed.success and not reply.executed.unkept
