"""One checkpoint as a file: fresh chunks, then the manifest, then a footer that says where the manifest begins.

One file per checkpoint is what makes publishing atomic, and an acknowledged step one `fsync` of one file. Its number
is its name, and only one writer can make a name. Chunks of earlier checkpoints are named by number and offset, so a
file's bytes can be needed after its own state is not.

    chunks ...  |  manifest (protobuf)  |  magic, version, length and XXH3 of the manifest
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.checkpoints.state import (
    NOTHING_REBUILT,
    Rebuild,
    State,
    StoredPart,
    Unkept,
    parse_state,
    rebuild_from_message,
    rebuild_to_message,
    stored_part,
)
from cenote_worker.transport.chunks import DIGEST, digest

VERSION: Final = 2
"""Of the format, in each file that is written. A later one is refused. Version 1 is that of 0.1.0 and is read as it
is; version 2 has pickles that name modules of later versions, an index, images and temporary files."""

OLDEST: Final = 1
"""The oldest version that is read."""

MAX_STATE: Final = 1 << 50
"""Bytes of a state that a store may claim: memory is asked for as its bytes are read, not as they are claimed."""

MAX_STORED: Final = 2 * 64 * 1024
"""Bytes that one chunk may take in a file, compressed or not."""

_MAGIC: Final = b"CENOTECP"
_FOOTER = struct.Struct(f"<{DIGEST}sQI8s")

FOOTER: Final = _FOOTER.size
"""Bytes at the end of a file."""

RAW: Final = 0
ZLIB: Final = 1


class MalformedManifest(Exception):
    """This is not a manifest that can be read here; the text says why."""


class NewerManifest(MalformedManifest):
    """The manifest is whole and of a later format. found: which."""

    def __init__(self, found: int) -> None:
        super().__init__(f"it is of format {found}; this version of Cenote reads {OLDEST} to {VERSION}")
        self.found = found


@dataclass(frozen=True, slots=True)
class ChunkLocation:
    """Where a chunk lies. file: number of a checkpoint. stored: bytes there. coding: RAW or ZLIB."""

    file: int
    offset: int
    stored: int
    coding: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealings:
    """How clients are connected with a state. offers: the client objects that stubs in the state stand for.

    settled: steps of the last calls in the state, by the keys with which clients may repeat them. head: the step,
    cell or change, after which the state was stored; 0 if not known.
    """

    settled: Mapping[str, int] = field(default_factory=dict)
    offers: tuple[checkpoint_pb2.Offer, ...] = ()
    head: int = 0


NO_DEALINGS: Final = Dealings()


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint. parent: the number of the one before, 0 for the first. fence: of its writer."""

    number: int
    parent: int
    fence: int
    label: str
    made: float
    state: State
    chunks: Mapping[bytes, ChunkLocation]
    dealings: Dealings = NO_DEALINGS
    rebuild: Rebuild = NOTHING_REBUILT
    record: StoredPart | None = None
    """Record of the steps that led to the state, where any of them may have to be run again."""
    whole: bool = False
    """Whether it is all of the state after the step that its dealings name as its head."""
    environment: str = ""
    """Digest of the jail's environment, empty for none: what is pickled here may need exactly its packages."""

    @property
    def unbuilt(self) -> tuple[Unkept, ...]:
        """What is not stored in it and is not rebuilt either."""
        return tuple(thing for thing in self.state.unkept if thing.name not in self.rebuild.names)

    @property
    def step(self) -> int:
        """The last step that it has."""
        return self.dealings.head or self.state.message.step

    @property
    def files(self) -> frozenset[int]:
        """Numbers of the checkpoints whose files it needs, its own included."""
        return frozenset({self.number, *(location.file for location in self.chunks.values())})

    @property
    def size(self) -> int:
        """Bytes of the state, before chunks that are alike are counted once."""
        return sum(part.size for part in self.state.parts())


def encode(manifest: Manifest) -> bytes:
    """The end of a checkpoint's file: manifest and footer."""
    message = make(
        checkpoint_pb2.Manifest,
        number=manifest.number,
        parent=manifest.parent,
        fence=manifest.fence,
        label=manifest.label,
        made=manifest.made,
        state=manifest.state.message,
        chunks=_table([manifest.chunks[key] for key in _digests(manifest.state, manifest.record)]),
        settled=[
            make(checkpoint_pb2.SettledCall, key=key, step=step)
            for key, step in manifest.dealings.settled.items()
        ],
        offers=manifest.dealings.offers,
        head=manifest.dealings.head,
        rebuild=rebuild_to_message(manifest.rebuild),
        record=manifest.record.to_message() if manifest.record is not None else None,
        whole=manifest.whole,
        environment=manifest.environment,
    )
    body = message.SerializeToString()
    return body + _FOOTER.pack(digest(body), len(body), VERSION, _MAGIC)


def manifest_length(footer: bytes) -> int:
    """Bytes of the manifest before the footer. Raises MalformedManifest for anything but a footer of ours."""
    if len(footer) != FOOTER or not footer.endswith(_MAGIC):
        raise MalformedManifest("the file is cut off, or no checkpoint")
    _, length, version, _ = _FOOTER.unpack(footer)
    if version > VERSION:
        raise NewerManifest(version)
    if version < OLDEST:
        raise MalformedManifest(f"there is no format {version}")
    return int(length)


def decode(body: bytes, footer: bytes) -> Manifest:
    """Raises MalformedManifest."""
    if manifest_length(footer) != len(body) or digest(body) != _FOOTER.unpack(footer)[0]:
        raise MalformedManifest("the manifest does not have the sum that was written with it")
    try:
        return _manifest(checkpoint_pb2.Manifest.FromString(body))
    except (DecodeError, ProtocolViolation) as error:
        raise MalformedManifest(str(error)) from None


def _manifest(message: checkpoint_pb2.Manifest) -> Manifest:
    state = parse_state(message.state, MAX_STATE)
    record = stored_part(message.record) if message.HasField("record") else None
    digests, table = _digests(state, record), message.chunks
    columns = (table.file, table.offset, table.stored, table.coding)
    if any(len(column) != len(digests) for column in columns):
        raise MalformedManifest("its chunks and their places do not fit together")
    if any(index >= len(table.files) for index in table.file) or any(
        size > MAX_STORED for size in table.stored
    ):
        raise MalformedManifest("a chunk is in no place that is named")
    places = (ChunkLocation(table.files[row[0]], *row[1:]) for row in zip(*columns, strict=True))
    return Manifest(
        number=message.number,
        parent=message.parent,
        fence=message.fence,
        label=message.label,
        made=message.made,
        state=state,
        chunks=dict(zip(digests, places, strict=True)),
        dealings=Dealings(
            settled={call.key: call.step for call in message.settled},
            offers=tuple(message.offers),
            head=message.head,
        ),
        rebuild=rebuild_from_message(message.rebuild),
        record=record,
        whole=message.whole,
        environment=message.environment,
    )


def _digests(state: State, record: StoredPart | None) -> list[bytes]:
    """Digests of all chunks, in the order of their table."""
    recorded = (digest for digest, _ in record.chunks()) if record is not None else ()
    return list(dict.fromkeys((*state.lengths, *recorded)))


def _table(locations: list[ChunkLocation]) -> checkpoint_pb2.ChunkTable:
    files = {number: index for index, number in enumerate(sorted({place.file for place in locations}))}
    return checkpoint_pb2.ChunkTable(
        files=files,
        file=[files[place.file] for place in locations],
        offset=[place.offset for place in locations],
        stored=[place.stored for place in locations],
        coding=[place.coding for place in locations],
    )
