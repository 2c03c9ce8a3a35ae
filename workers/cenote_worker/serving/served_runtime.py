"""One runtime of a server, and its clients, over however many streams they come.

What takes as long as the code in its jail likes is done on threads of its own, apart from that of other runtimes.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol, TypeVar

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import CenoteError, UnavailableError
from cenote_worker.runtime.attachment import AttachedRuntime
from cenote_worker.runtime.patch_jobs import Patcher
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.scratch_runtime import FullRuns, Rehearsals
from cenote_worker.serving.limits import MAX_CLIENTS
from cenote_worker.serving.listeners import post
from cenote_worker.serving.references import ReferenceOrigin, SharedValueStore
from cenote_worker.serving.relay import HostRelay
from cenote_worker.supervisor.requests import Withdraw
from cenote_worker.tenancy.usage import RuntimeUsage
from cenote_worker.transport.content import Content


class ClientStream(Protocol):
    """A client's stream, as far as others use it."""

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """Sends a frame. Takes the content over."""

    @property
    def full(self) -> bool:
        """The client does not keep up."""

    def forget(self, call: int) -> None:
        """Nobody waits for what is left of the content of this call."""

    def end(self, error: CenoteError | None) -> None:
        """Ends the stream, with a reason or as agreed."""

    def go_on(self) -> None:
        """The runtime takes calls again."""

    def close(self) -> None:
        """Nothing more is told; what runs is left behind. Closing twice is fine."""


class Client:
    """What of a client stays while its line is broken. On the server's loop only."""

    def __init__(self, id: str, tenant: str, hosted: HostedRuntime | AttachedRuntime) -> None:
        """hosted: the runtime, as its owner has it or an author; an author leaves with the client."""
        self.id = id
        self.tenant = tenant
        self.hosted = hosted
        self.line: ClientStream | None = None
        self._cells: dict[str, Withdraw] = {}
        self._timer: TimerHandle | None = None

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """Sends a frame if the client has a line: what it must not miss is sent again when it returns."""
        if self.line is not None:
            self.line.tell(frame, content)
        elif content is not None:
            content.close()

    @property
    def full(self) -> bool:
        """It has a line, and does not keep up there."""
        return self.line is not None and self.line.full

    def forget(self, call: int) -> None:
        """Nobody waits for what is left of the content of this call."""
        if self.line is not None:
            self.line.forget(call)

    def leave_behind(self, key: str, withdraw: Withdraw) -> None:
        """A cell that goes on while its client has no line."""
        self._cells[key] = withdraw

    def claim(self, key: str) -> None:
        """The client asks for this cell again, or for anything else."""
        self._cells.pop(key, None)

    def give_up(self) -> None:
        """Takes back the cells that nobody asked for again."""
        cells, self._cells = self._cells, {}
        for withdraw in reversed(cells.values()):  # else the end of what runs would let the next one begin
            withdraw()

    def leave(self) -> None:
        """It does not come back. The runtime goes on without it."""
        self.give_up()
        if isinstance(self.hosted, AttachedRuntime):
            self.hosted.close()

    def wait(self, later: Callable[[Callable[[], None]], TimerHandle], then: Callable[[], None]) -> None:
        """Waits anew for the client to come, or to ask for what it left behind."""
        self.stop_waiting()
        self._timer = later(then)

    def stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


T = TypeVar("T")


