"""The sandboxes of an E2B door: data about each besides its runtime, its lifetime, and who may reach it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from cenote.doors.open_runtimes import Door, NotOpenError, OpenRuntime, OpenRuntimes
from cenote.runtime.core.file_programs import FileEvent
from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
from cenote.runtime.faces.files import AsyncFileWatch
from cenote.runtime.faces.process import AsyncProcess
from cenote_security.errors import CenoteError, NotAuthenticatedError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.jail.output import e2b_forms

DOOR: Final = "e2b"
"""The author of steps that E2B clients run."""

DEFAULT_TIMEOUT: Final = 300
MAX_TIMEOUT: Final = 24 * 3600
"""Seconds that a sandbox lives by default, and at most."""

SWEEP_EVERY: Final = 1.0
"""Seconds between two checks for sandboxes whose time is over."""

RETRY_AFTER: Final = 60.0
"""Seconds after which a sandbox that could not be ended is tried again."""

MAX_CONTEXTS: Final = 64
MAX_EVENTS: Final = 10_000
MAX_WAITING: Final = 32
"""Events for one client; those of a command have up to 64 KiB each."""

DEFAULT_CONTEXT: Final = "default"

HOME: Final = "/home/user"

_ENVIRONMENT: Final = {"HOME": HOME, "PWD": HOME, e2b_forms.VARIABLE: "1"}

State = Literal["running", "paused", "killed"]

log = logging.getLogger("cenote.e2b")


@dataclass(slots=True, kw_only=True)
class CodeContext:
    """A namespace of a sandbox. author: runs its cells. count: of cells so far."""

    id: str
    cwd: str
    author: AsyncPythonRuntime
    count: int = 0
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)


class SandboxGoneError(OSError):
    """Cuts the connection of a client whose sandbox was ended during its call: its SDK then asks for the reason."""


class CommandFollower:
    """Events of a command for one client, which may be slow, or disconnect."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[dict[str, object]] = asyncio.Queue(MAX_WAITING)
        self._has_left = False

    async def put(self, event: dict[str, object]) -> None:
        if not self._has_left:
            await self._events.put(event)

    async def get(self) -> dict[str, object]:
        return await self._events.get()

    def leave(self) -> None:
        """Drops the waiting events, and all later ones."""
        self._has_left = True
        while not self._events.empty():
            self._events.get_nowait()


@dataclass(slots=True, kw_only=True)
class SandboxCommand:
    """A running program of a sandbox: its command, and the followers of its output."""

    process: AsyncProcess
    config: Mapping[str, object]
    tag: str | None
    is_terminal: bool
    followers: set[CommandFollower] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class FileWatcher:
    """Changes below a folder, stored until they are read; of too many, the first."""

    watch: AsyncFileWatch
    events: list[FileEvent] = field(default_factory=list)
    reading: asyncio.Task[None] | None = None

    async def read(self) -> None:
        with suppress(CenoteError):  # the folder, or the sandbox, is gone: nothing changes there any more
            async for event in self.watch:
                if len(self.events) < MAX_EVENTS:
                    self.events.append(event)


@dataclass(slots=True, kw_only=True, eq=False)
class E2bSandbox:
    """id: also the name of its runtime. secret: for access to its own ports. ends: on the monotonic clock."""

    id: str
    secret: str
    door: Door
    template: str
    metadata: Mapping[str, str]
    policy: SandboxPolicy
    started: datetime
    ends: float = 0.0
    end_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    pauses: bool = False
    state: State = "running"
    is_ending: bool = False
    contexts: dict[str, CodeContext] = field(default_factory=dict)
    commands: dict[int, SandboxCommand] = field(default_factory=dict)
    following: set[asyncio.Task[None]] = field(default_factory=set)
    watchers: dict[str, FileWatcher] = field(default_factory=dict)

    def lives(self, seconds: float) -> None:
        """Sets the lifetime, from now on. Raises UsageError."""
        if not 0 <= seconds <= MAX_TIMEOUT:
            raise UsageError(f"a sandbox lives for up to {MAX_TIMEOUT} seconds, not {seconds:g}")
        self.ends = time.monotonic() + seconds
        self.end_at = datetime.now(UTC) + timedelta(seconds=seconds)

    async def runtime(self) -> OpenRuntime:
        return await self.door.get(self.id)

    async def context(self, wanted: str | None) -> CodeContext:
        """The context of that id, or the default one. Raises NotOpenError."""
        name = wanted or DEFAULT_CONTEXT
        if name not in self.contexts:
            if name != DEFAULT_CONTEXT:
                raise NoSuchPartError("context", name, tuple(self.contexts))
            author = (await self.runtime()).author
            self.contexts[name] = CodeContext(id=name, cwd=HOME, author=author)
        return self.contexts[name]

    async def new_context(self, cwd: str) -> CodeContext:
        """A namespace of its own in the same jail. Raises UsageError."""
        if len(self.contexts) >= MAX_CONTEXTS:
            raise UsageError(f"a sandbox has up to {MAX_CONTEXTS} contexts: remove one")
        name = secrets.token_hex(8)
        author = await (await self.runtime()).owner.attach(f"{DOOR} {name}", scope="private")
        made = CodeContext(id=name, cwd=cwd, author=author)
        try:
            await self._go_to(made)
        except UsageError:
            await author.close()
            raise
        self.contexts[name] = made
        return made

    async def restart(self, context: CodeContext) -> None:
        """Clears its names, and returns it to its folder."""
        await context.author.execute(_FORGET)
        await self._go_to(context)
        context.count = 0

    async def remove(self, context: CodeContext) -> None:
        await self.restart(context)
        del self.contexts[context.id]
        if context.id != DEFAULT_CONTEXT:
            await context.author.close()

    async def _go_to(self, context: CodeContext) -> None:
        gone = await context.author.execute(f"__import__('os').chdir({context.cwd!r})")
        if gone.error is not None:
            raise UsageError(f"cannot work in {context.cwd!r}: {gone.error.message}")


