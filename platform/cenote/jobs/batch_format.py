"""Files of OpenAI's batch API as input and output of jobs: requests become tasks of agents, results become responses.

Each line is {"custom_id", "method", "url", "body"} on the way in, {"id", "custom_id", "response", "error"} on the way
out. Values only, but for the file that is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, index
from typing import Any, Final, Literal, overload

from cenote.jobs.checks import BadLines
from cenote.jobs.reports import TaskResult
from cenote.jobs.source import Source, Spool, objects_of
from cenote_security.errors import UsageError

Endpoint = Literal["chat", "responses"]

_ENDPOINTS: Final[Mapping[str, Endpoint]] = {"/v1/chat/completions": "chat", "/v1/responses": "responses"}

_PARAMETERS: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_completion_tokens",
    "max_output_tokens": "max_tokens",
    "stop": "stop",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "reasoning_effort": "reasoning_effort",
    "verbosity": "verbosity",
}
"""Of a body, and what a ModelSpec calls them."""

_WITHOUT_EFFECT: Final = frozenset({"metadata", "user", "store", "safety_identifier", "prompt_cache_key"})
"""Parts of a body that say nothing about its answer."""

_DEFAULTS: Final[Mapping[str, object]] = {"n": 1, "stream": False, "tools": [], "logprobs": False}
"""Parts of a body that are taken with this value alone, which is that of a request without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a batch file asks for. tasks: for `Jobs.submit`; they lie in a temporary file, not in memory.

    model, parameters: of all requests, for a ModelSpec.

    endpoint: what the requests are for, and the form of their responses.
    """

    tasks: Sequence[Mapping[str, str]]
    model: str
    parameters: Mapping[str, object]
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class _Request:
    line: int
    name: str
    text: str
    endpoint: Endpoint
    model: str
    parameters: tuple[tuple[str, object], ...]


class _WrongError(Exception):
    """Why a line is no request that an agent can answer."""


class _SpooledTasks(Sequence[Mapping[str, str]]):
    """The tasks of a batch."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def __len__(self) -> int:
        return len(self._spool)

    @overload
    def __getitem__(self, place: int) -> Mapping[str, str]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Mapping[str, str]]: ...
    def __getitem__(self, place: int | slice) -> Mapping[str, str] | Sequence[Mapping[str, str]]:
        numbers = range(len(self))[place if isinstance(place, slice) else index(place)]
        return self._task(numbers) if isinstance(numbers, int) else [self._task(each) for each in numbers]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return f"<{len(self)} tasks>"

    def _task(self, number: int) -> Mapping[str, str]:
        name, text = json.loads(self._spool.get(number))
        return {"id": name, "task": text}


def read_batch(source: Source) -> Batch:
    """source: a path, or dictionaries.

    A request's texts become one task; a job has one model with one set of parameters, so all requests must have the
    same. Raises BadTasksError for lines that are no such requests, UsageError for a file that cannot be read.
    """
    first: _Request | None = None
    spool, bad = Spool(), BadLines()
    for number, given in objects_of(source):
        try:
            request = _request(number, given)
            first = first or request
            if different := _difference(first, request):
                raise _WrongError(f"its {different} is not that of line {first.line}: a job has one")
            spool.add(json.dumps([request.name, request.text]).encode())
        except _WrongError as error:
            bad.note(number, str(error))
    bad.raise_any()
    if first is None:
        raise UsageError("a batch has at least one request")
    return Batch(
        tasks=_SpooledTasks(spool),
        model=first.model,
        parameters=dict(first.parameters),
        endpoint=first.endpoint,
    )


def _difference(one: _Request, other: _Request) -> str:
    for name, what in (("endpoint", '"url"'), ("model", '"model"'), ("parameters", "set of parameters")):
        if getattr(one, name) != getattr(other, name):
            return what
    return ""


