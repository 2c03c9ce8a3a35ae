"""The working directory of a runtime, in two faces.

Nothing on this side of the wall opens a path that a jail made: the worker does, and sends bytes. See in_jail/workdir.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from cenote.runtime import file_requests as requests
from cenote.runtime.file_requests import FilePath
from cenote.runtime.local_files import LocalPath, read_local, write_local
from cenote.runtime.replies import done
from cenote_security.errors import UnknownFileError
from cenote_security.policy import Mount
from cenote_worker.content import Content
from cenote_worker.hosted.files import FileAsk
from cenote_worker.results import FileInfo, FolderListing
from cenote_worker.supervisor.requests import Listener, Outcome

if TYPE_CHECKING:
    from cenote.runtime.core import RuntimeCore

Queue = Callable[[Listener], None]


class Files:
    """Files of a jail's working directory. Paths are relative to it; names that are no text are given as bytes.

    Each call waits for the running cell to end, moves at most `SandboxPolicy.disk` bytes (and twice its memory),
    and follows no symbolic link in the jail. What comes out was made by hostile code: bytes, nothing more. The
    directory dies with its jail, so after a crash or `reset` it is empty.

    Raises FileRefusedError with the reason; UnknownFileError and FileTakenError are the usual ones.
    """

    def __init__(self, core: RuntimeCore, call: Callable[[Queue], Outcome]) -> None:
        self._core = core
        self._call = call

    def list(self, path: FilePath = "") -> FolderListing:
        """The entries of one folder, at most 10,000; `complete` says whether that is all."""
        ask = requests.listing(path)
        return requests.listed(self._asked(ask), ask)

    def stat(self, path: FilePath) -> FileInfo:
        """Kind, size and time of a file or folder; a link is described itself."""
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
        content = self._content(requests.reading(path, offset, size, self._core.policy))
        try:
            return content.whole()
        finally:
            content.close()

    def write(self, path: FilePath, data: bytes | str, *, overwrite: bool = False) -> None:
        """Makes a file, whole or not at all, with the folders on the way to it. Text is written as UTF-8."""
        self._write(path, requests.content(data), overwrite=overwrite)

    def delete(self, path: FilePath) -> None:
        """Removes a file, a link or an empty folder."""
        ask = requests.deleting(path)
        done(self._asked(ask), ask.shown)

    def upload(self, local: LocalPath, path: FilePath, *, overwrite: bool = False) -> None:
        """Copies a regular file of this machine into the working directory."""
        policy = self._core.policy
        content = read_local(local, requests.most_bytes(policy), policy.mounts)
        self._write(path, content, overwrite=overwrite)

    def download(self, path: FilePath, local: LocalPath, *, overwrite: bool = False) -> None:
        """Copies a file of the working directory to this machine, whole or not at all; never executable."""
        policy = self._core.policy
        content = self._content(requests.reading(path, 0, None, policy))
        _write_and_close(local, content, policy.mounts, overwrite)

    def _content(self, ask: FileAsk) -> Content:
        return requests.content_read(self._asked(ask), ask)

    def _write(self, path: FilePath, content: Content, *, overwrite: bool) -> None:
        ask = requests.writing(path, content, self._core.policy, overwrite=overwrite)
        done(self._asked(ask), ask.shown)

    def _asked(self, ask: FileAsk) -> Outcome:
        return self._call(lambda listener: self._core.ask_file(ask, listener))


class AsyncFiles:
    """Files of a jail's working directory; see Files. The same methods, as coroutines."""

    def __init__(self, core: RuntimeCore, call: Callable[[Queue], Awaitable[Outcome]]) -> None:
        self._core = core
        self._call = call

    async def list(self, path: FilePath = "") -> FolderListing:
        """The entries of one folder, at most 10,000; `complete` says whether that is all."""
        ask = requests.listing(path)
        return requests.listed(await self._asked(ask), ask)

    async def stat(self, path: FilePath) -> FileInfo:
        """Kind, size and time of a file or folder; a link is described itself."""
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
        content = await self._content(requests.reading(path, offset, size, self._core.policy))
        try:
            return content.whole()
        finally:
            content.close()

    async def write(self, path: FilePath, data: bytes | str, *, overwrite: bool = False) -> None:
        """Makes a file, whole or not at all, with the folders on the way to it. Text is written as UTF-8."""
        await self._write(path, requests.content(data), overwrite=overwrite)

    async def delete(self, path: FilePath) -> None:
        """Removes a file, a link or an empty folder."""
        ask = requests.deleting(path)
        done(await self._asked(ask), ask.shown)

    async def upload(self, local: LocalPath, path: FilePath, *, overwrite: bool = False) -> None:
        """Copies a regular file of this machine into the working directory."""
        policy = self._core.policy
        content = await asyncio.to_thread(read_local, local, requests.most_bytes(policy), policy.mounts)
        await self._write(path, content, overwrite=overwrite)

    async def download(self, path: FilePath, local: LocalPath, *, overwrite: bool = False) -> None:
        """Copies a file of the working directory to this machine, whole or not at all; never executable."""
        policy = self._core.policy
        content = await self._content(requests.reading(path, 0, None, policy))
        # The thread goes on when its caller is cancelled, so it is the thread that lets go of the content.
        await asyncio.to_thread(_write_and_close, local, content, policy.mounts, overwrite)

    async def _content(self, ask: FileAsk) -> Content:
        return requests.content_read(await self._asked(ask), ask)

    async def _write(self, path: FilePath, content: Content, *, overwrite: bool) -> None:
        ask = requests.writing(path, content, self._core.policy, overwrite=overwrite)
        done(await self._asked(ask), ask.shown)

    async def _asked(self, ask: FileAsk) -> Outcome:
        return await self._call(lambda listener: self._core.ask_file(ask, listener))


def _write_and_close(local: LocalPath, content: Content, mounts: Sequence[Mount], overwrite: bool) -> None:
    try:
        write_local(local, content, mounts, overwrite=overwrite)
    finally:
        content.close()
