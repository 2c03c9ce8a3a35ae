"""The files of a runtime's jail, in two faces.

Nothing on this side of the wall opens a path that a jail made: the worker does, and sends bytes (jail/workdir), or
a process beside it (zygote/warden/file_operations), which is not kept waiting by a cell.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from cenote.runtime.core import file_programs as work
from cenote.runtime.core import file_requests as requests
from cenote.runtime.core.file_programs import FileEvent
from cenote.runtime.core.file_requests import FilePath
from cenote.runtime.core.processes import ProcessFeed, ProcessResult
from cenote.runtime.core.replies import done
from cenote.runtime.faces.local_files import LocalPath, read_local, write_local
from cenote.runtime.faces.process import AsyncBegin, AsyncProcess, Process, run, run_async
from cenote_security.errors import UnknownFileError, UsageError
from cenote_security.policy import Mount
from cenote_worker.execution.programs import ProgramOrder
from cenote_worker.execution.results import FileInfo, FolderListing
from cenote_worker.runtime.jail_requests import WorkdirRequest
from cenote_worker.supervisor.frame_parser import MAX_ENTRIES
from cenote_worker.supervisor.requests import Listener, Outcome
from cenote_worker.transport.content import Content

if TYPE_CHECKING:
    from cenote.runtime.core.runtime_core import RuntimeCore

Queue = Callable[[Listener], None]

Pieces = Iterable[bytes] | AsyncIterable[bytes]
"""Of a file; such as are awaited only where that can be done."""

PIECE: Final = 256 * 1024
"""Bytes that are taken of an open file at once."""


class Files:
    """Files of a jail. A relative path is one of the working directory, an absolute one whatever it is in the jail.

    What is asked with a relative path without more waits for the running cell to end, follows no symbolic link, and
    what is written so is in the record with its content. All else is done by a process beside the namespace: at once,
    where the jail's own walls let it, following links as any program does; what it changes is a step of a `process`.
    Names that are no text are given as bytes. Calls that give or take bytes whole move at most `SandboxPolicy.disk`
    (and twice its memory); streams have no such bound. What comes out was made by hostile code: bytes, nothing more.
    The directory dies with its jail, so after a crash or `reset` it is empty.

    Raises FileRefusedError with the reason; UnknownFileError and FileTakenError are the usual ones.
    """

    def __init__(self, core: RuntimeCore, call: Callable[[Queue], Outcome]) -> None:
        self._core = core
        self._call = call

    def list(self, path: FilePath = "", depth: int | None = None) -> FolderListing:
        """The entries of one folder, at most 10,000; `complete` says whether that is all. depth: of folders in it,
        whose entries have paths for names then; 1 is that folder alone."""
        if depth is not None or work.is_absolute(path):
            return work.listed(
                self._done(work.listing(path, 1 if depth is None else depth, MAX_ENTRIES, self._core.policy)),
                path,
            )
        ask = requests.listing(path)
        return requests.listed(self._asked(ask), ask)

    def stat(self, path: FilePath) -> FileInfo:
        """Kind, size and time of a file or folder; a link is described itself."""
        if work.is_absolute(path):
            return work.looked_up(self._done(work.looking_up(path, self._core.policy)), path)
        ask = requests.looking_up(path)
        return requests.looked_up(self._asked(ask), ask)

    def exists(self, path: FilePath) -> bool:
        """Whether there is anything of that name, a broken link included."""
        try:
            self.stat(path)
        except UnknownFileError:
            return False
        return True

    def read(self, path: FilePath, offset: int = 0, size: int | None = None) -> bytes:
        """All of a file from `offset` on, or at most `size` bytes of it."""
        policy = self._core.policy
        if work.is_absolute(path):
            return work.content(self._done(work.reading(path, offset, size, policy)), path, size, policy)
        content = self._content(requests.reading(path, offset, size, policy))
        try:
            return content.whole()
        finally:
            content.close()

    def write(self, path: FilePath, data: bytes | str, *, overwrite: bool = False) -> None:
        """Makes a file, whole or not at all, with the folders on the way to it. Text is written as UTF-8."""
        content = requests.content(data)
        if work.is_absolute(path):
            self._write_whole(path, content, overwrite=overwrite)
        else:
            self._write(path, content, overwrite=overwrite)

    def delete(self, path: FilePath) -> None:
        """Removes a file, a link or an empty folder."""
        if work.is_absolute(path):
            self.remove(path)
            return
        ask = requests.deleting(path)
        done(self._asked(ask), ask.shown)

    def mkdir(self, path: FilePath, *, exist_ok: bool = False) -> None:
        """Makes a folder, and those on the way to it. One that is there is a FileTakenError without `exist_ok`."""
        work.done(self._done(work.making(path, self._core.policy, exist_ok=exist_ok)), path)

    def move(self, path: FilePath, to: FilePath, *, overwrite: bool = False) -> None:
        """Gives a file or folder another path, with the folders on the way to it."""
        work.done(self._done(work.moving(path, to, self._core.policy, overwrite=overwrite)), path)

    def remove(self, path: FilePath, *, recursive: bool = False) -> None:
        """Removes a file, a link or a folder, one that is not empty only if `recursive`."""
        work.done(self._done(work.removing(path, self._core.policy, recursive=recursive)), path)

    def watch(self, path: FilePath = "", depth: int = 8, every: float = 0.2) -> FileWatch:
        """What changes below a folder from now on, seen every so many seconds. Close it, or use it in a `with`."""
        asked = work.watching(path, depth, every, self._core.policy)
        feed = ProcessFeed()
        return FileWatch(Process(self._core.begin(asked, feed), feed, work.MAX_LINE), path)

    def read_stream(self, path: FilePath) -> Iterator[bytes]:
        """All of a file, in pieces as they are taken."""
        feed = ProcessFeed()
        asked = work.streaming(path, self._core.policy)
        with Process(self._core.begin(asked, feed), feed, work.MAX_LINE) as process:
            yield from process.stdout
            work.done(process.wait(), path)

    def write_stream(self, path: FilePath, data: Pieces, *, overwrite: bool = False) -> None:
        """Makes a file of pieces, whole or not at all, with the folders on the way to it."""
        if isinstance(data, AsyncIterable):
            raise UsageError("pieces that are awaited are for the files of an AsyncPythonRuntime")
        feed = ProcessFeed()
        asked = work.writing(path, self._core.policy, overwrite=overwrite)
        with Process(self._core.begin(asked, feed), feed, work.MAX_LINE) as process:
            with suppress(UsageError):  # it has ended: why, its result says
                for piece in data:
                    process.send_input(piece)
            process.close_stdin()
            work.done(process.wait(), path)

    def upload(self, local: LocalPath | BinaryIO, path: FilePath, *, overwrite: bool = False) -> None:
        """Copies a regular file of this machine into the jail, or what an open binary file gives."""
        if isinstance(local, str | os.PathLike):
            policy = self._core.policy
            content = read_local(local, requests.most_bytes(policy), policy.mounts)
            if work.is_absolute(path):
                self._write_whole(path, content, overwrite=overwrite)
            else:
                self._write(path, content, overwrite=overwrite)
        else:
            self.write_stream(path, pieces_of(local), overwrite=overwrite)

    def download(self, path: FilePath, local: LocalPath | BinaryIO, *, overwrite: bool = False) -> None:
        """Copies a file of the jail to this machine, whole or not at all, never executable; or into an open binary
        file, as it comes."""
        if not isinstance(local, str | os.PathLike):
            for piece in self.read_stream(path):
                local.write(piece)
            return
        policy = self._core.policy
        if work.is_absolute(path):
            content = Content.of_bytes(self.read(path))
        else:
            content = self._content(requests.reading(path, 0, None, policy))
        _write_and_close(local, content, policy.mounts, overwrite)

    def _content(self, ask: WorkdirRequest) -> Content:
        return requests.content_read(self._asked(ask), ask)

    def _write(self, path: FilePath, content: Content, *, overwrite: bool) -> None:
        ask = requests.writing(path, content, self._core.policy, overwrite=overwrite)
        done(self._asked(ask), ask.shown)

    def _write_whole(self, path: FilePath, content: Content, *, overwrite: bool) -> None:
        data = work.taken(content, path, self._core.policy)
        asked = work.writing(path, self._core.policy, overwrite=overwrite, size=len(data))
        work.done(self._done(asked, data), path)

    def _asked(self, ask: WorkdirRequest) -> Outcome:
        return self._call(lambda listener: self._core.ask_file(ask, listener))

    def _done(self, asked: ProgramOrder, data: bytes | None = None) -> ProcessResult:
        return run(self._core.begin, asked, data, work.kept(asked, self._core.policy))


class FileWatch:
    """Changes below a folder, as they are seen: an iterator of FileEvent that ends when it is closed."""

    def __init__(self, process: Process, path: FilePath) -> None:
        """Waits until later changes will be seen. Raises FileRefusedError."""
        self._process = process
        self._path = path
        self._events = self._read()
        try:
            next(self._events)
        except StopIteration:
            work.done(process.wait(), path)

    def __iter__(self) -> Iterator[FileEvent]:
        for event in self._events:
            if event is not None:
                yield event

    def close(self) -> None:
        """Nothing more is watched; from any thread. Closing twice is fine."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _read(self) -> Iterator[FileEvent | None]:
        lines = work.Lines()
        for data in self._process.stdout:
            for line in lines.add(data):
                yield work.event(line)
        work.done(result := self._process.wait(), self._path, stopped=result_is_of_close(result))


