"""Carries out a jail's calls to functions, objects and sub-agents that live in this process.

Arguments are decoded safely, results are pickled for the jail as data, exceptions travel as a name and a text.
A plain function runs on a thread of its runtime's pool, an async one on the event loop that is awaiting the
cell, else on a loop of its own thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from cenote.runtime.inject.host_turns import MAX_WAITING, HostTurns, background_loop
from cenote.runtime.inject.pickling_unsafe import DataOnly, dump
from cenote.runtime.inject.references import ObjectReference, Sealed
from cenote.tracing import EXECUTE_TOOL, OPERATION, TOOL_NAME, TOOL_TYPE, TraceSpan, begun
from cenote_security.errors import CenoteError, MalformedValueError, UnsafeValueError, UsageError
from cenote_security.values.decoder import load
from cenote_security.values.node import Limits
from cenote_worker.execution.results import HostFailure
from cenote_worker.supervisor.channels.host_calls import (
    Failed,
    HostAnswer,
    HostCall,
    HostCallChannel,
    HostReference,
    bounded_failure,
)
from cenote_worker.transport.content import Content

ARGUMENTS = Limits(header_bytes=4 * 2**20, brackets=400_000, nodes=100_000, walk=2**22)
"""What the arguments of one call may cost to rebuild: a jail makes calls as fast as it can. Buffers are free."""

MOST_TOGETHER: Final = ARGUMENTS.header_bytes
"""Bytes of encoded arguments of calls that run at once. Rebuilt they take up to 75 times as much; arrays, long text
and bytes are not among them. A call that does not fit waits until others are over.
"""

SMALL: Final = 64 * 2**10
"""Arguments that never wait: those of all calls that may run at once take less than one call's."""


Target = Callable[..., Any]
"""Called with the decoded arguments; a method that takes a sealed value finds it as keyword `value`."""


HostResult = Content | HostFailure | Sealed | ObjectReference
"""What a call gives: a pickle, a failure, a value that passes unopened, or a reference for the jail to hold."""

Answer = Callable[[HostResult], None]
"""Called once, from any thread; takes the content over."""


_CALL: ContextVar[int] = ContextVar("cenote host call", default=0)


_SERVING: ContextVar[tuple[HostFunctionServer, asyncio.Task[Any] | None] | None] = ContextVar(
    "cenote host call of", default=None
)
"""Whose call is carried out here, and by which task; a thread has none."""


@contextmanager
def _call_of(cell: TraceSpan, asked: IncomingHostCall) -> Iterator[None]:
    name = f"{asked.target}.{asked.method}" if asked.method else asked.target
    with cell.current():
        span = begun(
            f"{EXECUTE_TOOL} {name}", {OPERATION: EXECUTE_TOOL, TOOL_NAME: name, TOOL_TYPE: "function"}
        )
    with span.whole():
        yield


def host_call() -> int:
    """The number that its jail gave to the call that is carried out here; 0 outside of one."""
    return _CALL.get()


