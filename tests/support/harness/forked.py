"""A replay target of real processes under the real tracker: each kept state is a forked copy that waits."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType

import cloudpickle
from tests.support.harness.kept_only import KeptOnly
from tests.support.harness.values import reachable

from cenote.harness.planning.replay_target import NotCarriedError
from cenote_worker.execution.results import ErrorInfo
from cenote_worker.execution.trace import Location, StepTrace, Version, content_version, key_of, kind_of
from cenote_worker.history.step import StepRecord
from cenote_worker.jail.tracking.tracker import Tracker
from cenote_worker.runtime.jail_requests import ClientChange

NAMESPACE: dict[str, object] = {}


class Pickler(cloudpickle.Pickler):
    """Functions of the namespace stay functions of the namespace."""

    def reducer_override(self, value: object) -> object:
        if isinstance(value, FunctionType) and value.__globals__ is NAMESPACE:
            parts = value.__code__, value.__name__, value.__defaults__, value.__closure__
            return make_function, parts, {"__dict__": value.__dict__, "__kwdefaults__": value.__kwdefaults__}
        return super().reducer_override(value)


def make_function(
    code: CodeType, name: str, defaults: tuple[object, ...] | None, closure: tuple[CellType, ...] | None
) -> FunctionType:
    return FunctionType(code, NAMESPACE, name, defaults, closure)


def close_all_but(kept: int) -> None:
    """A copy must close other connections: their readers would otherwise never see the end."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in (0, 1, 2, kept):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@dataclass(kw_only=True)
class Inside:
    """One process: a state that runs commands, or waits to be copied."""

    meaning: Callable[[dict[str, object]], object]
    steps: int = 0
    tracker: Tracker = field(init=False)

    def begin(self, folder: Path) -> None:
        module = ModuleType("__main__")
        sys.modules["__main__"] = module
        globals()["NAMESPACE"] = vars(module)
        sys.modules[__name__].NAMESPACE = vars(module)
        os.chdir(folder)
        random.seed(0)
        self.tracker = Tracker(NAMESPACE, str(folder))

    def listen(self, channel: socket.socket) -> None:
        line = Connection(channel.detach())
        while True:
            try:
                method, arguments = line.recv()
            except EOFError:
                os._exit(0)
            try:
                line.send((True, getattr(self, method)(*arguments)))
            except BaseException as raised:
                line.send((False, f"{raised!r}\n{traceback.format_exc()}"))

    def fork(self, path: str) -> None:
        """A copy of this process listens at a socket."""
        chance = random.getstate()
        if os.fork() == 0:
            random.setstate(chance)
            close_all_but(-1)
            channel = socket.socket(socket.AF_UNIX)
            channel.connect(path)
            self.listen(channel)

    def execute(self, code: str) -> tuple[str, ErrorInfo | None, StepTrace]:
        compiled = compile(code, "<step>", "exec", dont_inherit=True)
        NAMESPACE.setdefault("__builtins__", __builtins__)
        watch = self.tracker.begin(compiled)
        out, error = io.StringIO(), None
        with contextlib.redirect_stdout(out):
            try:
                exec(compiled, NAMESPACE)
            except Exception as raised:
                error = ErrorInfo(type=type(raised).__name__, message=str(raised))
        trace = watch.end(error.type if error else "")
        plain = {
            "reads": dict(trace.reads),
            "writes": dict(trace.writes),
            "unportable": dict(trace.unportable),
            "kinds": dict(trace.kinds),
        }
        return out.getvalue(), error, replace(trace, **plain)

    def versions(self, locations: list[Location]) -> dict[Location, Version]:
        return self.tracker.versions(locations)

    def dump(self, names: set[str], hidden: bool) -> bytes:
        values = {one: value for one, value in NAMESPACE.items() if one in names}
        buffer = io.BytesIO()
        Pickler(buffer).dump((values, random.getstate() if hidden else None))
        return buffer.getvalue()

    def load(self, names: set[str], data: bytes) -> None:
        values, chance = cloudpickle.loads(data)
        for one in names:
            NAMESPACE.pop(one, None)
        NAMESPACE.update(values)
        for kind in {
            part for value in values.values() for part in reachable(value) if isinstance(part, type)
        }:
            if "__slotnames__" in vars(kind):  # an attribute that pickling sets on a class
                del kind.__slotnames__
        if chance is not None:
            random.setstate(chance)
        self.tracker.forget()

    def forget(self, names: set[str]) -> None:
        for one in names:
            NAMESPACE.pop(one, None)
        self.tracker.forget()

    def means(self) -> object:
        names = {one: value for one, value in NAMESPACE.items() if not one.startswith("__")}
        return self.meaning(names), random.getstate()


class Process:
    """The parent's end of such a process."""

    def __init__(self, channel: socket.socket) -> None:
        self._line = Connection(channel.detach())

    def send(self, data: bytes) -> None:
        self._line.send_bytes(data)

    def call(self, method: str, *arguments: object) -> object:
        self._line.send((method, arguments))
        good, answer = self._line.recv()
        if not good:
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        self._line.close()


@contextlib.contextmanager
def pristine(meaning: Callable[[dict[str, object]], object]) -> Iterator[Process]:
    """The process that replay targets are forked from: a separate one, since the tests' process has gRPC threads."""
    ours, theirs = socket.socketpair()
    start = "from tests.support.harness.forked import main; main()"
    command = [sys.executable, "-c", start, str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[3])
    outer = Process(ours)
    outer.send(cloudpickle.dumps(meaning))
    try:
        yield outer
    finally:
        outer.close()
        process.wait()


