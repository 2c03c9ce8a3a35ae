"""A replay target in one process, over plain dicts, with a simple and complete tracker."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from types import CodeType, FunctionType

from tests.support.harness.kept_only import KeptOnly
from tests.support.harness.values import Stream, canonical, clone, is_shared, reachable

from cenote.harness.patching.patched_history import LineStep
from cenote.harness.planning.replay_target import EffectNotRepeatedError, NotCarriedError
from cenote.harness.record.code_names import mentioned_names
from cenote_security.errors import NotKeptError
from cenote_worker.execution.results import ErrorInfo
from cenote_worker.execution.trace import (
    ABSENT,
    Location,
    StepTrace,
    Version,
    file,
    hidden,
    key_of,
    kind_of,
    name,
)
from cenote_worker.history.step import HostCallRecord, StepRecord

RANDOM = hidden("random")


@dataclass(kw_only=True)
class State:
    """Everything that a program of the laboratory can change."""

    namespace: dict[str, object] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    random: int = 0

    def copy(self) -> State:
        namespace: dict[str, object] = {}
        names = {key: value for key, value in self.namespace.items() if key != "__builtins__"}
        namespace.update(clone(names, namespace))
        return State(namespace=namespace, files=dict(self.files), random=self.random)

    def names(self) -> dict[str, object]:
        return {key: value for key, value in self.namespace.items() if key != "__builtins__"}

    def meaning(self) -> tuple[str, dict[str, str], int]:
        """Equal for states that programs cannot distinguish."""
        return canonical(self.names(), lambda stream: stream.at), dict(self.files), self.random


@dataclass(kw_only=True)
class World:
    """The outside: an external call changes it, and later answers depend on that."""

    effects: list[object] = field(default_factory=list)

    def call(self, argument: object) -> str:
        self.effects.append(argument)
        return f"e{len(self.effects)}"


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What the tracker sees of a state at one moment: all versions, and which names share objects."""

    versions: Mapping[Location, Version]
    components: Mapping[str, frozenset[str]]
    mentions: Mapping[str, frozenset[str]]

    def version(self, location: Location) -> Version:
        return self.versions.get(location, ABSENT)

    def closure(self, roots: Iterable[str]) -> set[str]:
        """Names that code can reach, with all that share objects with them."""
        found: set[str] = set()
        pending = set(roots)
        while pending:
            one = pending.pop()
            if one not in found:
                found.add(one)
                pending |= self.components.get(one, frozenset()) | self.mentions.get(one, frozenset())
        return found


def look(state: State, by_name: bool) -> Sight:
    """by_name: each name has its own version, and the later of two that share objects mentions the sharing."""
    names = state.names()
    parent = {one: one for one in names}
    owner: dict[int, str] = {}
    mentions: dict[str, frozenset[str]] = {}
    holds: dict[str, dict[int, int]] = {}

    def root(one: str) -> str:
        while parent[one] != one:
            one = parent[one]
        return one

    for one, value in names.items():
        found: set[str] = set()
        holds[one] = {}
        for index, part in enumerate(reachable(value)):
            if is_shared(part):
                holds[one][id(part)] = index
                parent[root(one)] = root(owner.setdefault(id(part), one))
            if isinstance(part, FunctionType):
                found |= _names_of(part.__code__)
        mentions[one] = frozenset(found)
    groups: dict[str, set[str]] = {}
    for one in names:
        groups.setdefault(root(one), set()).add(one)
    versions = {RANDOM: Version(str(state.random))}
    versions.update({file(path): Version(f"text {text}") for path, text in state.files.items()})
    components: dict[str, frozenset[str]] = {}
    for group in groups.values():
        texts = _texts(group, names, holds) if by_name else dict.fromkeys(group, _text(group, names))
        versions.update(
            {name(one): Version(hashlib.md5(text.encode()).hexdigest()) for one, text in texts.items()}
        )
        components.update(dict.fromkeys(group, frozenset(group)))
    return Sight(versions=versions, components=components, mentions=mentions)


