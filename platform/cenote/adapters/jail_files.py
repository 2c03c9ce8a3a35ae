"""Files of a jail with the exceptions of Python's own, as frameworks want them."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from cenote.runtime import AsyncPythonRuntime
from cenote_security.errors import FileRefusedError, UnknownFileError
from cenote_worker.results import FileInfo

_CODES: Final = {os.strerror(code): code for code in errno.errorcode}


class JailFiles:
    """Absolute paths, and relative ones of the working directory. Each call raises an OSError of the usual class."""

    def __init__(self, runtime: AsyncPythonRuntime) -> None:
        self._runtime = runtime
        self._folder = ""

    async def read(self, path: str) -> bytes:
        async with self._usual_errors(path):
            return await self._runtime.files.read(path)

    async def write(self, path: str, data: bytes | str) -> None:
        """Replaces a file that may be written to; makes missing folders."""
        with suppress(FileNotFoundError, NotADirectoryError):
            there = await self.stat(path)
            if there.kind == "file" and not there.mode & 0o222:  # which replacing it would not ask
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        async with self._usual_errors(path):
            await self._runtime.files.write(path, data, overwrite=True)

    async def stat(self, path: str) -> FileInfo:
        async with self._usual_errors(path):
            return await self._runtime.files.stat(await self._absolute(path))

    async def _absolute(self, path: str) -> str:
        """Of a relative path less is known."""
        if not self._folder:
            self._folder = (await self._runtime.run(["pwd"])).stdout.rstrip("\n")
        return posixpath.join(self._folder, path)

    @asynccontextmanager
    async def _usual_errors(self, path: str) -> AsyncIterator[None]:
        try:
            yield
        except UnknownFileError as error:
            raise FileNotFoundError(errno.ENOENT, error.reason, path) from None
        except FileRefusedError as error:
            code = _CODES.get(error.reason, errno.EIO)
            if code == errno.EIO and await self._is_folder(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
            raise OSError(code, error.reason, path) from None

    async def _is_folder(self, path: str) -> bool:
        try:
            return (await self._runtime.files.stat(path)).kind == "folder"
        except FileRefusedError:
            return False
