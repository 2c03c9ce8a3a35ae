"""The edge where a client's frames become calls: numbers, names and sizes are checked here, once.

A breach of the protocol ends the stream (ProtocolViolation); an invalid request fails only its call (UsageError).
Later code may rely on the shape of what it gets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from keyword import iskeyword
from typing import Final

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import ProtocolViolation, RejectedError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.history.events import check_author
from cenote_worker.runtime.keyed_requests import MAX_KEY
from cenote_worker.runtime.scratch_runtime import MOST
from cenote_worker.runtime.snapshots import check_label
from cenote_worker.serving.limits import (
    MAX_CODE,
    MAX_NAME,
    MAX_NAMES,
    MAX_PATH,
    MAX_UNITS,
    NEWEST_VERSION,
    OLDEST_VERSION,
)
from cenote_worker.serving.rights import RightName
from cenote_worker.supervisor.frame_parser import MAX_ENTRIES

RIGHTS: Final[Mapping[str, RightName]] = {
    "start": "read",
    "cell": "run",
    "injection": "run",
    "fetch": "read",
    "share": "share",
    "delete": "run",
    "describe": "read",
    "file": "read",
    "status": "read",
    "reset": "run",
    "network_log": "read",
    "outcome": "read",
    "history": "read",
    "snapshot": "run",
    "roll_back": "run",
    "snapshots": "read",
    "apply": "run",
    "declare": "run",
    "build": "run",
    "put_in": "read",
    "rehearse": "run",
    "run_in_full": "run",
    "store_state": "run",
    "hibernate": "run",
    "go_back_to": "run",
}
"""The fields of frames that open a call, and the right that each requires.

