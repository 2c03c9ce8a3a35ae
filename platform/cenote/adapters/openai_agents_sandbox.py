"""OpenAI Agents SDK: jails as the sandboxes of its agents.

from cenote.adapters.openai_agents_sandbox import CenoteSandboxClient
run_config = RunConfig(sandbox=SandboxRunConfig(client=CenoteSandboxClient()))
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from cenote.adapters.agent_namespace import AnyRuntime, awaiting
from cenote.runtime import AsyncProcess, AsyncPythonRuntime
from cenote_security.errors import CenoteError, UnknownFileError
from cenote_security.extras import importing

with importing("the adapter for the OpenAI Agents SDK", "openai_agents"):
    from agents.sandbox.errors import (
        ConfigurationError,
        ErrorCode,
        ExecTimeoutError,
        ExecTransportError,
        InvalidManifestPathError,
        PtySessionNotFoundError,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
        WorkspaceWriteTypeError,
    )
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
    from agents.sandbox.session.dependencies import Dependencies
    from agents.sandbox.session.manager import Instrumentation
    from agents.sandbox.session.pty_output import collect_pty_output
    from agents.sandbox.session.pty_types import (
        PTY_PROCESSES_MAX,
        PtyExecUpdate,
        allocate_pty_process_id,
        clamp_pty_yield_time_ms,
        resolve_pty_write_yield_time_ms,
    )
    from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
    from agents.sandbox.session.sandbox_session import SandboxSession
    from agents.sandbox.session.sandbox_session_state import SandboxSessionState
    from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
    from agents.sandbox.types import ExecResult, User
    from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes

BACKEND: Final = "cenote"
_TERMINAL: Final = (24, 80)
_IN_MEMORY: Final = 64 << 20  # bytes of an archive, before it goes to a file
_PIECE: Final = 256 << 10


class CenoteSandboxClientOptions(BaseSandboxClientOptions):
    """Of one session. timeout: seconds that a command may run where the caller names none."""

    type: Literal["cenote"] = "cenote"
    timeout: float | None = None


class CenoteSandboxSessionState(SandboxSessionState):
    """What a session is resumed from. The policy is the client's, so that no stored state changes it."""

    type: Literal["cenote"] = "cenote"
    working_dir: str
    timeout: float | None = None


@dataclass
class _Running:
    """A program whose output is read as it comes."""

    process: AsyncProcess
    tty: bool
    last_used: float
    chunks: deque[bytes] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    reader: asyncio.Task[None] | None = None
    exit_code: int | None = None
    done: bool = False


