"""One runtime of a server, and its clients, each over any number of streams in turn.

Work whose duration the code in its jail determines runs on the runtime's own threads, apart from other runtimes'.
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
        """Whether the client does not keep up."""

    def forget(self, call: int) -> None:
        """Drops the rest of the content of this call."""

    def end(self, error: CenoteError | None) -> None:
        """Ends the stream, with a reason or as agreed."""

    def go_on(self) -> None:
        """The runtime takes calls again."""

    def close(self) -> None:
        """Sends nothing more; running calls go on without it. Closing twice is fine."""


class Client:
    """The state of a client that outlives a broken connection. On the server's loop only."""

    def __init__(self, id: str, tenant: str, hosted: HostedRuntime | AttachedRuntime) -> None:
        """hosted: the runtime as seen by its owner or by an author; an author detaches with the client."""
        self.id = id
        self.tenant = tenant
        self.hosted = hosted
        self.line: ClientStream | None = None
        self._cells: dict[str, Withdraw] = {}
        self._timer: TimerHandle | None = None

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """Sends a frame if the client is connected: essential frames are sent again when it reconnects."""
        if self.line is not None:
            self.line.tell(frame, content)
        elif content is not None:
            content.close()

    @property
    def full(self) -> bool:
        """Whether it is connected, and does not keep up."""
        return self.line is not None and self.line.full

    def forget(self, call: int) -> None:
        """Drops the rest of the content of this call."""
        if self.line is not None:
            self.line.forget(call)

    def leave_behind(self, key: str, withdraw: Withdraw) -> None:
        """Records a cell that goes on while its client is disconnected."""
        self._cells[key] = withdraw

    def claim(self, key: str) -> None:
        """The client has sent this call again, which may be one of the cells left behind."""
        self._cells.pop(key, None)

    def give_up(self) -> None:
        """Withdraws the cells that the client did not claim."""
        cells, self._cells = self._cells, {}
        for withdraw in reversed(cells.values()):  # the running cell last: its end would start the next one
            withdraw()

    def leave(self) -> None:
        """The client does not come back. The runtime goes on without it."""
        self.give_up()
        if isinstance(self.hosted, AttachedRuntime):
            self.hosted.close()

    def wait(self, later: Callable[[Callable[[], None]], TimerHandle], then: Callable[[], None]) -> None:
        """Restarts the wait for the client to reconnect, or to claim what it left behind."""
        self.stop_waiting()
        self._timer = later(then)

    def stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


T = TypeVar("T")


class SerialExecutor:
    """Runs work items one after the other, on a thread that exists while there are any. On the loop only.

    Not a pool: a few jails could soon occupy all threads of a shared one.
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
        """Work that has not begun is dropped."""
        with self._lock:
            left, self._waiting = self._waiting, deque()
        for _, future in left:
            future.cancel()

    def _begin(self) -> None:
        try:
            threading.Thread(target=self._run, name="cenote-lane", daemon=True).start()
        except RuntimeError:  # the machine has no room for another thread
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
            except BaseException as error:  # noqa: BLE001  (any error is reported to the caller)
                post(self._loop, _settle, future, partial(future.set_exception, error))
            else:
                post(self._loop, _settle, future, partial(future.set_result, result))


def _settle(future: Future[Any], settled: Callable[[], None]) -> None:
    """Completes the future, unless it was cancelled."""
    if not future.done():
        settled()


class ServedRuntime:
    """A served runtime. On the server's loop only, except for `soon`."""

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
        """patcher: applies patches, where that is possible. pool: for blocking work whose duration no
        jail can influence. grace: see ServerTimeouts.
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
        """Held while the state is stored at a client's request."""
        self._seen = loop.time()
        self._used = loop.time()
        for injection in hosted.noted.all():  # the runtime was taken over
            relay.offered(injection)
        relay.bind(self)
        if not hosted.running:  # a former relay held these for its jail, which has ended, too
            relay.ended()
        books.watch(hosted.ledger)

    # -- clients --

    @property
    def attached(self) -> int:
        """Number of clients that are connected, or were a moment ago."""
        return len(self._clients)

    @property
    def idle(self) -> float:
        """Seconds without any client; 0 while there are some."""
        return 0.0 if self._clients else self.loop.time() - self._seen

    @property
    def quiet(self) -> float:
        """Seconds since the last call or answer."""
        return self.loop.time() - self._used

    def used(self) -> None:
        """Notes that a client has called, or was answered."""
        self._used = self.loop.time()

    def client(self, client: str) -> Client | None:
        return self._clients.get(client)

    def only_client(self) -> Client | None:
        return next(iter(self._clients.values())) if len(self._clients) == 1 else None

    def attach(self, hello: runtime_pb2.Hello, tenant: str, line: ClientStream) -> tuple[Client, bool]:
        """The client, and whether it was known before; then its identity stays. An older connection of it is closed.

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
            client.line.close()  # now: its cells are recorded before the client claims them
        client.line = line
        client.wait(partial(self.loop.call_later, self._grace), client.give_up)
        return client, known

    def _seat(self, hello: runtime_pb2.Hello) -> HostedRuntime | AttachedRuntime:
        if not hello.author:
            return self.hosted
        return self.hosted.attach(hello.author, private=hello.private)

    def detach(self, client: Client, line: ClientStream, *, for_good: bool) -> None:
        """The connection has ended. for_good: the client said so; otherwise it may reconnect for a while."""
        if client.line is not line:
            return
        client.line = None
        if for_good:
            self.dismiss(client)
        else:
            client.wait(partial(self.loop.call_later, self._grace), partial(self.dismiss, client))

    def dismiss(self, client: Client) -> None:
        """The client does not come back: withdraws its running and waiting calls."""
        client.stop_waiting()
        client.leave()
        self.full_runs.end(client.id)
        if self._clients.get(client.id) is client:
            del self._clients[client.id]
            self._seen = self.loop.time()
        self.relay.gone(client)

    def close(self, error: CenoteError) -> None:
        """Ends all connections."""
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
        """A context: whether requests can be queued inside without blocking, since a filled jail exists."""
        return nullcontext(False) if self._threads else self.hosted.at_hand()

    @property
    def held(self) -> bool:
        """Whether the jail is reserved: meanwhile no call is begun on any thread."""
        return self._holders > 0

    def hold(self) -> None:
        self._holders += 1

    def let_go(self) -> None:
        """Ends a reservation: waiting calls go on, unless there is another one."""
        self._holders -= 1
        lines = [client.line for client in self._clients.values() if client.line is not None]
        for line in lines if not self.held else ():
            line.go_on()

    def soon(self, callback: Callable[..., None], *arguments: object) -> None:
        post(self.loop, callback, *arguments)

    def start(
        self, work: Callable[[], T], done: Callable[[Future[T]], None], *, at_once: bool = False
    ) -> None:
        """Runs work that may start the jail on a thread; meanwhile the loop does not touch the jail.

        The code in the jail determines how long that takes. at_once: do not wait for earlier work.
        """
        self._threads += 1

        def finished(future: Future[T]) -> None:
            self._threads -= 1
            if not future.cancelled():
                done(future)

        lane = self._questions if at_once else self._lane
        lane.carry_out(work).add_done_callback(finished)

    def apart(self, work: Callable[[], T]) -> Future[T]:
        """Runs work on a thread of the server, which all runtimes share. No jail can influence its duration."""
        return self.loop.run_in_executor(self._pool, work)

    def origin(self, tenant: str) -> ReferenceOrigin:
        """The origin of a value that is shared now."""
        return ReferenceOrigin(tenant=tenant, runtime=self.id, step=self.hosted.step)