def main() -> None:
    """The pristine process."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    line = Connection(os.dup(channel.fileno()))
    meaning = cloudpickle.loads(line.recv_bytes())
    line.close()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    Inside(meaning=meaning).listen(channel)


class Forked(KeptOnly):
    """A replay target. The working directory is copied as a whole for each kept state."""

    def __init__(self, origin: Process) -> None:
        """origin: see `pristine`."""
        self.root = Path(tempfile.mkdtemp(prefix="cenote-forked-"))
        (self.root / "work").mkdir()
        self.records: dict[int, StepRecord] = {}
        self.states: dict[int, Process] = {}
        self.executed: list[str] = []
        self.contents: dict[str, bytes] = {}
        self._number = self._head = 0
        self.live = self._copy(origin)
        self.live.call("begin", self.root / "work")
        self.keep()

    def close(self) -> None:
        for process in (*self.states.values(), self.live):
            process.close()
        shutil.rmtree(self.root)

    def _copy(self, process: Process) -> Process:
        path = str(self.root / "fork")
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path)
            door.listen()
            process.call("fork", path)
            accepted = door.accept()[0]
        os.unlink(path)
        return Process(accepted)

    # -- of a replay target --

    def head(self) -> int:
        return self._head

    def kept(self) -> frozenset[int]:
        return frozenset(self.states)

    def holding(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def keep(self, *, partial: bool = False) -> bool:
        if self._head not in self.states:
            self.states[self._head] = self._copy(self.live)
            shutil.copytree(self.root / "work", self.root / f"files {self._head}")
        return True

    def rollback(self, step: int) -> tuple[str, ...]:
        self.live.close()
        self.live = self._copy(self.states[step])
        self._clear()
        shutil.copytree(self.root / f"files {step}", self.root / "work", dirs_exist_ok=True)
        self._head = step
        return ()

    def _clear(self) -> None:
        for path in (self.root / "work").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def branch(self, step: int) -> None:
        self._head = step

    def execute(self, record: StepRecord | None, code: str, *, tentative: bool = False) -> StepRecord:
        if record is not None and record.changes_file:
            return self.upload(record.names[0], self.contents[record.content], stands_for=record)
        self.executed.append(code)
        self._number += 1
        stdout, error, trace = self.live.call("execute", code)
        new = StepRecord(
            number=self._number,
            parent=self._head,
            origin=record.number if record else 0,
            code=code,
            status="failed" if error else "ok",
            stdout=stdout,
            error=error,
            trace=trace,
            duration=1.0,
        )
        return self._add(new)

    def upload(self, path: str, data: bytes, *, stands_for: StepRecord | None = None) -> StepRecord:
        """A client writes a file."""
        self._number += 1
        (self.root / "work" / path).parent.mkdir(exist_ok=True)
        (self.root / "work" / path).write_bytes(data)
        self.contents[content := content_version(data)] = data
        change = ClientChange(
            kind="upload", names=(path,), data=data, number=self._number, stands_for=stands_for
        )
        return self._add(
            StepRecord(
                number=self._number,
                parent=self._head,
                origin=stands_for.number if stands_for else 0,
                kind="upload",
                names=(path,),
                content=content,
                trace=change.trace(),
            )
        )

    def _add(self, record: StepRecord) -> StepRecord:
        self.records[record.number] = record
        self._head = record.number
        return record

    def reuse(self, record: StepRecord) -> StepRecord:
        self._number += 1
        return self._add(
            replace(record, number=self._number, parent=self._head, origin=record.number, outcome="reused")
        )

    def versions(self, locations: Iterable[Location], author: str = "") -> Mapping[Location, Version]:
        return self.live.call("versions", list(locations))

    def carry(self, step: int, locations: frozenset[Location]) -> None:
        names = {key_of(one) for one in locations if kind_of(one) == "name"}
        if odd := [one for one in locations if kind_of(one) == "hidden" and key_of(one) != "random"]:
            raise NotCarriedError(odd, "this ground does not know how")
        try:
            data = self.states[step].call("dump", names, any(kind_of(one) == "hidden" for one in locations))
            self.live.call("load", names, data)
        except RuntimeError as error:
            raise NotCarriedError(locations, str(error)) from None
        for path in (key_of(one) for one in locations if kind_of(one) == "file" and key_of(one) != "."):
            (self.root / "work" / path).unlink(missing_ok=True)
            if (self.root / f"files {step}" / path).exists():
                shutil.copy(self.root / f"files {step}" / path, self.root / "work" / path)

    def forget(self, locations: frozenset[Location]) -> None:
        self.live.call("forget", {key_of(one) for one in locations if kind_of(one) == "name"})
        for path in (key_of(one) for one in locations if kind_of(one) == "file"):
            (self.root / "work" / path).unlink(missing_ok=True)

    def arrange(self, names: Sequence[Location], *, whole: bool) -> None:
        """Programs in these tests do not depend on the order."""

    def load(self, modules: tuple[str, ...]) -> None:
        for one in modules:
            self.live.call("execute", f"import {one} as _; del _")

    # -- of a test --

    def line(self) -> list[StepRecord]:
        found, number = [], self._head
        while number:
            found.append(self.records[number])
            number = self.records[number].parent
        return found[::-1]

    def meaning(self) -> object:
        files = {path.name: path.read_bytes() for path in sorted((self.root / "work").iterdir())}
        return self.live.call("means"), files