class AsyncFiles:
    """Files of a jail; see Files. The same methods, as coroutines and asynchronous iterators."""

    def __init__(
        self,
        core: RuntimeCore,
        call: Callable[[Queue], Awaitable[Outcome]],
        begin: AsyncBegin,
    ) -> None:
        self._core = core
        self._call = call
        self._begin = begin

    async def list(self, path: FilePath = "", depth: int | None = None) -> FolderListing:
        """The entries of one folder, or of those in it too; see Files.list."""
        if depth is not None or work.is_absolute(path):
            asked = work.listing(path, 1 if depth is None else depth, MAX_ENTRIES, self._core.policy)
            return work.listed(await self._done(asked), path)
        ask = requests.listing(path)
        return requests.listed(await self._asked(ask), ask)

    async def stat(self, path: FilePath) -> FileInfo:
        """Kind, size and time of a file or folder; a link is described itself."""
        if work.is_absolute(path):
            return work.looked_up(await self._done(work.looking_up(path, self._core.policy)), path)
        ask = requests.looking_up(path)
        return requests.looked_up(await self._asked(ask), ask)

    async def exists(self, path: FilePath) -> bool:
        """Whether there is anything of that name, a broken link included."""
        try:
            await self.stat(path)
        except UnknownFileError:
            return False
        return True

    async def read(self, path: FilePath, offset: int = 0, size: int | None = None) -> bytes:
        """All of a file from `offset` on, or at most `size` bytes of it."""
        policy = self._core.policy
        if work.is_absolute(path):
            result = await self._done(work.reading(path, offset, size, policy))
            return work.content(result, path, size, policy)
        content = await self._content(requests.reading(path, offset, size, policy))
        try:
            return content.whole()
        finally:
            content.close()

    async def write(self, path: FilePath, data: bytes | str, *, overwrite: bool = False) -> None:
        """Makes a file, whole or not at all, with the folders on the way to it. Text is written as UTF-8."""
        content = requests.content(data)
        if work.is_absolute(path):
            await self._write_whole(path, content, overwrite=overwrite)
        else:
            await self._write(path, content, overwrite=overwrite)

    async def delete(self, path: FilePath) -> None:
        """Removes a file, a link or an empty folder."""
        if work.is_absolute(path):
            await self.remove(path)
            return
        ask = requests.deleting(path)
        done(await self._asked(ask), ask.shown)

    async def mkdir(self, path: FilePath, *, exist_ok: bool = False) -> None:
        """Makes a folder, and those on the way to it; see Files.mkdir."""
        work.done(await self._done(work.making(path, self._core.policy, exist_ok=exist_ok)), path)

    async def move(self, path: FilePath, to: FilePath, *, overwrite: bool = False) -> None:
        """Gives a file or folder another path, with the folders on the way to it."""
        work.done(await self._done(work.moving(path, to, self._core.policy, overwrite=overwrite)), path)

    async def remove(self, path: FilePath, *, recursive: bool = False) -> None:
        """Removes a file, a link or a folder, one that is not empty only if `recursive`."""
        work.done(await self._done(work.removing(path, self._core.policy, recursive=recursive)), path)

    async def watch(self, path: FilePath = "", depth: int = 8, every: float = 0.2) -> AsyncFileWatch:
        """What changes below a folder from now on; see Files.watch. Use it in an `async with`."""
        asked = work.watching(path, depth, every, self._core.policy)
        watch = AsyncFileWatch(await self._process(asked), path)
        await watch.begin()
        return watch

    async def read_stream(self, path: FilePath) -> AsyncIterator[bytes]:
        """All of a file, in pieces as they are taken."""
        async with await self._process(work.streaming(path, self._core.policy)) as process:
            async for piece in process.stdout:
                yield piece
            work.done(await process.wait(), path)

    async def write_stream(self, path: FilePath, data: Pieces, *, overwrite: bool = False) -> None:
        """Makes a file of pieces, whole or not at all, with the folders on the way to it."""
        asked = work.writing(path, self._core.policy, overwrite=overwrite)
        async with await self._process(asked) as process:
            with suppress(UsageError):  # it has ended: why, its result says
                if isinstance(data, AsyncIterable):
                    async for piece in data:
                        await process.send_input(piece)
                else:
                    for piece in data:
                        await process.send_input(piece)
            process.close_stdin()
            work.done(await process.wait(), path)

    async def upload(self, local: LocalPath | BinaryIO, path: FilePath, *, overwrite: bool = False) -> None:
        """Copies a regular file of this machine into the jail, or what an open binary file gives."""
        if not isinstance(local, str | os.PathLike):
            await self.write_stream(path, pieces_of(local), overwrite=overwrite)
            return
        policy = self._core.policy
        content = await asyncio.to_thread(read_local, local, requests.most_bytes(policy), policy.mounts)
        if work.is_absolute(path):
            await self._write_whole(path, content, overwrite=overwrite)
        else:
            await self._write(path, content, overwrite=overwrite)

    async def download(self, path: FilePath, local: LocalPath | BinaryIO, *, overwrite: bool = False) -> None:
        """Copies a file of the jail to this machine, whole or not at all, never executable; or into an open binary
        file, as it comes."""
        if not isinstance(local, str | os.PathLike):
            async for piece in self.read_stream(path):
                local.write(piece)
            return
        policy = self._core.policy
        if work.is_absolute(path):
            content = Content.of_bytes(await self.read(path))
        else:
            content = await self._content(requests.reading(path, 0, None, policy))
        # The thread goes on when its caller is cancelled, so it is the thread that lets go of the content.
        await asyncio.to_thread(_write_and_close, local, content, policy.mounts, overwrite)

    async def _content(self, ask: WorkdirRequest) -> Content:
        return requests.content_read(await self._asked(ask), ask)

    async def _write(self, path: FilePath, content: Content, *, overwrite: bool) -> None:
        ask = requests.writing(path, content, self._core.policy, overwrite=overwrite)
        done(await self._asked(ask), ask.shown)

    async def _write_whole(self, path: FilePath, content: Content, *, overwrite: bool) -> None:
        data = work.taken(content, path, self._core.policy)
        asked = work.writing(path, self._core.policy, overwrite=overwrite, size=len(data))
        work.done(await self._done(asked, data), path)

    async def _asked(self, ask: WorkdirRequest) -> Outcome:
        return await self._call(lambda listener: self._core.ask_file(ask, listener))

    async def _done(self, asked: ProgramOrder, data: bytes | None = None) -> ProcessResult:
        return await run_async(self._begin, asked, data, work.kept(asked, self._core.policy))

    async def _process(self, asked: ProgramOrder) -> AsyncProcess:
        feed = ProcessFeed()
        return AsyncProcess(await self._begin(asked, feed), feed, work.MAX_LINE)


