"""Files of a sandbox, as E2B's SDKs ask for them. Paths are relative to `/home/user`, or absolute in the jail."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from cenote.doors.e2b.envd import STREAM, frame_of, message_of, stream
from cenote.doors.e2b.sandboxes import HOME, E2bSandbox, FileWatcher, NoSuchPartError
from cenote.doors.http_api import MOST_FILE, body_of, limited
from cenote.runtime.core.file_programs import FileEvent
from cenote.runtime.faces.files import AsyncFiles, AsyncFileWatch
from cenote_security.errors import FileTakenError, UsageError
from cenote_worker.execution.results import FileInfo

WORKDIR: Final = "/workspace"
"""The working directory in a jail of isolation `strict`."""

MAX_DEPTH: Final = 64
MAX_WATCHERS: Final = 32

_EVENTS: Final = {
    "created": "EVENT_TYPE_CREATE",
    "changed": "EVENT_TYPE_WRITE",
    "removed": "EVENT_TYPE_REMOVE",
}

_TYPES: Final = {"file": "FILE_TYPE_FILE", "folder": "FILE_TYPE_DIRECTORY", "link": "FILE_TYPE_SYMLINK"}


@dataclass(frozen=True, slots=True)
class E2bFiles:
    """Contents by `/files`, everything else by the service `filesystem.Filesystem`."""

    def calls(self) -> Mapping[str, Callable[[E2bSandbox, Request], Awaitable[Response]]]:
        return {
            "Stat": self._stat,
            "ListDir": self._list,
            "MakeDir": self._make,
            "Move": self._move,
            "Remove": self._remove,
            "WatchDir": self._watch,
            "CreateWatcher": self._create_watcher,
            "GetWatcherEvents": self._watcher_events,
            "RemoveWatcher": self._remove_watcher,
        }

    async def download(self, sandbox: E2bSandbox, request: Request) -> Response:
        files, path = await _files(sandbox), _whole(request.query_params.get("path", ""))
        try:
            data = await files.read(_relative(path))
        except UsageError:
            if (await files.stat(_inside(path))).kind == "folder":
                raise UsageError(f"path {path} is a directory") from None
            raise
        return Response(data, media_type="application/octet-stream")

    async def upload(self, sandbox: E2bSandbox, request: Request) -> Response:
        files, wanted = await _files(sandbox), request.query_params.get("path", "")
        written = list[str]()
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            async with limited(request, MOST_FILE, "the upload").form() as form:
                for _, part in form.multi_items():
                    if isinstance(part, str):
                        raise UsageError("a part of the upload is no file")
                    path = wanted or part.filename or ""
                    await files.write(_relative(path), await part.read(), overwrite=True)
                    written.append(path)
        else:
            await files.write(
                _relative(wanted), await body_of(request, MOST_FILE, "the file"), overwrite=True
            )
            written.append(wanted)
        return JSONResponse([_written(path) for path in written])

    async def _stat(self, sandbox: E2bSandbox, request: Request) -> Response:
        path = await _asked(request)
        return JSONResponse({"entry": await _looked_up(await _files(sandbox), path)})

    async def _list(self, sandbox: E2bSandbox, request: Request) -> Response:
        message = await message_of(request)
        path, depth = _whole(message.get("path", "")), message.get("depth") or 1
        if not isinstance(depth, int):
            raise UsageError(f"depth is a number, not {depth!r:.100}")
        listing = await (await _files(sandbox)).list(_inside(path), depth)
        found = [_entry(posixpath.join(path, _name(info)), info) for info in listing]
        return JSONResponse({"entries": found})

    async def _make(self, sandbox: E2bSandbox, request: Request) -> Response:
        path, files = await _asked(request), await _files(sandbox)
        try:
            await files.mkdir(_inside(path))
        except FileTakenError:
            if (await files.stat(_inside(path))).kind == "folder":
                raise
            raise UsageError(f"path already exists but it is not a directory: {path}") from None
        return JSONResponse({"entry": await _looked_up(files, path)})

    async def _move(self, sandbox: E2bSandbox, request: Request) -> Response:
        message, files = await message_of(request), await _files(sandbox)
        target = _whole(message.get("destination", ""))
        await files.move(_inside(_whole(message.get("source", ""))), _inside(target), overwrite=True)
        return JSONResponse({"entry": await _looked_up(files, target)})

    async def _remove(self, sandbox: E2bSandbox, request: Request) -> Response:
        await (await _files(sandbox)).remove(_inside(await _asked(request)), recursive=True)
        return JSONResponse({})

    async def _watch(self, sandbox: E2bSandbox, request: Request) -> Response:
        message = await frame_of(request)
        return StreamingResponse(stream(_changes(sandbox, message)), media_type=STREAM)

    async def _create_watcher(self, sandbox: E2bSandbox, request: Request) -> Response:
        watch = await _watching(sandbox, await message_of(request))
        if len(sandbox.watchers) >= MAX_WATCHERS:
            watch.close()
            raise UsageError(f"{MAX_WATCHERS} folders are watched, which is the most: remove a watcher")
        name = secrets.token_hex(8)
        sandbox.watchers[name] = watcher = FileWatcher(watch=watch)
        watcher.reading = asyncio.create_task(watcher.read())
        return JSONResponse({"watcherId": name})

    async def _watcher_events(self, sandbox: E2bSandbox, request: Request) -> Response:
        watcher = _watcher(sandbox, await message_of(request))
        events, watcher.events = watcher.events, []
        return JSONResponse({"events": [_event(each) for each in events]})

    async def _remove_watcher(self, sandbox: E2bSandbox, request: Request) -> Response:
        message = await message_of(request)
        _watcher(sandbox, message).watch.close()
        del sandbox.watchers[str(message.get("watcherId"))]
        return JSONResponse({})


async def _watching(sandbox: E2bSandbox, message: Mapping[str, Any]) -> AsyncFileWatch:
    depth = MAX_DEPTH if message.get("recursive") else 1
    return await (await _files(sandbox)).watch(_inside(_whole(message.get("path", ""))), depth)


def _watcher(sandbox: E2bSandbox, message: Mapping[str, Any]) -> FileWatcher:
    """Raises NoSuchPartError."""
    name = str(message.get("watcherId", ""))
    if name not in sandbox.watchers:
        raise NoSuchPartError("watcher", name, tuple(sandbox.watchers))
    return sandbox.watchers[name]


async def _changes(sandbox: E2bSandbox, message: Mapping[str, Any]) -> AsyncIterator[dict[str, object]]:
    async with await _watching(sandbox, message) as watch:
        yield {"start": {}}
        async for event in watch:
            yield {"filesystem": _event(event)}


def _event(event: FileEvent) -> dict[str, str]:
    return {"name": event.path, "type": _EVENTS[event.kind]}


async def _looked_up(files: AsyncFiles, path: str) -> dict[str, Any]:
    return _entry(path, await files.stat(_inside(path)))


async def _files(sandbox: E2bSandbox) -> AsyncFiles:
    return (await sandbox.runtime()).author.files


async def _asked(request: Request) -> str:
    return _whole((await message_of(request)).get("path", ""))


def _whole(path: object) -> str:
    """The path in the form of E2B's clients."""
    if not isinstance(path, str) or not path:
        raise UsageError("name a path")
    return posixpath.normpath(posixpath.join(HOME, path))