class IncomingHostCall(Protocol):
    """A call as it came from a jail, near or far. id: among all that run. arguments: encoded [args, kwargs].

    origin: the number that the jail gave it, which it uses once.
    """

    @property
    def id(self) -> int: ...
    @property
    def origin(self) -> int: ...
    @property
    def target(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def arguments(self) -> Content: ...
    def close(self) -> None: ...


class HostFunctionServer:
    """The functions and objects that one runtime may call here. `targets` may grow while it works.

    targets: by (name, method); method is empty for functions. classes: what may be rebuilt in arguments.
    sent: classes that went to the jail by value. whole: the targets whose results go by value, not as data.
    """

    def __init__(
        self,
        targets: Mapping[tuple[str, str], Target],
        classes: Mapping[str, type],
        sent: Collection[type] = (),
        whole: Collection[tuple[str, str]] = (),
    ) -> None:
        self._targets = targets
        self._classes = classes
        self._sent = sent
        self._whole = whole
        self._turns = HostTurns()
        self._running: dict[int, Future[HostResult]] = {}
        self._rebuilt = 0
        """Bytes of the arguments of those; see MOST_TOGETHER."""
        self._large: deque[_Taken] = deque()
        """Calls that wait for others to be over, in their order."""
        self._lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that awaits a cell right now; set and cleared by the runtime."""
        self._cells: deque[TraceSpan] = deque()
        """Spans of the cells that are under way, which are carried out in their order."""

    def call(self, asked: IncomingHostCall, given: ObjectReference | None, answer: Answer) -> None:
        """Starts the call and takes it over. given: the value that comes along unopened. Never blocks."""
        target = self._targets.get((asked.target, asked.method))
        if target is None or self._turns.full or len(self._large) >= MAX_WAITING:
            asked.close()
            answer(_TOO_MANY if target is not None else HostFailure("AttributeError", _nowhere(asked)))
            return
        taken = _Taken(target, asked, given, answer, _weight(asked.arguments))
        with self._lock:
            if taken.weight > SMALL and (self._large or not self._fits(taken)):
                self._large.append(taken)
                return
            self._rebuilt += taken.weight
        self._begin(taken)

    def _fits(self, call: _Taken) -> bool:
        return not self._rebuilt or self._rebuilt + call.weight <= MOST_TOGETHER

    def _begin(self, call: _Taken) -> None:
        future = self._start(call.target, call.asked, call.given)
        with self._lock:
            self._running[call.asked.id] = future
        future.add_done_callback(partial(self._done, call))

    def _begin_waiting(self) -> None:
        """Those that fit by now."""
        while True:
            with self._lock:
                if not self._large or not self._fits(self._large[0]):
                    return
                call = self._large.popleft()
                self._rebuilt += call.weight
            self._begin(call)

    def cancel(self, call_id: int) -> None:
        """The jail does not wait for this call any more."""
        with self._lock:
            future = self._running.pop(call_id, None)
            waiting = [call for call in self._large if call.asked.id == call_id]
            for call in waiting:
                self._large.remove(call)
        if future is not None:
            future.cancel()
        for call in waiting:
            call.cancel()

    def ended(self) -> None:
        """The jail does not wait for any call any more."""
        with self._lock:
            running, self._running = list(self._running.values()), {}
            waiting = list(self._large)
            self._large.clear()
        for call in waiting:
            call.cancel()
        for future in running:
            future.cancel()

    def close(self) -> None:
        """No more calls. Functions that are running are left to finish."""
        self.ended()
        self._turns.close()

    def refuse_reentry(self) -> None:
        """Raises UsageError in a call of this very runtime, whose cell waits for it: both would wait for ever.

        A task that such a call has started and does not wait for may go on; it is served when the cell is over.
        """
        serving = _SERVING.get()
        if serving is not None and serving[0] is self and serving[1] in (None, _current_task()):
            raise UsageError(
                "a host function cannot use the runtime that called it, whose cell waits for the answer; "
                "return the value, or use another runtime"
            )

    def tracing(self, span: TraceSpan) -> Callable[[], None]:
        """Calls are part of this cell while it runs. What this returns is called once it is over."""
        self._cells.append(span)

        def over() -> None:
            with suppress(ValueError):
                self._cells.remove(span)

        return over

    def _traced(self, asked: IncomingHostCall) -> AbstractContextManager[object]:
        """Around a call: it is part of the cell that makes it, and what the function does is part of the call."""
        try:
            cell = self._cells[0]
        except IndexError:
            return nullcontext()
        return _call_of(cell, asked)

    # -- the call itself --

    def _start(
        self, target: Target, asked: IncomingHostCall, given: ObjectReference | None
    ) -> Future[HostResult]:
        if _is_async(target):
            loop = self.loop if self.loop is not None and self.loop.is_running() else background_loop()
            return self._turns.on_loop(loop, self._perform_async(target, asked, given))
        return self._turns.on_thread(partial(self._perform, target, asked, given))

    def _perform(self, target: Target, asked: IncomingHostCall, given: ObjectReference | None) -> HostResult:
        args, kwargs = self._arguments(asked, given)
        _CALL.set(asked.origin)
        _SERVING.set((self, None))
        with self._traced(asked):
            return self._result(asked, target(*args, **kwargs))

    async def _perform_async(
        self,
        target: Callable[..., Coroutine[Any, Any, Any]],
        asked: IncomingHostCall,
        given: ObjectReference | None,
    ) -> HostResult:
        args, kwargs = self._arguments(asked, given)
        _CALL.set(asked.origin)
        _SERVING.set((self, asyncio.current_task()))
        with self._traced(asked):
            return self._result(asked, await target(*args, **kwargs))

    def _result(self, asked: IncomingHostCall, result: object) -> HostResult:
        if isinstance(result, Sealed | ObjectReference):
            return result
        name = f"{asked.target}.{asked.method}()" if asked.method else f"{asked.target}()"
        instead = "call what gives plain data, an array or a frame"
        if (asked.target, asked.method) in self._whole:
            return dump(f"the result of {name}", result, instead).content
        live = {id(getattr(target, "__self__", target)) for target in list(self._targets.values())}
        return dump(f"the result of {name}", result, instead, DataOnly(self._sent, live)).content

    def _arguments(
        self, asked: IncomingHostCall, given: ObjectReference | None
    ) -> tuple[list[Any], dict[str, Any]]:
        parts = asked.arguments.unpack()
        if len(parts) != 2:
            raise MalformedValueError("the arguments of a host call are not an encoded value")
        try:
            decoded = load(bytes(parts[0]), parts[1], classes=self._classes, limits=ARGUMENTS)
        except UnsafeValueError as error:
            raise TypeError(
                f"the client takes no argument of class {error.class_name}; pass plain data"
            ) from None
        except MalformedValueError as error:
            text = f"the arguments are refused ({error}); pass much data as an array, a string or bytes"
            raise ValueError(text) from None
        match decoded:
            case [list() as args, dict() as kwargs] if all(isinstance(key, str) for key in kwargs):
                pass
            case _:
                raise MalformedValueError("the arguments of a host call are not a list and a dictionary")
        if given is not None:
            kwargs["value"] = Sealed(given)
        return args, kwargs

    def _done(self, call: _Taken, done: Future[HostResult]) -> None:
        call.asked.close()
        with self._lock:
            self._running.pop(call.asked.id, None)
            self._rebuilt -= call.weight
        try:
            self._answer(call, done)
        finally:
            self._begin_waiting()

    def _answer(self, call: _Taken, done: Future[HostResult]) -> None:
        if done.cancelled():
            call.answer(_CANCELLED)
            return
        error = done.exception()
        try:
            call.answer(done.result() if error is None else failure(error))
        except Exception:
            # Its cell would wait for ever. Where the line itself is gone, this one fails in the same way.
            call.answer(HostFailure("RuntimeError", f"the answer of {call.asked.target} could not be sent"))
            raise


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """A call that was taken over. weight: bytes of its arguments that are rebuilt, see MOST_TOGETHER."""

    target: Target
    asked: IncomingHostCall
    given: ObjectReference | None
    answer: Answer
    weight: int

    def cancel(self) -> None:
        """Before its turn."""
        self.asked.close()
        self.answer(_CANCELLED)


def _weight(arguments: Content) -> int:
    if arguments.size <= SMALL:
        return arguments.size
    try:
        return min(len(arguments.unpack()[0]), ARGUMENTS.header_bytes)
    except (CenoteError, IndexError):  # refused when it is its turn
        return 0


class LocalHostHandler:
    """The HostHandler of a jail on this machine, which knows its client's references by number."""

    def __init__(self, desk: HostFunctionServer) -> None:
        self._desk = desk
        self._references: dict[int, ObjectReference] = {}
        self._number = 0
        self._lock = threading.Lock()

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        try:
            given = self._given(call)
        except MalformedValueError as error:
            call.close()
            line.answer(call.id, failure(error))
            return
        self._desk.call(call, given, lambda result: line.answer(call.id, self._answer(result)))

    def cancel(self, call_id: int) -> None:
        self._desk.cancel(call_id)

    def release(self, reference: int) -> None:
        with self._lock:
            held = self._references.pop(reference, None)
        if held is not None:
            held.release()

    def ended(self) -> None:
        self._desk.ended()
        with self._lock:
            references, self._references = list(self._references.values()), {}
        for reference in references:
            reference.release()

    def _given(self, call: HostCall) -> ObjectReference | None:
        if call.opaque is not None:
            return ObjectReference.of_sealed(call.opaque.duplicate(), call.info)
        if not call.reference:
            return None
        with self._lock:
            held = self._references.get(call.reference)
        if held is None:
            raise MalformedValueError("a reference that this runtime was not given")
        return held

    def _answer(self, result: HostResult) -> HostAnswer:
        if isinstance(result, Sealed):
            try:
                return result.reference.content()
            except CenoteError as error:
                return failure(error)
        if isinstance(result, ObjectReference):
            with self._lock:
                self._number += 1
                self._references[self._number] = result
            return HostReference(self._number, result.info)
        return result


_CANCELLED = HostFailure("CancelledError", "the host call was cancelled")
_TOO_MANY = HostFailure("RuntimeError", f"over {MAX_WAITING} host calls wait for their turn")


def _nowhere(asked: IncomingHostCall) -> str:
    name = f"{asked.target}.{asked.method}" if asked.method else asked.target
    return f"the client offers no {name}"


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs on this thread
        return None


def _is_async(target: Target) -> bool:
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004  (an instance may have an async __call__)
    )


def failure(error: BaseException) -> HostFailure:
    """What a jail gets to see of an exception."""
    return bounded_failure(error, _shown)


def _shown(error: BaseException) -> Failed[BaseException]:
    name = type(error).__name__
    if isinstance(error, CenoteError):
        name = "ValueError" if isinstance(error, ValueError) else "RuntimeError"
    try:
        notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
        if isinstance(error, BaseExceptionGroup):
            return Failed(
                kind=name,
                text=str(error.message),
                members=tuple(error.exceptions),
                cause=error.__cause__,
                notes=notes,
            )
        # str(KeyError) is the repr of its argument, which the jail would quote a second time.
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    except Exception:  # noqa: BLE001  (a user's exception may fail to print)
        return Failed(kind=name, text="")
    builtin = next(filter(_is_plain_builtin, type(error).__mro__)).__name__
    base = "" if builtin == name else builtin
    return Failed(kind=name, text=text, cause=error.__cause__, notes=notes, base=base)


def _is_plain_builtin(kind: type) -> bool:
    """Whether it is a builtin class that can be made from a text alone."""
    return kind.__module__ == "builtins" and not issubclass(kind, UnicodeError)