class AsyncFileWatch:
    """Changes below a folder, as they are seen: an asynchronous iterator of FileEvent that ends when it is closed."""

    def __init__(self, process: AsyncProcess, path: FilePath) -> None:
        self._process = process
        self._path = path
        self._events = self._read()

    async def begin(self) -> None:
        """Waits until later changes will be seen. Raises FileRefusedError."""
        try:
            await anext(self._events)
        except StopAsyncIteration:
            work.done(await self._process.wait(), self._path)

    async def __aiter__(self) -> AsyncIterator[FileEvent]:
        async for event in self._events:
            if event is not None:
                yield event

    def close(self) -> None:
        """Nothing more is watched. Closing twice is fine."""
        self._process.kill()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.close()

    async def _read(self) -> AsyncIterator[FileEvent | None]:
        lines = work.Lines()
        async for data in self._process.stdout:
            for line in lines.add(data):
                yield work.event(line)
        result = await self._process.wait()
        work.done(result, self._path, stopped=result_is_of_close(result))


def result_is_of_close(result: ProcessResult) -> bool:
    """Whether the watching client has closed it."""
    return result.killed_by == "kill"


def pieces_of(file: BinaryIO) -> Iterator[bytes]:
    """What an open file gives from where it is."""
    while data := file.read(PIECE):
        yield data


def _write_and_close(local: LocalPath, content: Content, mounts: Sequence[Mount], overwrite: bool) -> None:
    try:
        write_local(local, content, mounts, overwrite=overwrite)
    finally:
        content.close()