class SerialExecutor:
    """One piece after the other, on a thread that is there as long as there is any. On the loop only.

    Not a pool: threads that jails share are soon all in the hands of a few of them.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._running = False

    def carry_out(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = self._loop.create_future()
        with self._lock:
            self._waiting.append((work, future))
            begins, self._running = not self._running, True
        if begins:
            self._begin()
        return future

    def close(self) -> None:
        """What has not begun is not carried out."""
        with self._lock:
            left, self._waiting = self._waiting, deque()
        for _, future in left:
            future.cancel()

    def _begin(self) -> None:
        try:
            threading.Thread(target=self._run, name="cenote-lane", daemon=True).start()
        except RuntimeError:  # the machine has no room for one more thread
            with self._lock:
                (_, future), self._running = self._waiting.pop(), False
            future.set_exception(UnavailableError("this machine has no thread left; nothing ran, try again"))

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
                work, future = self._waiting.popleft()
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  (whatever it is: whoever waits is told)
                post(self._loop, _settle, future, partial(future.set_exception, error))
            else:
                post(self._loop, _settle, future, partial(future.set_result, result))


def _settle(future: Future[Any], settled: Callable[[], None]) -> None:
    """Nobody may wait any more."""
    if not future.done():
        settled()


class ServedRuntime:
    """On the server's loop only, but for `soon`."""

    def __init__(
        self,
        id: str,
        hosted: HostedRuntime,
        relay: HostRelay,
        references: SharedValueStore,
        books: RuntimeUsage,
        patcher: Patcher | None = None,
        *,
        loop: AbstractEventLoop,
        pool: Executor,
        grace: float,
    ) -> None:
        """patcher: applies patches, where that can be done. pool: for what may block, and no jail
        can make last. grace: see ServerTimeouts.
        """
        self.id = id
        self.hosted = hosted
        self.relay = relay
        self.references = references
        self.books = books
        self.patcher = patcher
        self.rehearsals = Rehearsals(hosted)
        self.full_runs = FullRuns()
        self.loop = loop
        self._pool = pool
        self._lane, self._questions = SerialExecutor(loop), SerialExecutor(loop)
        self._grace = grace
        self._clients: dict[str, Client] = {}
        self._threads = 0
        self._holders = 0
        self.storing = threading.Lock()
        """Whoever has it stores the state because a client has said so."""
        self._seen = loop.time()
        self._used = loop.time()
        for injection in hosted.noted.all():  # of a runtime that was taken over
            relay.offered(injection)
        relay.bind(self)
        if not hosted.running:  # what a former relay held for its jail, which has ended too
            relay.ended()
        books.watch(hosted.ledger)

    # -- clients --

    @property
    def attached(self) -> int:
        """Clients that have a line, or had one a moment ago."""
        return len(self._clients)

    @property
    def idle(self) -> float:
        """Seconds without any; 0 while there are some."""
        return 0.0 if self._clients else self.loop.time() - self._seen

    @property
    def quiet(self) -> float:
        """Seconds without any call, or the answer to one."""
        return self.loop.time() - self._used

    def used(self) -> None:
        """A client has called, or was answered."""
        self._used = self.loop.time()

    def client(self, client: str) -> Client | None:
        return self._clients.get(client)

    def only_client(self) -> Client | None:
        return next(iter(self._clients.values())) if len(self._clients) == 1 else None

    def attach(self, hello: runtime_pb2.Hello, tenant: str, line: ClientStream) -> tuple[Client, bool]:
        """The client, and whether it is known from before; then it is who it was. A line that it still has ends.

        Raises UnavailableError with too many clients.
        """
        id = hello.client
        client = self._clients.get(id)
        known = client is not None
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                raise UnavailableError(
                    f"this runtime has {MAX_CLIENTS} clients, which is the most; try again when one has left"
                )
            client = self._clients[id] = Client(id, tenant, self._seat(hello))
        if client.line is not None:
            client.line.end(UnavailableError("this client has come back on another line"))
            client.line.close()  # now: what it leaves behind is there before it is asked for again
        client.line = line
        client.wait(partial(self.loop.call_later, self._grace), client.give_up)
        return client, known

    def _seat(self, hello: runtime_pb2.Hello) -> HostedRuntime | AttachedRuntime:
        if not hello.author:
            return self.hosted
        return self.hosted.attach(hello.author, private=hello.private)

    def detach(self, client: Client, line: ClientStream, *, for_good: bool) -> None:
        """The line has ended. for_good: it said so; else the client may come back for a while."""
        if client.line is not line:
            return
        client.line = None
        if for_good:
            self.dismiss(client)
        else:
            client.wait(partial(self.loop.call_later, self._grace), partial(self.dismiss, client))

    def dismiss(self, client: Client) -> None:
        """The client does not come back: what it has under way is taken back."""
        client.stop_waiting()
        client.leave()
        self.full_runs.end(client.id)
        if self._clients.get(client.id) is client:
            del self._clients[client.id]
            self._seen = self.loop.time()
        self.relay.gone(client)

    def close(self, error: CenoteError) -> None:
        """Ends all lines."""
        for client in list(self._clients.values()):
            if client.line is not None:
                client.line.end(error)
            self.dismiss(client)
        self._lane.close()
        self._questions.close()
        self.rehearsals.end()
        self.full_runs.end()
        self.relay.close()

    # -- work --

    @property
    def step(self) -> int:
        return self.hosted.step

    def at_hand(self) -> AbstractContextManager[bool]:
        """Whether requests can be queued inside without blocking: there is a jail, and nobody fills one just now."""
        return nullcontext(False) if self._threads else self.hosted.at_hand()

    @property
    def held(self) -> bool:
        """Whether somebody has the jail to themselves: no call is begun meanwhile, on no thread."""
        return self._holders > 0

    def hold(self) -> None:
        self._holders += 1

    def let_go(self) -> None:
        """What has waited goes on, unless others hold it too."""
        self._holders -= 1
        lines = [client.line for client in self._clients.values() if client.line is not None]
        for line in lines if not self.held else ():
            line.go_on()

    def soon(self, callback: Callable[..., None], *arguments: object) -> None:
        post(self.loop, callback, *arguments)

    def start(
        self, work: Callable[[], T], done: Callable[[Future[T]], None], *, at_once: bool = False
    ) -> None:
        """Does something on a thread that may start the jail; nobody else touches it from the loop meanwhile.

        How long that takes is in the hands of the code in the jail. at_once: not behind what came before.
        """
        self._threads += 1

        def finished(future: Future[T]) -> None:
            self._threads -= 1
            if not future.cancelled():
                done(future)

        lane = self._questions if at_once else self._lane
        lane.carry_out(work).add_done_callback(finished)

    def apart(self, work: Callable[[], T]) -> Future[T]:
        """Does something on a thread of the server's, which all runtimes share, that no jail can make last."""
        return self.loop.run_in_executor(self._pool, work)

    def origin(self, tenant: str) -> ReferenceOrigin:
        """Of a value that is shared now."""
        return ReferenceOrigin(tenant=tenant, runtime=self.id, step=self.hosted.step)
