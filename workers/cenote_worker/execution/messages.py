"""Traces, variables and errors as messages: written in the same way by a worker and by a client.

A message that is read may come from a jail, so a trace is checked and bounded as it is read. Variables and errors
are read back by the supervisor, which checks everything that leaves a jail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, cast

from cenote_proto.scalars import make, unsigned, utf8_text, utf8_texts
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.execution.results import ErrorInfo, VariableInfo
from cenote_worker.execution.trace import ANYTHING, KINDS, Location, StepTrace, ValueKind, Version, untold
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MAX_POSITION: Final = 2**31
"""No file has a line or column beyond this: a program may raise a SyntaxError with any numbers in it."""


def fill_variable(message: jail_pb2.VariableInfo, info: VariableInfo) -> None:
    """Writes `info` to `message`. Only the frame parser reads it back, since it may come from a jail.

    CPython gives a negative size for a negative number of 181 bits and more, and a library's object gives any.
    """
    message.name, message.type = utf8_text(info.name), utf8_text(info.type)
    message.size, message.description = unsigned(info.size), utf8_text(info.description)
    if info.shape is not None:
        message.has_shape = True
        message.shape.extend(map(unsigned, info.shape))


def fill_error(message: jail_pb2.CellError, error: ErrorInfo) -> None:
    """Writes an error to `message`. A span that no source text can have is left out."""
    message.type, message.message = utf8_text(error.type), utf8_text(error.message)
    message.traceback, message.reason = utf8_text(error.traceback), utf8_text(error.reason)
    message.outside = error.outside
    message.verdict, message.limit = utf8_text(error.verdict.kind), utf8_text(error.verdict.limit)
    if (span := error.span) is not None:
        positions = (span.line, span.column, span.end_line, span.end_column)
        if all(0 <= each <= MAX_POSITION for each in positions):
            message.span.extend(positions)


MAX_LOCATIONS: Final = 5_000
"""Locations read, written or grouped by one step: at their longest they fill a third of a reply."""

MAX_LOCATION: Final = 1_000
"""Characters. No real name or path is longer, and a truncated one would be another one."""

MAX_VERSION: Final = 100
MAX_REASONS: Final = 50
MAX_REASON: Final = 300
MAX_MODULES: Final = 1_000
MAX_KINDS: Final = 200
"""Names whose kinds one step reports: each takes a few microseconds of every cell."""

MAX_TYPE: Final = 300
MAX_DIMENSIONS: Final = 32

MAX_SIZE: Final = 4 * 2**20
"""Bytes. Room for the most locations allowed, of some 100 characters each: a history keeps traces for ever."""

_SMALL: Final = MAX_SIZE // 64
"""Bytes of a message that is not too large as objects: an empty text takes two bytes in it, and 113 as an object."""

_NO_LOCATIONS: Final = frozenset[Location]()
_NO_KINDS: Final[Mapping[Location, ValueKind]] = MappingProxyType({})
_NO_VERSIONS: Final[Mapping[Location, Version]] = MappingProxyType({})
"""For the fields that are empty in a trace: most are, in most traces."""


def fill_trace(message: jail_pb2.StepTrace, trace: StepTrace) -> None:
    """Writes `trace` to `message`; one that is too large says only that anything may have been touched."""
    if not trace.told:
        said = _said(trace) if _can_be_said(trace) else None
        if said is None or not _fits(said, trace):
            said = _said(untold(trace))
        trace.told.append(said.SerializeToString())
    message.MergeFromString(trace.told[0])


def _said(trace: StepTrace) -> jail_pb2.StepTrace:
    message = jail_pb2.StepTrace()
    _fill_seen(message.reads.add, trace.reads)
    _fill_seen(message.writes.add, trace.writes)
    _fill_seen(message.unportable.add, {key: text[:MAX_REASON] for key, text in trace.unportable.items()})
    message.mutated.extend(utf8_texts(sorted(trace.mutated)))
    message.moved.extend(utf8_texts(sorted(trace.moved)))
    for group in trace.groups:
        make(message.groups.add, locations=sorted(group))
    for location, kind in islice(trace.kinds.items(), MAX_KINDS):
        shape = kind.shape or ()
        make(
            message.kinds.add,
            location=location,
            type=kind.type[:MAX_TYPE],
            shape=map(unsigned, shape[:MAX_DIMENSIONS]),
            has_shape=kind.shape is not None,
        )
    message.modules.extend(utf8_texts(each[:MAX_LOCATION] for each in trace.modules[:MAX_MODULES]))
    message.opaque.extend(utf8_texts(each[:MAX_REASON] for each in trace.opaque[:MAX_REASONS]))
    message.unrepeatable.extend(utf8_texts(each[:MAX_REASON] for each in trace.unrepeatable[:MAX_REASONS]))
    message.unseen.extend(utf8_texts(each[:MAX_REASON] for each in trace.unseen[:MAX_REASONS]))
    return message


def read_trace(message: jail_pb2.StepTrace) -> StepTrace:
    """The trace, checked and frozen. Raises ProtocolViolation."""
    reads, writes, mutated, groups = message.reads, message.writes, message.mutated, message.groups
    unportable, grouped = message.unportable, [group.locations for group in groups]
    counts = (
        len(reads),
        len(writes),
        len(mutated),
        len(message.moved),
        len(unportable),
        len(groups),
        sum(map(len, grouped)),
    )
    if max(counts) > MAX_LOCATIONS:
        raise ProtocolViolation("a trace with too many locations")
    trace = StepTrace(
        reads=_read_seen(reads),
        writes=_read_seen(writes),
        mutated=_read_locations(mutated),
        moved=_read_locations(message.moved),
        groups=tuple(map(_read_locations, grouped)),
        modules=tuple(each[:MAX_LOCATION] for each in message.modules[:MAX_MODULES]),
        opaque=_read_reasons(message.opaque),
        unrepeatable=_read_reasons(message.unrepeatable),
        unseen=_read_reasons(message.unseen),
        unportable=_read_unportable(unportable),
        kinds=_read_kinds(message.kinds),
    )
    return trace if _fits(message, trace) else untold(trace)


def read_relayed_trace(message: jail_pb2.StepTrace) -> StepTrace:
    """As `read_trace`, for a trace that is then written to a record and to a client: a small message is kept.

    Changes the message: unknown fields are dropped. Its next reader checks it once more.
    """
    trace = read_trace(message)
    message.DiscardUnknownFields()
    # A message larger than its trace repeats locations, which the limits do not count.
    if message.ByteSize() <= min(_SMALL, trace.size) and not _is_cut(message):
        trace.told.append(message.SerializeToString())
    return trace


def fill_versions(message: jail_pb2.Versioned, versions: Mapping[Location, Version]) -> None:
    """Writes these versions, as many as one answer may have."""
    _fill_seen(message.versions.add, dict(islice(versions.items(), MAX_LOCATIONS)))


def read_versions(message: jail_pb2.Versioned) -> Mapping[Location, Version]:
    """The versions, checked and frozen. Raises ProtocolViolation."""
    if len(message.versions) > MAX_LOCATIONS:
        raise ProtocolViolation("more versions than anybody asks for")
    return _read_seen(message.versions)


def _can_be_said(trace: StepTrace) -> bool:
    locations = [*trace.reads, *trace.writes]
    for group in trace.groups:
        locations += group
    return len(locations) <= MAX_LOCATIONS and all(
        [len(each) <= MAX_LOCATION and (each.isascii() or _is_text(each)) for each in locations]
    )


def _fits(message: jail_pb2.StepTrace, trace: StepTrace) -> bool:
    return message.ByteSize() <= _SMALL or trace.size <= MAX_SIZE


def _is_text(location: str) -> bool:
    """Names and paths may hold lone surrogates, which no message can carry."""
    try:
        location.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fill_seen(add: object, seen: Mapping[Location, str]) -> None:
    assert callable(add)
    for location, version in seen.items():
        add(location=utf8_text(location), version=utf8_text(version))


def _is_cut(message: jail_pb2.StepTrace) -> bool:
    """Whether a reader may leave something out."""
    return bool(
        message.opaque
        or message.unrepeatable
        or message.unseen
        or message.modules
        or message.unportable
        or any([len(each.type) > MAX_TYPE for each in message.kinds])
    )


def _read_seen(messages: Sequence[jail_pb2.Seen]) -> Mapping[Location, Version]:
    if not messages:
        return _NO_VERSIONS
    found = {seen.location: seen.version for seen in messages}
    if max(map(len, found.values())) > MAX_VERSION:
        raise ProtocolViolation("a trace with a version that is too long")
    _check_locations(found)
    return MappingProxyType(cast("dict[Location, Version]", found))


def _read_locations(texts: Sequence[str]) -> frozenset[Location]:
    if not texts:
        return _NO_LOCATIONS
    found = frozenset(texts)
    _check_locations(found)
    return cast("frozenset[Location]", found)


def _read_reasons(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple([each[:MAX_REASON] for each in texts[:MAX_REASONS]]) if texts else ()


def _read_unportable(messages: Sequence[jail_pb2.Seen]) -> Mapping[Location, str]:
    if not messages:
        return _NO_VERSIONS
    found = {seen.location: seen.version[:MAX_REASON] for seen in messages}
    _check_locations(found)
    return MappingProxyType(cast("dict[Location, str]", found))


def _read_kinds(messages: Sequence[jail_pb2.ValueKind]) -> Mapping[Location, ValueKind]:
    if not messages:
        return _NO_KINDS
    if len(messages) > MAX_KINDS or any([len(each.shape) > MAX_DIMENSIONS for each in messages]):
        raise ProtocolViolation("a trace that says too much of its values")
    found = {
        each.location: ValueKind(
            type=each.type[:MAX_TYPE], shape=tuple(each.shape) if each.has_shape else None
        )
        for each in messages
    }
    _check_locations(found)
    return MappingProxyType(cast("dict[Location, ValueKind]", found))


def _check_locations(found: Iterable[str]) -> None:
    """Raises ProtocolViolation."""
    for each in found:
        if len(each) > MAX_LOCATION or not (each.startswith(KINDS) or each == ANYTHING):
            raise ProtocolViolation("a trace with a location that is none")
