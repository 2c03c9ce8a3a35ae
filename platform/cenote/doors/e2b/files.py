"""Files of a sandbox, as E2B's SDKs ask for them. Paths are relative to `/home/user`, or absolute in the jail."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cenote.doors.e2b.envd import message_of
from cenote.doors.e2b.sandboxes import E2bSandbox
from cenote.doors.http_api import MOST_FILE, body_of
from cenote.runtime.files import AsyncFiles
from cenote_security.errors import FileTakenError, UsageError
from cenote_worker.results import FileInfo

HOME: Final = "/home/user"

_TYPES: Final = {"file": "FILE_TYPE_FILE", "folder": "FILE_TYPE_DIRECTORY", "link": "FILE_TYPE_SYMLINK"}


@dataclass(frozen=True, slots=True)
class E2bFiles:
    """Contents by `/files`, all else by the service `filesystem.Filesystem`."""

    def calls(self) -> Mapping[str, Callable[[E2bSandbox, Request], Awaitable[Response]]]:
        return {
            "Stat": self._stat,
            "ListDir": self._list,
            "MakeDir": self._make,
            "Move": self._move,
            "Remove": self._remove,
        }

    async def download(self, sandbox: E2bSandbox, request: Request) -> Response:
        data = await (await _files(sandbox)).read(_path(request.query_params.get("path", "")))
        return Response(data, media_type="application/octet-stream")

    async def upload(self, sandbox: E2bSandbox, request: Request) -> Response:
        files, wanted = await _files(sandbox), request.query_params.get("path", "")
        written = list[str]()
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            async with request.form(max_part_size=MOST_FILE) as form:
                for _, part in form.multi_items():
                    if isinstance(part, str):
                        raise UsageError("a part of the upload is no file")
                    path = wanted or part.filename or ""
                    await files.write(_path(path), await part.read(), overwrite=True)
                    written.append(path)
        else:
            await files.write(_path(wanted), await body_of(request, MOST_FILE, "the file"), overwrite=True)
            written.append(wanted)
        return JSONResponse([_written(path) for path in written])

    async def _stat(self, sandbox: E2bSandbox, request: Request) -> Response:
        path = await _asked(request)
        return JSONResponse({"entry": _entry(path, await (await _files(sandbox)).stat(_path(path)))})

    async def _list(self, sandbox: E2bSandbox, request: Request) -> Response:
        message = await message_of(request)
        path, depth = str(message.get("path", "")), int(message.get("depth") or 1)
        return JSONResponse({"entries": await _entries(await _files(sandbox), path, depth)})

    async def _make(self, sandbox: E2bSandbox, request: Request) -> Response:
        path = await _asked(request)
        files = await _files(sandbox)
        if await files.exists(_path(path)):
            raise FileTakenError(path)
        await files.mkdir(_path(path), parents=True)
        return JSONResponse({"entry": _entry(path, await files.stat(_path(path)))})

    async def _move(self, sandbox: E2bSandbox, request: Request) -> Response:
        message, files = await message_of(request), await _files(sandbox)
        source, target = str(message.get("source", "")), str(message.get("destination", ""))
        await files.move(_path(source), _path(target))
        return JSONResponse({"entry": _entry(target, await files.stat(_path(target)))})

    async def _remove(self, sandbox: E2bSandbox, request: Request) -> Response:
        await (await _files(sandbox)).remove(_path(await _asked(request)), recursive=True)
        return JSONResponse({})


async def _files(sandbox: E2bSandbox) -> AsyncFiles:
    return (await sandbox.runtime()).author.files


async def _asked(request: Request) -> str:
    path = (await message_of(request)).get("path", "")
    if not isinstance(path, str) or not path:
        raise UsageError("name a path")
    return path


def _path(path: str) -> str:
    """Within the jail, relative to its working directory where it is there."""
    whole = posixpath.normpath(posixpath.join(HOME, path))
    for home in (HOME, "/workspace"):
        if whole == home:
            return ""
        if whole.startswith(f"{home}/"):
            return whole[len(home) + 1 :]
    return whole


async def _entries(files: AsyncFiles, path: str, depth: int) -> list[dict[str, Any]]:
    found = list[dict[str, Any]]()
    for info in await files.list(_path(path)):
        inner = posixpath.join(path, info.name)
        found.append(_entry(inner, info))
        if depth > 1 and info.kind == "folder":
            found += await _entries(files, inner, depth - 1)
    return found


def _entry(path: str, info: FileInfo) -> dict[str, Any]:
    whole = posixpath.normpath(posixpath.join(HOME, path))
    mode = 0o755 if info.kind == "folder" else 0o644
    kind = {"folder": stat.S_IFDIR, "link": stat.S_IFLNK}.get(info.kind, stat.S_IFREG)
    return {
        "name": posixpath.basename(whole),
        "type": _TYPES.get(info.kind, "FILE_TYPE_UNSPECIFIED"),
        "path": whole,
        "size": str(info.size),
        "mode": mode,
        "permissions": stat.filemode(kind | mode),
        "owner": "user",
        "group": "user",
        "modifiedTime": datetime.fromtimestamp(info.modified, UTC).isoformat().replace("+00:00", "Z"),
        "isSymlink": info.kind == "link",
    }


def _written(path: str) -> dict[str, str]:
    whole = posixpath.normpath(posixpath.join(HOME, path))
    return {"name": posixpath.basename(whole), "type": "file", "path": whole}
