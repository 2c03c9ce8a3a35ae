"""A runtime as a client of the HTTP interface has it, with the methods of PythonRuntime that the interface offers.

Errors are raised by the names that the interface gives them, so that behaviour tests can be run over it unchanged.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter

from cenote_security.errors import CenoteError
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import ErrorInfo, Rollback, SnapshotInfo

_ERROR = TypeAdapter(ErrorInfo | None)


class HttpRuntime:
    """client: with the server's address and a token. name: of a runtime that this makes."""

    def __init__(self, client: httpx.Client, name: str, sandbox: SandboxPolicy | None = None) -> None:
        self.name = name
        self.files = _Files(self)
        self._client = client
        self._path = f"/v1/runtimes/{name}"
        policy = {} if sandbox is None else {"policy": json.loads(sandbox.to_json())}
        self.isolation = self.ask("PUT", "", json=policy).json()["isolation"]

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The answer; a refusal is raised."""
        return _checked(self._client.request(method, self._path + path, **more))

    # -- cells --

    def execute(
        self,
        code: str,
        timeout: float | None = None,
        on_output: Callable[[str, str], object] | None = None,
        *,
        on_error: str = "keep",
    ) -> Any:
        body = json.dumps({"code": code, "timeout": timeout, "on_error": on_error})
        if on_output is None:
            return _result(self.ask("POST", "/cells", content=body).json())
        asked = {"content": body, "headers": {"accept": "application/x-ndjson"}}
        with self._client.stream("POST", self._path + "/cells", **asked) as answer:
            if answer.status_code != 200:
                answer.read()
                _checked(answer)
            heard: list[tuple[str, str]] = []
            for line in answer.iter_lines():
                event = json.loads(line)
                if event["type"] == "result":
                    found = _result(event["data"])
                    runs = groupby(heard, itemgetter(0))
                    found.printed = [(stream, "".join(text for _, text in run)) for stream, run in runs]
                    return found
                heard.append((event["type"], event["data"]))
                on_output(*heard[-1])
        raise AssertionError("a stream without a result")

    def interrupt(self) -> bool:
        return bool(self.ask("POST", "/interrupt").json()["interrupted"])

    def run(self, command: str | Sequence[str], **options: Any) -> SimpleNamespace:
        ended = SimpleNamespace(**self.ask("POST", "/programs", json={"command": command, **options}).json())
        ended.success, ended.killed_by = ended.exit_code == 0, ended.killed_by or None
        return ended

    # -- variables --

    def describe(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(**each) for each in self.ask("GET", "/variables").json()]

    def retrieve(self, name: str) -> Any:
        return self.ask("GET", f"/variables/{_quoted(name)}").json()

    def update_variable(self, name: str, value: object) -> None:
        self.ask("PUT", f"/variables/{_quoted(name)}", json=value)

    def delete(self, name: str) -> None:
        self.ask("DELETE", f"/variables/{_quoted(name)}")

    # -- states --

    def snapshot(self, label: str | None = None) -> SnapshotInfo:
        return _snapshot(self.ask("POST", "/snapshots", json={"label": label}).json())

    def snapshots(self) -> tuple[SnapshotInfo, ...]:
        return tuple(map(_snapshot, self.ask("GET", "/snapshots").json()))

    def rollback(self, to: int | str) -> Rollback:
        back = self.ask("POST", "/rollback", json={"to": to}).json()
        return Rollback(
            **{key: tuple(each) if isinstance(each, list) else each for key, each in back.items()}
        )

    def close(self) -> None:
        """Ends it, if it is there. It has ended with its platform where the line to that is closed."""
        if self._client.is_closed:
            return
        answer = self._client.delete(self._path)
        assert answer.status_code in (204, 404), answer.text


class _Files:
    def __init__(self, runtime: HttpRuntime) -> None:
        self._runtime = runtime

    def read(self, path: object) -> bytes:
        return self._runtime.ask("GET", f"/files/{_quoted(path)}").content

    def write(self, path: object, data: str | bytes, *, overwrite: bool = True) -> None:
        assert overwrite, "over HTTP a file is always replaced"
        content = data.encode() if isinstance(data, str) else data
        self._runtime.ask("PUT", f"/files/{_quoted(path)}", content=content)

    def list(self, path: str = "") -> list[SimpleNamespace]:
        found = self._runtime.ask("GET", "/files", params={"path": path}).json()
        return [SimpleNamespace(**each) for each in found]

    def delete(self, path: object) -> None:
        self._runtime.ask("DELETE", f"/files/{_quoted(path)}")


def _quoted(name: object) -> str:
    return quote(str(name), safe="/")


def _result(data: dict[str, Any]) -> SimpleNamespace:
    outputs = [
        {mime: base64.b64decode(text) if mime.startswith("image/p") else text for mime, text in each.items()}
        for each in data.pop("outputs")
    ]
    error = _ERROR.validate_python(data.pop("error"))
    return SimpleNamespace(**data, outputs=outputs, error=error)


def _snapshot(data: dict[str, Any]) -> SnapshotInfo:
    return TypeAdapter(SnapshotInfo).validate_python(data)


def _kinds(kind: type[CenoteError]) -> Iterator[type[CenoteError]]:
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ != __name__:
            yield from _kinds(each)


def _checked(answer: httpx.Response) -> httpx.Response:
    """Raises what was refused, with its text."""
    if answer.is_success:
        return answer
    said = answer.json()["error"]
    (kind,) = {each for each in _kinds(CenoteError) if each.__name__ == said["type"]}

    class Refused(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            Exception.__init__(self, said["message"])

        def __str__(self) -> str:
            return str(said["message"])

    raise Refused
