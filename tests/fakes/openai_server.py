"""A server of OpenAI's chat completions on loopback that answers, and misbehaves, by a scenario.

    with OpenAIServer([refusal(429, headers={"retry-after": "2"}), answer("Hello")]) as server:
        model = OpenAIServerModel("any", api_key="k", base_url=server.url, trust_env=False)

Each request takes the next reply. The requests are in `server.requests`.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, TypeAlias

Ending: TypeAlias = Literal["close", "drop", "stall", "ping"]
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One response: its parts are sent one by one, each flushed on its own.

    ending: `close` ends the body properly; `drop` resets the connection before the end; `stall` sends
        nothing more until the client hangs up; `ping` sends `idle` again and again until then.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    parts: tuple[bytes, ...] = ()
    ending: Ending = "close"
    idle: bytes = b": ping\n\n"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request of a client."""

    path: str
    headers: Mapping[str, str]  # by lower-case name
    body: Mapping[str, Any]


# -- replies ----------------------------------------------------------------------------------------------


def event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n\n"


def chunk(**members: object) -> bytes:
    """An event with one chunk of a completion."""
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "fake", **members})


def delta(text: str, finish_reason: str | None = None, **members: object) -> bytes:
    said = {"index": 0, "delta": {"content": text, **members}, "finish_reason": finish_reason}
    return chunk(choices=[said])


def finish(reason: str = "stop") -> bytes:
    return chunk(choices=[{"index": 0, "delta": {}, "finish_reason": reason}])


def usage(prompt: int, completion: int, cached: int = 0) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return chunk(choices=[], usage=counts | {"prompt_tokens_details": {"cached_tokens": cached}})


def stream(*parts: bytes, ending: Ending = "close", idle: bytes = b": ping\n\n") -> Reply:
    return Reply(parts=parts, ending=ending, idle=idle)


def answer(text: str, *, reason: str = "stop", report: bytes = b"") -> Reply:
    """A well-formed answer in two deltas, with the usage that `report` holds."""
    half = len(text) // 2
    return stream(delta(text[:half]), delta(text[half:]), finish(reason), report, DONE)


def refusal(status: int, body: object = None, *, headers: Mapping[str, str] | None = None) -> Reply:
    """An error response: a dict is sent as JSON, bytes unchanged."""
    payload = {"error": {"message": f"status {status}", "type": "test"}} if body is None else body
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Reply(
        status=status, headers={"content-type": "application/json", **(headers or {})}, parts=(data,)
    )


def bytewise(reply: Reply) -> Reply:
    """The same reply, cut at every byte."""
    data = b"".join(reply.parts)
    return Reply(
        status=reply.status,
        headers=reply.headers,
        parts=tuple(data[i : i + 1] for i in range(len(data))),
        ending=reply.ending,
    )


# -- server -----------------------------------------------------------------------------------------------


class OpenAIServer:
    """Serves a scenario from its own threads; a request beyond it gets status 418.

    pages: JSON by path, for GET; other paths are not found. `pages_asked` has the requested paths.
    """

    def __init__(self, scenario: Iterable[Reply], pages: Mapping[str, object] | None = None) -> None:
        self.pages = dict(pages or {})
        self.pages_asked: list[str] = []
        self.requests: list[Request] = []
        self.hung_up = threading.Event()  # a client closed a connection that stalls
        self._replies = list(scenario)
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.scenario = self
        self.address: tuple[str, int] = ("127.0.0.1", self._http.server_address[1])
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.address[1]}/v1"

    def take(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            return self._replies.pop(0) if self._replies else refusal(418)

    def __enter__(self) -> OpenAIServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    scenario: OpenAIServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.scenario.take(Request(path=self.path, headers=headers, body=body)))

    def do_GET(self) -> None:
        scenario = self.server.scenario
        scenario.pages_asked.append(self.path)
        found = scenario.pages.get(self.path)
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        self._send(refusal(404) if found is None else Reply(parts=(body,)))

    def _send(self, reply: Reply) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send_response(reply.status)
        for name, value in {**reply.headers, "transfer-encoding": "chunked", "connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        for part in filter(None, reply.parts):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self._end(reply)

    def _end(self, reply: Reply) -> None:
        if reply.ending == "close":
            self.wfile.write(b"0\r\n\r\n")
        elif reply.ending == "drop":
            # Lingering for no time makes close() send a reset instead of an orderly end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif reply.ending == "ping":
            self._ping(reply.idle)
        elif self._gone():
            self.server.scenario.hung_up.set()

    def _ping(self, data: bytes) -> None:
        scenario = self.server.scenario
        try:
            while not scenario.hung_up.wait(0.01):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        except OSError:
            scenario.hung_up.set()

    def _gone(self) -> bool:
        """Whether the client has gone, at its next action: one that closes with unread data resets the connection."""
        try:
            return not self.connection.recv(1)
        except ConnectionResetError:
            return True