def _inside(path: str) -> str:
    """The path in the jail: E2B's path is a link."""
    return WORKDIR + path[len(HOME) :] if path == HOME or path.startswith(f"{HOME}/") else path


def _relative(path: object) -> str:
    """The path relative to the working directory, if it is inside."""
    inside = _inside(_whole(path))
    return inside[len(WORKDIR) + 1 :] if inside.startswith(f"{WORKDIR}/") else inside


def _name(info: FileInfo) -> str:
    return info.raw.decode("utf-8", "surrogateescape") if info.raw.isascii() else info.name


def _entry(path: str, info: FileInfo) -> dict[str, Any]:
    kind = {"folder": stat.S_IFDIR, "link": stat.S_IFLNK}.get(info.kind, stat.S_IFREG)
    return {
        "name": posixpath.basename(path),
        "type": _TYPES.get(info.kind, "FILE_TYPE_UNSPECIFIED"),
        "path": path,
        "size": str(info.size),
        "mode": info.mode,
        "permissions": stat.filemode(kind | info.mode),
        "owner": "user",
        "group": "user",
        "modifiedTime": datetime.fromtimestamp(info.modified, UTC).isoformat().replace("+00:00", "Z"),
        "isSymlink": info.kind == "link",
        **({"symlinkTarget": info.target} if info.target else {}),
    }


def _written(path: str) -> dict[str, str]:
    whole = _whole(path)
    return {"name": posixpath.basename(whole), "type": "file", "path": whole}