def _request(number: int, given: object) -> _Request:
    if isinstance(given, UsageError):
        raise _WrongError(str(given))
    if not isinstance(given, Mapping):
        raise _WrongError('it is no object with "custom_id", "method", "url" and "body"')
    name, url, body = given.get("custom_id"), given.get("url"), given.get("body")
    if not isinstance(name, str) or not name:
        raise _WrongError('it has no "custom_id", a text')
    if given.get("method", "POST") != "POST" or not isinstance(url, str) or url not in _ENDPOINTS:
        known = " and ".join(f"POST {each}" for each in _ENDPOINTS)
        raise _WrongError(f"requests are {known}, not {given.get('method')!s:.20} {url!s:.100}")
    if not isinstance(body, Mapping):
        raise _WrongError('it has no "body", an object')
    endpoint = _ENDPOINTS[url]
    messages = list(_messages(body, endpoint))
    if not messages:
        raise _WrongError("its body has no messages")
    return _Request(number, name, _task(messages), endpoint, str(body.get("model", "")), _parameters(body))


def _messages(body: Mapping[Any, Any], endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    """Roles and texts."""
    if endpoint == "responses" and body.get("instructions"):
        yield "system", _text(body["instructions"])
    given = body.get("messages" if endpoint == "chat" else "input")
    if isinstance(given, str):
        yield "user", given
        return
    if not isinstance(given, list):
        raise _WrongError("its body has no list of messages")
    for message in given:
        if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
            raise _WrongError(f"its messages are of {', '.join(_ROLES)}, unlike {message!r:.100}")
        yield str(message["role"]), _text(message.get("content"))


_ROLES: Final = ("system", "developer", "user", "assistant")


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            raise _WrongError(
                "its messages are texts: agents of a job get no images, files or calls of tools"
            )
        texts.append(text)
    return "\n".join(texts)


def _task(messages: Sequence[tuple[str, str]]) -> str:
    """One message as it is; several with their roles."""
    if len(messages) == 1:
        return messages[0][1]
    return "\n\n".join(f"[{role}]\n{text}" for role, text in messages)


def _parameters(body: Mapping[Any, Any]) -> tuple[tuple[str, object], ...]:
    found: dict[str, object] = {}
    for name, value in body.items():
        if name in ("model", "messages", "input", "instructions") or name in _WITHOUT_EFFECT or value is None:
            continue
        if name in _DEFAULTS and value == _DEFAULTS[name]:
            continue
        if name == "reasoning" and isinstance(value, Mapping) and set(value) == {"effort"}:
            found["reasoning_effort"] = value["effort"]
        elif name in _PARAMETERS:
            found[_PARAMETERS[name]] = value
        else:
            raise _WrongError(f"its body has {str(name)[:50]!r}: agents of a job work without it")
    return tuple(sorted(found.items(), key=lambda pair: pair[0]))


def batch_line(
    result: TaskResult, *, job: str, model: str, endpoint: Endpoint, created: float
) -> dict[str, Any]:
    """A result as a line of a batch's output. created: seconds since the epoch.

    What the form has no place for is under `cenote`: index, status, attempts, tokens, cost. A task that did not
    succeed has no response and an error with its reason.
    """
    name = f"{job}-{result.index}"
    line: dict[str, Any] = {
        "id": f"batch_req_{name}",
        "custom_id": result.id,
        "response": None,
        "error": None,
    }
    if result.succeeded:
        text = result.answer if result.value is None else json.dumps(result.value, ensure_ascii=False)
        body = _BODIES[endpoint](name, text, model, int(created))
        line["response"] = {"status_code": 200, "request_id": name, "body": body}
    else:
        error = result.error
        code = result.status if error is None else error.reason
        line["error"] = {"code": code, "message": "it was cancelled" if error is None else str(error)}
    own = ("index", "status", "attempts", "tokens", "cost")
    line["cenote"] = {part: getattr(result, part) for part in own}
    return line


def _chat(name: str, text: str, model: str, created: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
    }


def _response(name: str, text: str, model: str, created: int) -> dict[str, Any]:
    content = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "id": f"msg-{name}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [content],
    }
    return {
        "id": f"resp-{name}",
        "object": "response",
        "created_at": created,
        "model": model,
        "status": "completed",
        "output": [message],
    }


_BODIES: Final = {"chat": _chat, "responses": _response}
