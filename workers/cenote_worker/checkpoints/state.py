"""A stored state: frozen values made from a jail's description of its state, or from the contents of a store.

Either may be wrong or hostile. What is parsed here is bounded and consistent; only the jail that loads a group
interprets its bytes. Variables that cannot be stored by value come back by a rebuild: the steps that made them are
run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.printable import printable
from cenote_worker.execution.state_index import FAILS
from cenote_worker.execution.trace import Location, key_of, kind_of
from cenote_worker.transport.chunks import DIGEST, chunk_count, chunk_length, split_digests

MAX_THINGS: Final = 100_000
"""Groups, names, files and modules of one state, each: ten times what a busy notebook has."""

MAX_PARTS: Final = 1_000_000
"""Parts of all groups together."""

MAX_TEXT: Final = 1_000
"""Characters of names and reasons; longer ones are cut."""

MAX_ATTRIBUTES: Final = 10_000
"""Attributes of one library."""

MAX_STEP: Final = 1 << 62
"""The steps after it must fit a message and a database, too."""

MAX_PATH: Final = 4_096
"""Bytes: PATH_MAX."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """So many bytes, in chunks of these digests."""

    size: int
    digests: bytes

    def chunks(self) -> Iterator[tuple[bytes, int]]:
        """Digest and length of each chunk, in order."""
        for index, digest in enumerate(split_digests(self.digests)):
            yield digest, chunk_length(self.size, index)

    def to_message(self) -> checkpoint_pb2.StoredPart:
        return checkpoint_pb2.StoredPart(size=self.size, digests=self.digests)


@dataclass(frozen=True, slots=True)
class Group:
    """Variables that can only be stored together, and the parts of their pickle."""

    names: tuple[str, ...]
    parts: tuple[StoredPart, ...]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One entry of the working directory. kind: one of StoredFile.Kind of the message."""

    message: checkpoint_pb2.StoredFile
    content: StoredPart | None


@dataclass(frozen=True, slots=True)
class Unkept:
    """A variable, or a thing such as a running thread, that is not in a checkpoint.

    reason: why it cannot be stored by value. step: the one that last bound it, as far as was seen; 0 when unknown.
    """

    name: str
    reason: str
    step: int


@dataclass(frozen=True, slots=True)
class State:
    """A namespace, its process and its working directory, by value."""

    message: checkpoint_pb2.State
    groups: tuple[Group, ...]
    process: Group | None
    files: tuple[StoredFile, ...]
    unkept: tuple[Unkept, ...]
    lengths: Mapping[bytes, int]
    """Of every chunk, by digest, in the order in which parts first name it."""

    def names_to_rebuild(self) -> frozenset[str]:
        """Variables that have no pickle, or one that could not be loaded when it was tried. Steps make them again."""
        index = self.message.index
        failing = {key_of(Location(each.location)) for each in index if each.untried.startswith(FAILS)}
        unkept = {thing.name for thing in self.unkept}
        return frozenset((unkept | failing).intersection(self.message.names))

    def parts(self) -> Iterator[StoredPart]:
        """Every part, in the order that a chunk table follows."""
        for group in self.groups:
            yield from group.parts
        if self.process is not None:
            yield from self.process.parts
        for file in self.files:
            if file.content is not None:
                yield file.content


def parse_state(message: checkpoint_pb2.State, limit: int, *, cut: bool = True) -> State:
    """limit: bytes that all parts may have together. Raises ProtocolViolation.

    cut: into chunks, each with a digest; otherwise the parts of the state have sizes only.
    """
    part = stored_part if cut else _whole
    things = (message.names, message.groups, message.files, message.unkept, message.hosts, message.modules)
    if any(len(each) > MAX_THINGS for each in (*things, message.settings, message.index, message.unset)):
        raise ProtocolViolation(f"a state of more than {MAX_THINGS} variables or files")
    if message.step > MAX_STEP:
        raise ProtocolViolation("a state behind more steps than anybody can take")
    _bound_texts(message)
    lengths: dict[bytes, int] = {}
    state = State(
        message=message,
        groups=tuple(_group(group, part) for group in message.groups),
        process=_group(message.process, part) if message.HasField("process") else None,
        files=tuple(_file(file, part) for file in message.files),
        unkept=tuple(_unkept(thing) for thing in message.unkept),
        lengths=lengths,
    )
    _check_size(state, limit)
    for each in state.parts() if cut else ():
        _measure(each, lengths)
    return state


def index_for(
    message: checkpoint_pb2.State, names: Collection[str], made: Collection[str] = ()
) -> list[checkpoint_pb2.Indexed]:
    """What a copy of a state is compared with. names: the variables that the copy shall have. made: those among them
    that steps make again, which were not tried.
    """
    found = list[checkpoint_pb2.Indexed]()
    for each in message.index:
        location = Location(each.location)
        if kind_of(location) == "name" and key_of(location) not in names:
            continue
        if key_of(location) in made and each.untried.startswith(FAILS):
            continue  # like a value that has no pickle
        entry = checkpoint_pb2.Indexed()
        entry.CopyFrom(each)
        if kind_of(location) == "name" and key_of(location) in made:
            entry.ClearField("foretold")
        found.append(entry)
    return found


