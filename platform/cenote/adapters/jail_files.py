"""Files of a jail with the exceptions of Python's own, as frameworks want them."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from cenote.runtime import AsyncPythonRuntime
from cenote_security.errors import FileRefusedError, FileTakenError, UnknownFileError
from cenote_worker.results import FileInfo

_CODES: Final = {os.strerror(code): code for code in errno.errorcode}


class JailFiles:
    """Absolute paths, and relative ones of the working directory. Each call raises an OSError of the usual class."""

    def __init__(self, runtime: AsyncPythonRuntime) -> None:
        self._runtime = runtime

    async def read(self, path: str) -> bytes:
        async with self._usual_errors(path):
            return await self._runtime.files.read(path)

    async def write(self, path: str, data: bytes | str) -> None:
        """Replaces; makes missing folders."""
        async with self._usual_errors(path):
            await self._runtime.files.write(path, data, overwrite=True)

    async def stat(self, path: str) -> FileInfo:
        async with self._usual_errors(path):
            return await self._runtime.files.stat(path)

    @asynccontextmanager
    async def _usual_errors(self, path: str) -> AsyncIterator[None]:
        try:
            yield
        except UnknownFileError as error:
            raise FileNotFoundError(errno.ENOENT, error.reason, path) from None
        except FileTakenError as error:
            raise FileExistsError(errno.EEXIST, error.reason, path) from None
        except FileRefusedError as error:
            code = _CODES.get(error.reason, errno.EIO)
            if code == errno.EIO and await self._is_folder(path):
                code = errno.EISDIR
            raise OSError(code, error.reason, path) from None

    async def _is_folder(self, path: str) -> bool:
        try:
            return (await self._runtime.files.stat(path)).kind == "folder"
        except FileRefusedError:
            return False