_FORGET: Final = (
    "for _name in [*globals()]:\n"
    "    if not _name.startswith('__'):\n"
    "        globals().pop(_name, None)\n"
    "globals().pop('_name', None)\n"
)


class NoSuchPartError(NotOpenError):
    """A sandbox has no part of that name. kind: such as `context`."""

    def __init__(self, kind: str, name: str, names: Sequence[str]) -> None:
        super().__init__(name, names)
        self.kind = kind

    def __str__(self) -> str:
        return f"the sandbox has no {self.kind} {self.name!r:.120}; it has {', '.join(self.names) or 'none'}"


class E2bSandboxes:
    """All sandboxes of a server, by id. A sandbox of another caller is not found."""

    def __init__(self, policy: SandboxPolicy) -> None:
        """policy: of each sandbox, except for its environment variables."""
        self._policy = policy
        self._all: dict[str, E2bSandbox] = {}
        self._owners: dict[str, OpenRuntimes] = {}
        self._snapshots: dict[str, tuple[OpenRuntimes, Door]] = {}

    async def create(
        self,
        runtimes: OpenRuntimes,
        *,
        template: str,
        timeout: float,
        metadata: Mapping[str, str],
        env: Mapping[str, str],
        pauses: bool,
    ) -> E2bSandbox:
        """A new one; if the template is the id of a snapshot, with its state. pauses: on a platform, its states are
        stored. Raises UsageError."""
        door = runtimes.through(DOOR)
        policy = replace(self._policy, env={**_ENVIRONMENT, **self._policy.env, **env})
        made = self._new(runtimes, template=template, metadata=metadata, policy=policy, pauses=pauses)
        made.lives(timeout)
        if template in self._snapshots and self._snapshots[template][0] is runtimes:
            await door.fork(template, made.id, partial=True)
        else:
            await door.open(made.id, policy, stored=pauses)
        self._add(made, runtimes)
        await made.context(None)
        return made

    def find(self, identity: str, runtimes: OpenRuntimes) -> E2bSandbox:
        """One of this caller's. Raises NotOpenError."""
        found = self._all.get(identity)
        if found is None or self._owners[identity] is not runtimes:
            raise NotOpenError(identity, ())
        return found

    def reach(self, identity: str, secret: str) -> E2bSandbox:
        """The sandbox with this secret for its ports. Raises NotOpenError, NotAuthenticatedError."""
        found = self._all.get(identity)
        if found is None:
            raise NotOpenError(identity, ())
        if not hmac.compare_digest(found.secret.encode(), secret.encode()):
            raise NotAuthenticatedError("the access token is not the one of this sandbox")
        if found.state == "paused":
            raise NotOpenError(identity, ())
        return found

    def of(self, runtimes: OpenRuntimes) -> list[E2bSandbox]:
        """This caller's, the oldest first."""
        return [each for each in self._all.values() if self._owners[each.id] is runtimes]

    async def fork(self, parent: E2bSandbox, count: int, timeout: float) -> list[E2bSandbox]:
        """Branches of it, with only its default context."""
        runtimes, made = self._owners[parent.id], list[E2bSandbox]()
        for _ in range(count):
            child = self._new(
                runtimes,
                template=parent.template,
                metadata=parent.metadata,
                policy=parent.policy,
                pauses=parent.pauses,
            )
            child.lives(timeout)
            await parent.door.fork(parent.id, child.id, partial=True)
            self._add(child, runtimes)
            made.append(child)
        return made

    async def snapshot(self, sandbox: E2bSandbox) -> str:
        """An id from which new sandboxes can begin: a branch that is set aside."""
        name = f"snapshot-{secrets.token_hex(8)}"
        await sandbox.door.fork(sandbox.id, name, partial=True)
        self._snapshots[name] = self._owners[sandbox.id], sandbox.door
        return name

    def snapshots(self, runtimes: OpenRuntimes) -> list[str]:
        return [name for name, (whose, _) in self._snapshots.items() if whose is runtimes]

    async def forget_snapshot(self, name: str, runtimes: OpenRuntimes) -> None:
        """Raises NotOpenError."""
        found = self._snapshots.get(name)
        if found is None or found[0] is not runtimes:
            raise NotOpenError(name, ())
        del self._snapshots[name]
        await found[1].end(name)

    async def pause(self, sandbox: E2bSandbox) -> None:
        """Its state is stored and its jail ends, until it is resumed. Raises UsageError without a store."""
        try:
            await (await sandbox.runtime()).owner.hibernate()
        except UsageError as error:
            raise UsageError(
                f"the sandbox cannot be paused: {error}. States are stored by `cenote serve --store DIR` and "
                "`--durable`; on a platform, those of sandboxes with the lifecycle `on_timeout: pause`"
            ) from None
        sandbox.state = "paused"

    async def kill(self, sandbox: E2bSandbox) -> None:
        """Interrupts what it does, and ends it. If that fails, the sandbox still exists."""
        sandbox.state = "killed"
        self._all.pop(sandbox.id, None)
        owner = self._owners.pop(sandbox.id, None)
        try:
            await self._end(sandbox)
        except NotOpenError:
            raise
        except CenoteError:
            sandbox.state = "running"
            if owner is not None:
                self._add(sandbox, owner)
            raise

    async def _end(self, sandbox: E2bSandbox) -> None:
        for watcher in sandbox.watchers.values():
            watcher.watch.close()
        for context in sandbox.contexts.values():
            if context.id != DEFAULT_CONTEXT:
                await context.author.close()
        await sandbox.door.end(sandbox.id)

    async def close(self) -> None:
        """Ends all, snapshots too: only this server knows of them."""
        for sandbox in list(self._all.values()):
            try:
                await self.kill(sandbox)
            except CenoteError as error:
                log.warning("sandbox %s could not be ended: %s", sandbox.id, error)
        for name, (runtimes, _) in list(self._snapshots.items()):
            try:
                await self.forget_snapshot(name, runtimes)
            except CenoteError as error:
                log.warning("snapshot %s could not be ended: %s", name, error)

    async def sweep(self) -> None:
        """Ends sandboxes whose time is over, for as long as the server runs. None waits for another."""
        async with asyncio.TaskGroup() as ending:
            while True:
                await asyncio.sleep(SWEEP_EVERY)
                now = time.monotonic()
                for sandbox in list(self._all.values()):
                    if sandbox.state == "running" and sandbox.ends < now and not sandbox.is_ending:
                        sandbox.is_ending = True
                        ending.create_task(self._end_in_time(sandbox))

    async def _end_in_time(self, sandbox: E2bSandbox) -> None:
        """Pauses it, if that is wanted and possible, else ends it. What cannot be ended now is tried again."""
        try:
            if sandbox.pauses:
                try:
                    await self.pause(sandbox)
                    return
                except CenoteError as error:
                    log.warning("sandbox %s cannot be paused, and is ended: %s", sandbox.id, error)
            await self.kill(sandbox)
        except CenoteError as error:
            log.warning("sandbox %s is over and could not be ended: %s", sandbox.id, error)
            sandbox.ends = time.monotonic() + RETRY_AFTER
        finally:
            sandbox.is_ending = False

    def _new(
        self,
        runtimes: OpenRuntimes,
        *,
        template: str,
        metadata: Mapping[str, str],
        policy: SandboxPolicy,
        pauses: bool,
    ) -> E2bSandbox:
        return E2bSandbox(
            id=f"i{secrets.token_hex(10)}",
            secret=secrets.token_urlsafe(24),
            door=runtimes.through(DOOR),
            template=template,
            metadata=dict(metadata),
            policy=policy,
            started=datetime.now(UTC),
            pauses=pauses,
        )

    def _add(self, sandbox: E2bSandbox, runtimes: OpenRuntimes) -> None:
        self._all[sandbox.id] = sandbox
        self._owners[sandbox.id] = runtimes