def _text(group: set[str], names: Mapping[str, object]) -> str:
    return canonical({one: names[one] for one in group}, lambda stream: stream.stamp)


def _texts(
    group: set[str], names: Mapping[str, object], holds: Mapping[str, dict[int, int]]
) -> dict[str, str]:
    texts: dict[str, str] = {}
    for one in names:
        if one in group:
            shared = [
                (older, holds[older][part], index)
                for older in texts
                for part, index in holds[one].items()
                if part in holds[older]
            ]
            texts[one] = f"{_text({one}, {one: names[one]})}{shared}"
    return texts


@cache
def _compiled(code: str) -> CodeType:
    return compile(code, "<step>", "exec", dont_inherit=True)


@cache
def _mentioned(code: str) -> frozenset[str]:
    return mentioned_names(code)


@cache
def _overwritten(code: str) -> frozenset[str]:
    """The name that the first statement binds, if the value does not depend on it."""
    first = ast.parse(code).body[0]
    match first:
        case ast.Assign(targets=[ast.Name(id=target)]) if not any(
            isinstance(node, ast.Call) or (isinstance(node, ast.Name) and node.id == target)
            for node in ast.walk(first.value)
        ):
            return frozenset((target,))
    return frozenset()


@cache
def _names_of(code: CodeType) -> frozenset[str]:
    inner = [_names_of(one) for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(code.co_names).union(*inner)


def is_rebound(before: object, after: object) -> bool:
    return before is not after and is_shared(after)


class Laboratory(KeptOnly):
    """A replay target. states: kept end states, by step; kept_all: the states of all steps are kept."""

    def __init__(self, world: World | None = None, *, tracks: bool = True, by_name: bool = False) -> None:
        self.tracks, self.by_name = tracks, by_name
        self.world = world or World()
        self.state = State()
        self.records: dict[int, StepRecord] = {}
        self.states: dict[int, State] = {0: State()}
        self.executed: list[str] = []
        self.uploaded: dict[int, str] = {}
        """By step: the content of its file, whether or not the record has it."""
        self.answers_only = False
        self._head = 0
        self._number = 0

    # -- of a replay target --

    def head(self) -> int:
        return self._head

    def kept(self) -> frozenset[int]:
        return frozenset(self.states)

    def holding(self) -> AbstractContextManager[None]:
        return nullcontext()

    def keep(self, *, partial: bool = False) -> bool:
        self.states[self._head] = self.state.copy()
        return True

    def rollback(self, step: int) -> tuple[str, ...]:
        if step not in self.states:
            raise NotKeptError(step)
        self.state = self.states[step].copy()
        self._head = step
        return ()

    def branch(self, step: int) -> None:
        self._head = step

    def execute(self, record: StepRecord | None, code: str, *, tentative: bool = False) -> StepRecord:
        if record is not None and record.changes_file:
            assert record.repeatable or not self.tracks
            return self._put(record, self.uploaded[record.number])
        self.executed.append(code)
        run = _Run(self, record, tentative)
        self._number += 1
        new = run.run(code, self._number)
        return self._add(replace(new, parent=self._head, origin=record.number if record else 0))

    def upload(self, path: str, text: str, *, kept: bool = True) -> StepRecord:
        """A client writes a file. Its text stands for its digest."""
        trace = StepTrace(writes={file(path): Version(f"text {text}")})
        content = text if kept else ""
        record = StepRecord(number=0, kind="upload", names=(path,), content=content, trace=trace)
        return self._put(record, text)

    def _put(self, record: StepRecord, text: str) -> StepRecord:
        self._number += 1
        self.state.files[record.names[0]] = text
        if self.tracks:  # otherwise the numbers belong to another history
            self.uploaded[self._number] = text
        return self._add(
            replace(record, number=self._number, parent=self._head, origin=record.number, outcome="executed")
        )

    def reuse(self, record: StepRecord) -> StepRecord:
        self._number += 1
        if record.number in self.uploaded:
            self.uploaded[self._number] = self.uploaded[record.number]
        return self._add(
            replace(record, number=self._number, parent=self._head, origin=record.number, outcome="reused")
        )

    def versions(self, locations: Iterable[Location], author: str = "") -> Mapping[Location, Version]:
        sight = look(self.state, self.by_name)
        return {location: sight.version(location) for location in locations}

    def carry(self, step: int, locations: frozenset[Location]) -> None:
        if step not in self.states:
            raise NotCarriedError(locations, "that state is kept no more")
        source = self.states[step]
        here = {key_of(one) for one in locations if kind_of(one) == "name"}
        values = {one: value for one, value in source.namespace.items() if one in here}
        if any(isinstance(part, Stream) for value in values.values() for part in reachable(value)):
            raise NotCarriedError(locations, "a stream cannot be stored")
        self.forget(frozenset(one for one in locations if one != RANDOM))
        self.state.namespace.update(clone(values, self.state.namespace))
        for one in locations:
            if kind_of(one) == "file" and key_of(one) in source.files:
                self.state.files[key_of(one)] = source.files[key_of(one)]
            elif one == RANDOM:
                self.state.random = source.random

    def forget(self, locations: frozenset[Location]) -> None:
        for one in locations:
            place = self.state.files if kind_of(one) == "file" else self.state.namespace
            place.pop(key_of(one), None)

    def arrange(self, names: Sequence[Location], *, whole: bool) -> None:
        """Programs in these tests do not depend on the order."""

    def load(self, modules: tuple[str, ...]) -> None: ...

    # -- of a test --

    def _add(self, record: StepRecord) -> StepRecord:
        self.records[record.number] = record
        self._head = record.number
        return record

    def line(self) -> list[StepRecord]:
        """The steps from the start to the head."""
        found, number = [], self._head
        while number:
            found.append(self.records[number])
            number = self.records[number].parent
        return found[::-1]

    def run_line(self, line: Sequence[LineStep]) -> list[StepRecord]:
        """Runs the whole line in full."""
        return [self.execute(step.origin, step.code) for step in line]


class _Run:
    """One step: the functions that its program calls, and the accesses that they recorded."""

    def __init__(self, laboratory: Laboratory, record: StepRecord | None, tentative: bool) -> None:
        self.laboratory = laboratory
        self.state = laboratory.state
        self.answers = list(record.host_calls) if record else []
        self.tentative = tentative
        self.stdout: list[str] = []
        self.calls: list[HostCallRecord] = []
        self.used: set[Location] = set()
        self.opaque: list[str] = []
        self.unrepeatable: list[str] = []

    def run(self, code: str, number: int) -> StepRecord:
        before = look(self.state, self.laboratory.by_name) if self.laboratory.tracks else None
        self.bound = self.state.names()
        self.error = error = self._exec(code)
        new = StepRecord(
            number=number,
            code=code,
            status="failed" if error else "ok",
            stdout="".join(self.stdout),
            error=error,
            host_calls=tuple(self.calls),
            duration=1.0,
        )
        return new if before is None else replace(new, trace=self._trace(code, number, before))

    def _trace(self, code: str, number: int, before: Sight) -> StepTrace:
        after = look(self.state, self.laboratory.by_name)
        # For a failed step it is unknown here whether it came so far as to bind its first name.
        overwritten = frozenset[str]() if self.error else _overwritten(code)
        left = {one for x in overwritten for one in before.components.get(x, ())} - overwritten
        read = before.closure(_mentioned(code) - overwritten) | left
        names = read | after.closure(_mentioned(code))
        if self._stamp(names, number):
            after = look(self.state, self.laboratory.by_name)
        locations = {name(one) for one in names if one not in FUNCTIONS} | self.used
        reads = {one: before.version(one) for one in locations if key_of(one) not in overwritten - read}
        seen = before.versions.keys() | after.versions.keys()
        changed = {one: after.version(one) for one in seen if before.version(one) != after.version(one)}
        # The laboratory tests plans, not trackers: its own must see everything.
        assert self.opaque or changed.keys() <= locations
        # An equal value may be another object, which no longer shares what the old one did.
        rebound = {one for one, value in self.state.names().items() if is_rebound(self.bound.get(one), value)}
        changed.update({name(one): after.version(name(one)) for one in overwritten | rebound})
        groups = {group for one, group in after.components.items() if name(one) in changed}
        return StepTrace(
            reads=reads,
            writes=changed,
            mutated=frozenset(one for one in changed if self.bound.get(key_of(one)) is self._value(one)),
            groups=tuple(frozenset(name(one) for one in group) for group in groups),
            opaque=tuple(self.opaque),
            unrepeatable=tuple(self.unrepeatable),
            unportable={one: "a stream cannot be stored" for one in changed if self._streams({key_of(one)})},
        )

    def _value(self, location: Location) -> object:
        return self.state.namespace.get(key_of(location))

    def _streams(self, names: set[str]) -> list[Stream]:
        values = [self.state.namespace.get(one) for one in names]
        return [part for value in values for part in reachable(value) if isinstance(part, Stream)]

    def _stamp(self, names: set[str], number: int) -> bool:
        """Any code that can reach a stream may have changed it."""
        streams = self._streams(names)
        for stream in streams:
            stream.stamp = f"after {number}"
        return bool(streams)

    def _exec(self, code: str) -> ErrorInfo | None:
        self.state.namespace["__builtins__"] = {
            "len": len,
            "list": list,
            "str": str,
            "__build_class__": __build_class__,
            "__name__": "lab",
            "ValueError": ValueError,
            **{function: getattr(self, f"_{function}") for function in FUNCTIONS},
        }
        try:
            exec(_compiled(code), self.state.namespace)
        except EffectNotRepeatedError:
            raise
        except Exception as raised:
            return ErrorInfo(type=type(raised).__name__, message=str(raised))
        finally:
            self.state.namespace.pop("__builtins__")
        return None

    # -- what programs call --

    def _show(self, value: object) -> None:
        self.stdout.append(canonical({"": value}, lambda stream: stream.at) + "\n")

    def _write(self, path: str, value: object) -> None:
        self.used.add(file(path))
        self.state.files[path] = str(value) if isinstance(value, int | str) else "object"

    def _read(self, path: str) -> str:
        self.used.add(file(path))
        return self.state.files[path]

    def _remove(self, path: str) -> None:
        self.used.add(file(path))
        del self.state.files[path]

    def _rand(self) -> int:
        self.used.add(RANDOM)
        self.state.random = (self.state.random * 31 + 7) % 1009
        return self.state.random

    def _seed(self, value: int) -> None:
        self.used.add(RANDOM)
        self.state.random = value

    def _clock(self) -> int:
        self.unrepeatable.append("it asks for the time")
        return 42

    def _stream(self) -> Stream:
        return Stream()

    def _take(self, stream: object) -> int:
        if not isinstance(stream, Stream):
            raise ValueError("no stream")
        stream.at += 1
        return stream.at

    def _anything(self, code: str) -> None:
        self.opaque.append("it runs code that it makes")
        exec(code, self.state.namespace)

    def _pure(self, argument: int) -> int:
        return 2 * len(str(argument))

    def _external(self, argument: object) -> str:
        answer = self._answered("external", argument)
        if answer is None:
            if self.answers_only:
                raise EffectNotRepeatedError("external", "", str(argument))
            answer = self.laboratory.world.call(argument)
            self._note("external", argument, answer)
        return str(answer)

    @property
    def answers_only(self) -> bool:
        return self.laboratory.answers_only

    def _answered(self, target: str, argument: object) -> object:
        digest = canonical({"": argument}, lambda stream: stream.at)
        for index, call in enumerate(self.answers):
            if (call.target, call.digest) == (target, digest):
                del self.answers[index]
                self.calls.append(call)
                return (call.reply or b"").decode()
        return None

    def _note(self, target: str, argument: object, answer: str) -> None:
        digest = canonical({"": argument}, lambda stream: stream.at)
        self.calls.append(HostCallRecord(target=target, digest=digest, reply=answer.encode()))


FUNCTIONS = (
    *("show", "write", "read", "remove", "rand", "seed", "clock", "stream", "take"),
    *("anything", "pure", "external"),
)