def _measure(part: StoredPart, lengths: dict[bytes, int]) -> None:
    for digest, length in part.chunks():
        if lengths.setdefault(digest, length) != length:
            raise ProtocolViolation("one chunk of a state has two lengths")


def _bound_texts(message: checkpoint_pb2.State) -> None:
    texts = [*message.names, *message.hosts, *message.settings, message.python, message.machine]
    texts += [text for module in message.modules for text in (module.name, module.version)]
    for each in message.index:
        if len(each.attributes) > MAX_ATTRIBUTES:
            raise ProtocolViolation(f"a library with more than {MAX_ATTRIBUTES} attributes that were set")
        texts += [each.version, each.unseen, each.untried, each.foretold, *each.attributes]
        texts.append(key_of(Location(each.location)))
    if any(len(text) > MAX_TEXT for text in texts):
        raise ProtocolViolation(f"a name of more than {MAX_TEXT} characters")


def _check_size(state: State, limit: int) -> None:
    parts = list(state.parts())
    if len(parts) > MAX_PARTS:
        raise ProtocolViolation(f"a state of more than {MAX_PARTS} parts")
    if sum(part.size for part in parts) > limit:
        raise ProtocolViolation(f"a state of more than {limit} bytes")


_AsPart = Callable[[checkpoint_pb2.StoredPart], StoredPart]


def _group(message: checkpoint_pb2.StoredGroup, part: _AsPart) -> Group:
    if not message.parts:
        raise ProtocolViolation("a group without a pickle")
    return Group(tuple(message.names), tuple(map(part, message.parts)))


def _whole(message: checkpoint_pb2.StoredPart) -> StoredPart:
    return StoredPart(message.size, b"")


def stored_part(message: checkpoint_pb2.StoredPart) -> StoredPart:
    """A part that is cut into chunks. Raises ProtocolViolation."""
    if len(message.digests) != DIGEST * chunk_count(message.size):
        raise ProtocolViolation("a part with more or fewer chunks than its size needs")
    return StoredPart(message.size, message.digests)


def _file(message: checkpoint_pb2.StoredFile, part: _AsPart) -> StoredFile:
    if len(message.path) > MAX_PATH or len(message.target) > MAX_PATH:
        raise ProtocolViolation("a path that is too long")
    regular = message.kind == checkpoint_pb2.StoredFile.REGULAR
    return StoredFile(message, part(message.content) if regular else None)


def _unkept(message: checkpoint_pb2.UnkeptThing) -> Unkept:
    return Unkept(printable(message.name[:MAX_TEXT]), printable(message.reason[:MAX_TEXT]), message.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """names: variables, including some that could be stored by value but share objects with others.

    steps: in the order in which they are run. given: locations whose stored content they find; anything else they
    read was written by earlier ones of them, or is as in a fresh runtime. refused: why others do not come back.
    """

    names: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    given: frozenset[Location] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)

    def given_of(self, kind: str) -> frozenset[str]:
        """Names, paths or states of this kind. kind: as `kind_of` gives it."""
        return frozenset(key_of(each) for each in self.given if kind_of(each) == kind)

    def given_groups(self, groups: Sequence[Group]) -> list[int]:
        """Indexes of the groups that the steps find: all of a group, or none."""
        names = self.given_of("name")
        return [place for place, group in enumerate(groups) if not names.isdisjoint(group.names)]

    def given_files(self, files: Sequence[StoredFile]) -> list[int]:
        """Indexes of the files that the steps find, and of the folders that these are in."""
        paths = self.given_of("file")
        return [place for place, file in enumerate(files) if "." in paths or _is_on_the_way(file, paths)]


def _is_on_the_way(file: StoredFile, paths: Collection[str]) -> bool:
    """Whether it is one of these, or a folder that contains one."""
    path = file.message.path.decode("utf-8", "surrogateescape")
    return path in paths or (file.content is None and any(each.startswith(f"{path}/") for each in paths))


NOTHING_REBUILT: Final = Rebuild()


def rebuild_to_message(rebuild: Rebuild) -> checkpoint_pb2.Rebuild:
    message = make(
        checkpoint_pb2.Rebuild, names=rebuild.names, steps=rebuild.steps, given=sorted(rebuild.given)
    )
    for name, reason in rebuild.refused.items():
        make(message.refused.add, name=name, reason=reason[:MAX_TEXT])
    return message


def rebuild_from_message(message: checkpoint_pb2.Rebuild) -> Rebuild:
    """Raises ProtocolViolation."""
    if any(len(part) > MAX_THINGS for part in (message.names, message.steps, message.given, message.refused)):
        raise ProtocolViolation("a rebuild of more than a state can have")
    return Rebuild(
        names=tuple(message.names),
        steps=tuple(message.steps),
        given=frozenset(map(Location, message.given)),
        refused={thing.name: thing.reason for thing in message.refused},
    )