start: any request to a runtime without a jail starts one, even one that reads a value.
"""


_BESIDE: Final = frozenset(("fetch", "describe", "file", "history"))
"""Requests that a full run accepts."""


def check_hello(frame: runtime_pb2.ClientFrame) -> runtime_pb2.Hello:
    """Checks the first frame of a stream.

    Raises ProtocolViolation; RejectedError without a common version; UsageError for an invalid author.
    """
    if frame.WhichOneof("body") != "hello" or frame.call:
        raise ProtocolViolation("a stream begins with Hello, as call 0")
    hello = frame.hello
    if hello.oldest_version > NEWEST_VERSION or hello.newest_version < OLDEST_VERSION:
        raise RejectedError(
            f"this server speaks versions {OLDEST_VERSION} to {NEWEST_VERSION} of the runtime protocol, the client "
            f"{hello.oldest_version} to {hello.newest_version}; update the older of the two"
        )
    if not 0 < len(hello.client) <= MAX_KEY:
        raise ProtocolViolation(f"a client has a name of 1 to {MAX_KEY} characters")
    if len(hello.runtime) > MAX_NAME:
        raise ProtocolViolation(f"a runtime's name has at most {MAX_NAME} characters")
    if hello.author:
        check_author(hello.author)
    elif hello.private:
        raise UsageError("names of their own are an author's; the owner of a runtime has the common ones")
    return hello


def check(frame: runtime_pb2.ClientFrame, body: str) -> None:
    """Checks a frame that opens a call. Raises UsageError."""
    if len(frame.key) > MAX_KEY:
        raise UsageError(f"a key has at most {MAX_KEY} characters")
    if frame.beside and (body not in _BESIDE or payload_of(frame, body) is not None or _deletes(frame)):
        raise UsageError("a full run can be looked at; nothing else can be done there")
    match body:
        case "cell":
            _check_cell(frame.cell)
        case "injection":
            _check_injection(frame.injection)
        case "fetch":
            _check_fetch(frame.fetch)
        case "share":
            share = frame.share
            for name in share.together if share.together or share.states else (share.name,):
                _check_name(name)
        case "delete":
            _check_name(getattr(frame, "delete").name)  # noqa: B009  (mypy-protobuf has no word for it)
        case "file":
            _check_file(frame.file)
        case "apply":
            _check_patch(frame.apply)
        case "declare":
            _check_declaration(frame.declare)
        case "build":
            _check_seconds(frame.build.test_seconds)
        case "rehearse":
            _check_rehearsal(frame.rehearse)
        case "run_in_full" if not 0 < frame.run_in_full.number <= MOST:
            raise UsageError(f"a full run has a number from 1 to {MOST}")
        case "roll_back" if frame.roll_back.WhichOneof("target") is None:
            raise UsageError("a rollback names a step or a label")
        case "go_back_to" if frame.go_back_to.WhichOneof("target") is None:
            raise UsageError("a checkpoint is named by a number or a label")
        case "store_state":
            check_label(frame.store_state.label)


def _deletes(frame: runtime_pb2.ClientFrame) -> bool:
    return frame.file.operation == jail_pb2.FileRequest.DELETE


def payload_of(frame: runtime_pb2.ClientFrame, body: str) -> jail_pb2.Payload | None:
    """The field of the frame that announces content, if any."""
    match body:
        case "cell":
            return frame.cell.code
        case "apply":
            return frame.apply.codes
        case "rehearse":
            return frame.rehearse.source
        case "injection" if not frame.injection.reference:
            return frame.injection.values
        case "file" if frame.file.operation == jail_pb2.FileRequest.WRITE:
            return frame.file.content
        case "host_answer" if frame.host_answer.WhichOneof("body") == "value":
            return frame.host_answer.value
        case "host_answer" if frame.host_answer.WhichOneof("body") == "upload":
            return frame.host_answer.upload.content
    return None


def most_bytes(body: str, policy: SandboxPolicy) -> int:
    """The most bytes of content that such a frame may announce."""
    if body in ("cell", "apply", "rehearse"):
        return MAX_CODE
    return most_of_a_file(policy) if body == "file" else 2 * policy.memory_bytes


def most_of_a_file(policy: SandboxPolicy) -> int:
    """The most bytes of one file transfer: what the working directory may hold, and is sent as memory."""
    return min(policy.disk_bytes, 2 * policy.memory_bytes)


def _check_cell(cell: runtime_pb2.Cell) -> None:
    if not (math.isfinite(cell.timeout) and cell.timeout >= 0):
        raise UsageError(f"a timeout is a number of seconds above 0, not {cell.timeout}")


def _check_patch(apply: runtime_pb2.Apply) -> None:
    changes = [step.change for step in apply.steps if step.change]
    if any(len(change) > MAX_NAME for change in changes):
        raise UsageError(f"a change is told in at most {MAX_NAME} characters")
    if apply.codes.count != len(changes):
        raise UsageError(
            f"{len(changes)} steps are changed, and the code of {apply.codes.count} came with them"
        )


def _check_declaration(declare: runtime_pb2.Declare) -> None:
    if len(declare.units) > MAX_UNITS or any(len(unit.depends_on) > MAX_UNITS for unit in declare.units):
        raise UsageError(
            f"at most {MAX_UNITS} artifacts are declared at once, each with as many dependencies"
        )
    names = [name for unit in declare.units for name in (unit.name, unit.kind, *unit.depends_on)]
    if any(len(name) > MAX_NAME for name in names):
        raise UsageError(f"artifacts have names of at most {MAX_NAME} characters")


def _check_seconds(seconds: float) -> None:
    if not (math.isfinite(seconds) and seconds > 0):
        raise UsageError(f"a time limit is a number of seconds above 0, not {seconds}")


def _check_rehearsal(rehearse: runtime_pb2.Rehearse) -> None:
    _check_name(rehearse.name)
    _check_seconds(rehearse.seconds)
    if len(set(rehearse.steps)) != len(rehearse.steps):
        raise UsageError("a program stands for each step once")


def _check_injection(injection: runtime_pb2.Injection) -> None:
    if injection.reference and not injection.name:
        raise UsageError("an injection by reference names the variable")
    names = [injection.name, injection.replaces, *injection.names, *(host.name for host in injection.hosts)]
    if len(names) > MAX_NAMES or any(len(name) > MAX_NAME for name in names):
        raise UsageError(f"an injection has at most {MAX_NAMES} names of at most {MAX_NAME} characters")

    if injection.form != jail_pb2.PYTHON_VALUE:
        _check_form(injection)


def _check_form(injection: runtime_pb2.Injection) -> None:
    """Raises UsageError."""
    if injection.form not in jail_pb2.ValueForm.values():
        raise UsageError(f"there is no form {injection.form} of values in this version")
    if injection.reference or injection.hosts or injection.names or injection.replaces:
        raise UsageError(
            "an injection as JSON or Arrow has `values`, `name` and `replace`; send other things apart"
        )
    if not injection.name.isidentifier() or iskeyword(injection.name):
        raise UsageError("an injection as JSON or Arrow has the name of a variable in `name`")
    if injection.values.count:
        raise UsageError("JSON or Arrow is sent as it is, without a table of parts: `count` is 0")


def _check_fetch(fetch: jail_pb2.Fetch) -> None:
    """Raises UsageError."""
    _check_name(fetch.name)
    if fetch.form not in jail_pb2.ValueForm.values():
        raise UsageError(f"there is no form {fetch.form} of values in this version")
    if fetch.form != jail_pb2.PYTHON_VALUE and fetch.opaque:
        raise UsageError("a value is fetched as a pickle (`opaque`) or in another form, not both")


def _check_name(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME:
        raise UsageError(f"a variable's name has 1 to {MAX_NAME} characters")


def _check_file(request: jail_pb2.FileRequest) -> None:
    path = request.path
    if len(path) > MAX_PATH or b"\0" in path or path.startswith(b"/") or b".." in path.split(b"/"):
        raise UsageError(
            f"a path is relative, below the working directory, without '..' and of at most {MAX_PATH} bytes"
        )
    if request.operation == jail_pb2.FileRequest.LIST and request.limit > MAX_ENTRIES:
        raise UsageError(f"a folder is listed with at most {MAX_ENTRIES} entries")