class CenoteSandboxSession(BaseSandboxSession):
    """A workspace in the jail of a runtime, beside its namespace."""

    state: CenoteSandboxSessionState

    def __init__(self, state: CenoteSandboxSessionState, runtime: AsyncPythonRuntime, *, used: bool) -> None:
        """used: whether a session of this workspace was there before."""
        self.state = state
        self.runtime = runtime
        self._running: dict[int, _Running] = {}
        self._set_start_state_preserved(used)

    # -- commands --

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        if user is not None:
            name = user.name if isinstance(user, User) else user
            raise _refused(f"programs of a jail run as its one user, never as {name!r}", "exec")
        return list(super()._prepare_exec_command(*command, shell=shell, user=None))

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        line = [str(part) for part in command]
        timeout = self.state.timeout if timeout is None else timeout
        if timeout is not None and timeout <= 0:
            raise ExecTimeoutError(command=line, timeout_s=timeout)
        try:
            ended = await self.runtime.run(
                line, cwd=self.state.manifest.root, env=await self._environment(), timeout=timeout
            )
        except CenoteError as error:
            raise ExecTransportError(command=line, message=str(error), cause=error) from error
        if ended.timed_out:
            raise ExecTimeoutError(command=line, timeout_s=timeout)
        if ended.killed_by in ("jail", "rollback", "worker"):
            raise ExecTransportError(
                command=line, message=f"the command was ended with its environment: {ended.killed_by}"
            )
        notes = b""
        if ended.omitted:
            notes = f"\n[{ended.omitted:,} bytes of output are left out, from its middle]\n".encode()
        if ended.killed_by == "memory":
            notes += b"\n[ended: the sandbox came to its limit of memory]\n"
        return ExecResult(
            stdout=ended.stdout_bytes,
            stderr=ended.stderr_bytes + notes,
            exit_code=_exit_code(ended.exit_code, ended.killed_by),
        )

    async def _environment(self) -> dict[str, str]:
        return dict(await self.state.manifest.environment.resolve())

    async def running(self) -> bool:
        try:
            await self.runtime.status()
        except CenoteError:
            return False
        return True

    # -- programs that go on --

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        line = self._prepare_exec_command(*command, shell=shell, user=user)
        await self._make_room()
        try:
            process = await self.runtime.spawn(
                line,
                cwd=self.state.manifest.root,
                env=await self._environment(),
                timeout=timeout,
                pty=_TERMINAL if tty else False,
            )
        except CenoteError as error:
            raise ExecTransportError(command=line, message=str(error), cause=error) from error
        entry = _Running(process, tty, time.monotonic())
        entry.reader = asyncio.create_task(_read_out(entry))
        number = allocate_pty_process_id(set(self._running))
        self._running[number] = entry
        wait = clamp_pty_yield_time_ms(10_000 if yield_time_s is None else int(yield_time_s * 1000))
        return await self._update(number, entry, wait, max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        entry = self._running.get(session_id)
        if entry is None:
            raise PtySessionNotFoundError(session_id=session_id)
        if chars:
            if not entry.tty:
                raise RuntimeError("stdin is not available for this process")  # a text that the SDK looks for
            try:
                await entry.process.send_input(chars)
            except CenoteError:
                await entry.process.wait()  # it has ended; what it was sent is lost, as at any terminal
        wait = resolve_pty_write_yield_time_ms(
            yield_time_ms=250 if yield_time_s is None else int(yield_time_s * 1000), input_empty=not chars
        )
        entry.last_used = time.monotonic()
        return await self._update(session_id, entry, wait, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        while self._running:
            await _end(self._running.popitem()[1])

    async def _make_room(self) -> None:
        """The SDK's own backends end the program that was used least lately, too."""
        while len(self._running) >= PTY_PROCESSES_MAX:
            oldest = min(self._running, key=lambda number: self._running[number].last_used)
            await _end(self._running.pop(oldest))

    async def _update(
        self, number: int, entry: _Running, wait: int, max_output_tokens: int | None
    ) -> PtyExecUpdate:
        output, tokens, closed = await collect_pty_output(
            output_chunks=entry.chunks,
            output_lock=entry.lock,
            output_notify=entry.news,
            is_done=lambda: entry.done,
            yield_time_ms=wait,
            max_output_tokens=max_output_tokens,
        )
        if closed:
            self._running.pop(number, None)
        return PtyExecUpdate(
            process_id=None if closed else number,
            output=output,
            exit_code=entry.exit_code if closed else None,
            original_token_count=tokens,
        )

    # -- files --

    async def _prepare_backend_workspace(self) -> None:
        await self.runtime.files.mkdir(self.state.manifest.root, exist_ok=True)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        """A path whose links lead nowhere else. The jail is the wall; this is only the scope of the SDK's tools."""
        normal = self.normalize_path(path, for_write=for_write)
        grants = [grant.path for grant in self.state.manifest.extra_path_grants]
        found = await self._exec_internal(
            "realpath", "-mz", "--", str(normal), self.state.manifest.root, *grants
        )
        target, *roots = found.stdout.decode(errors="surrogateescape").split("\0")[:-1] or [""]
        if not any(PurePosixPath(target).is_relative_to(root) for root in roots):
            reason: Literal["absolute", "escape_root"] = (
                "absolute" if PurePosixPath(str(path)).is_absolute() else "escape_root"
            )
            raise InvalidManifestPathError(rel=str(path), reason=reason, context={"resolved_path": target})
        return Path(normal)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        return await self._opened(path, user, None)

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return bytes((await self._opened(path, None, max_bytes)).read())

    async def _opened(self, path: Path, user: str | User | None, most: int | None) -> Any:
        _check_user(user, "read")
        place = await self._validate_path_access(path)
        try:
            if most is not None:
                return io.BytesIO(await self.runtime.files.read(str(place), 0, most))
            return await _gathered(self.runtime.files.read_stream(str(place)))
        except UnknownFileError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except CenoteError as error:
            raise WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        _check_user(user, "write")
        place = await self._validate_path_access(path, for_write=True)
        first = await asyncio.to_thread(_piece, data, path)
        try:
            await self.runtime.files.write_stream(str(place), _pieces(data, path, first), overwrite=True)
        except CenoteError as error:
            raise WorkspaceArchiveWriteError(path=path, cause=error) from error

    # -- the workspace as an archive --

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        left_out = " ".join(shell_tar_exclude_args(self._persist_workspace_skip_relpaths()))
        try:
            process = await self.runtime.spawn(f"exec tar {left_out} -cf - .", cwd=str(root))
            async with process:
                archive = await _gathered(process.stdout)
                ended = await process.wait()
        except CenoteError as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error
        if not ended.success:
            archive.close()
            raise WorkspaceArchiveReadError(
                path=root, context={"reason": "tar_failed", "output": ended.stderr}
            )
        return archive

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        payload = data.read()
        if not isinstance(payload, bytes | bytearray):
            raise WorkspaceWriteTypeError(path=root, actual_type=type(payload).__name__)
        try:
            validate_tar_bytes(bytes(payload), allow_external_symlink_targets=False)
        except UnsafeTarMemberError as error:
            raise WorkspaceArchiveWriteError(
                path=root, context={"reason": "unsafe_or_invalid_tar", "member": error.member}, cause=error
            ) from error
        try:
            ended = await self.runtime.run(
                ["tar", "--no-same-owner", "-xf", "-", "-C", str(root)], stdin=bytes(payload)
            )
        except CenoteError as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error
        if not ended.success:
            raise WorkspaceArchiveWriteError(
                path=root, context={"reason": "tar_extract_failed", "output": ended.stderr}
            )

    async def _can_reuse_restorable_snapshot_workspace(self) -> bool:
        # A jail that lives has what the archive has, and what cells have written since.
        return bool(self._can_reuse_preserved_workspace_on_resume()) and await self.running()

    def _should_compute_snapshot_fingerprint_on_persist(self) -> bool:
        return False  # for the question above, which needs none here

    async def _validate_manifest_application(
        self, *, only_ephemeral: bool = False, manifest: Any = None, session_running: bool | None = None
    ) -> None:
        _check_manifest(manifest or self.state.manifest)
        await super()._validate_manifest_application(
            only_ephemeral=only_ephemeral, manifest=manifest, session_running=session_running
        )

    async def provision_manifest_accounts(self) -> None:
        _check_manifest(self.state.manifest)


class CenoteSandboxClient(BaseSandboxClient[Any]):
    """Sessions in jails: shell, files and terminals beside a Python namespace, which `PythonCapability()` offers.

    runtime: of the caller, who closes it: all sessions work in its jail, and find there what the last one has left.
    Without one, each session has a jail of its own, made with `options` of PythonRuntime (`sandbox=`, `address=`),
    and ends with it; one that is resumed then has the files of its snapshot and a new namespace.

    What a jail has not is refused with ConfigurationError when a session is made: users and groups, mounts of remote
    storage, paths of this machine, a root outside of the working directory.
    """

    backend_id = BACKEND
    supports_default_options = True

    def __init__(
        self,
        runtime: AnyRuntime | None = None,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
        **options: Any,
    ) -> None:
        self._shared = None if runtime is None else awaiting(runtime, options)[0]
        self._made_with = options
        self._own: dict[uuid.UUID, AsyncPythonRuntime] = {}
        self._instrumentation = Instrumentation() if instrumentation is None else instrumentation
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: CenoteSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """Starts a jail. Raises ConfigurationError for what no jail has, CenoteError where it cannot start."""
        if options is not None and not isinstance(options, CenoteSandboxClientOptions):
            raise _refused(f"these are options of another client: {type(options).__name__}", "start")
        manifest = Manifest() if manifest is None else manifest
        _check_manifest(manifest)
        self._validate_manifest_for_create(manifest)
        number = uuid.uuid4()
        runtime, working_dir = await self._started(number)
        try:
            state = CenoteSandboxSessionState(
                session_id=number,
                snapshot=resolve_snapshot(snapshot, str(number)),
                manifest=_placed(manifest, "/workspace", working_dir),
                working_dir=working_dir,
                timeout=None if options is None else options.timeout,
            )
        except BaseException:
            await self._ended(number)
            raise
        return self._wrap_session(
            CenoteSandboxSession(state, runtime, used=False), instrumentation=self._instrumentation
        )

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The same jail where it is still there, else a new one with the files of the snapshot."""
        if not isinstance(state, CenoteSandboxSessionState):
            raise TypeError(f"this client resumes its own sessions, not one of type {state.type!r}")
        state.assert_path_grants_rebound()
        _check_manifest(state.manifest)
        used = self._shared is not None or state.session_id in self._own
        runtime, working_dir = await self._started(state.session_id)
        state.manifest = _placed(state.manifest, state.working_dir, working_dir)
        state.working_dir = working_dir
        if not used:
            state.workspace_root_ready = False
        return self._wrap_session(
            CenoteSandboxSession(state, runtime, used=used), instrumentation=self._instrumentation
        )

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends the session's jail, unless the runtime is the caller's. Deleting twice is fine."""
        inner = _inner(session)
        if inner is None:
            raise TypeError("this client deletes its own sessions")
        await inner.pty_terminate_all()
        await self._ended(inner.state.session_id)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, CenoteSandboxSessionState)

    async def _started(self, number: uuid.UUID) -> tuple[AsyncPythonRuntime, str]:
        """The runtime of a session, and its working directory."""
        runtime = self._shared or self._own.get(number)
        if runtime is None:
            runtime = self._own[number] = AsyncPythonRuntime(**self._made_with)
        try:
            place = (await runtime.run(["pwd", "-P"])).stdout.rstrip("\n")
        except BaseException:
            await self._ended(number)
            raise
        return runtime, place

    async def _ended(self, number: uuid.UUID) -> None:
        if (runtime := self._own.pop(number, None)) is not None:
            await runtime.close()


def runtime_of(session: BaseSandboxSession | None) -> AsyncPythonRuntime | None:
    """The runtime beside a session of CenoteSandboxClient; None for a session of another client."""
    inner = _inner(session)
    return None if inner is None else inner.runtime


def _inner(session: Any) -> CenoteSandboxSession | None:
    while isinstance(session, SandboxSession):
        session = session._inner
    return session if isinstance(session, CenoteSandboxSession) else None


def _refused(message: str, op: Any) -> ConfigurationError:
    return ConfigurationError(
        message=message,
        error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
        op=op,
        context={"backend": BACKEND},
        retryable=False,
    )


def _check_user(user: str | User | None, op: str) -> None:
    if user is not None:
        raise _refused("files of a jail belong to its one user; leave `user` out", op)


def _check_manifest(manifest: Manifest) -> None:
    if manifest.users or manifest.groups:
        raise _refused(
            "a jail has one user: leave users and groups out of the manifest, and run_as out of the agent",
            "start",
        )
    if manifest.mount_targets():
        raise _refused(
            "a jail mounts no remote storage; give files to the manifest, or folders of this machine to "
            "SandboxPolicy(mounts=...)",
            "start",
        )
    if any(grant.host_path is not None for grant in manifest.extra_path_grants):
        raise _refused(
            "a jail takes folders of this machine from its policy: SandboxPolicy(mounts=...), not from a manifest",
            "start",
        )


def _placed(manifest: Manifest, before: str, working_dir: str) -> Manifest:
    """With its root in this jail's working directory, as it was in `before`: isolation levels differ in it."""
    root = PurePosixPath(manifest.root)
    for base in (before, working_dir):
        if root.is_relative_to(base):
            place = PurePosixPath(working_dir) / root.relative_to(base)
            return manifest.model_copy(update={"root": str(place)}, deep=True)
    raise _refused(
        f"the root of a manifest is /workspace or a folder below it, which {manifest.root} is not", "start"
    )


def _exit_code(code: int | None, killed_by: str | None) -> int:
    if code is not None:
        return code
    signal = (killed_by or "").removeprefix("signal ")
    return 128 + (int(signal) if signal.isdecimal() else 9)


async def _read_out(entry: _Running) -> None:
    async for _stream, data in entry.process:
        entry.chunks.append(data)
        entry.news.set()
    ended = await entry.process.wait()
    entry.exit_code = _exit_code(ended.exit_code, ended.killed_by)
    entry.done = True
    entry.news.set()


async def _end(entry: _Running) -> None:
    entry.process.kill()
    if entry.reader is not None:
        await entry.reader


async def _gathered(stream: Any) -> Any:
    """A file with all of it, which is one in memory while it is small."""
    file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  # its reader closes it
    try:
        async for data in stream:
            file.write(data)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def _piece(data: io.IOBase, path: Path) -> bytes:
    piece: Any = data.read(_PIECE)  # type: ignore[attr-defined]
    if isinstance(piece, str):
        return piece.encode()
    if not isinstance(piece, bytes | bytearray):
        raise WorkspaceWriteTypeError(path=path, actual_type=type(piece).__name__)
    return bytes(piece)


async def _pieces(data: io.IOBase, path: Path, piece: bytes) -> AsyncIterator[bytes]:
    while piece:
        yield piece
        piece = await asyncio.to_thread(_piece, data, path)
