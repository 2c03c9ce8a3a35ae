"""The events that a history consists of, with the names of their authors and the effects of host functions.

A history is read from its beginning, and only added to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import UsageError
from cenote_worker.execution.results import VariableInfo
from cenote_worker.history.step import START, HostEffect, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMoved:
    """The live state is that after another step now. reason: such as `rollback`, `reset`, or why a jail ended."""

    head: int = START
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesInjected:
    """One injection: the names that it binds, private ones behind their author's.

    content: see StepRecord. replaces: what an earlier one of the same kind has put in under its name is gone with it.
    """

    names: tuple[str, ...]
    content: str = ""
    replaces: bool = False

    def supersedes(self, other: ValuesInjected) -> bool:
        """Whether whoever makes both needs to make only this one."""
        return bool(other.names) and set(other.names) <= set(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialNames:
    """What the state before the first step holds now: each fresh jail begins with these names.

    files: what clients have written into the working directory by then, which no fresh jail has: the digest of each
    content by path, empty where that is not kept. values: the injections that those names come from, in their order;
    without those of which an older version of Cenote has told nothing.
    """

    names: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    values: tuple[ValuesInjected, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStored:
    """A content that a client has written into a file: steps name it by its digest, however often it is written.

    data: None in a copy that only plans with it.
    """

    digest: str
    data: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueStored:
    """What a client has put in, so that it can be put in again: steps name it by its digest.

    data: as `hosted.kept_injection` writes it; None in a copy that only plans with it.
    """

    digest: str
    data: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDropped:
    """What was put in under this content was never kept here, and nobody holds it any more: its steps are without."""

    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesDescribed:
    """What the namespace said of its variables in the state after a step.

    variables: those of which something else was said in an earlier state of the same line, or nothing. gone: names of
    those that were there then.
    """

    step: int
    variables: tuple[VariableInfo, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactDeclared:
    """A named unit of code, text or data is watched over, or no more (dropped). What was declared before is replaced.

    step: the head then. kind: such as `module`. depends_on: names of other units, besides what can be seen.
    """

    name: str
    kind: str = ""
    depends_on: tuple[str, ...] = ()
    author: str = ""
    step: int = START
    dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RanTest:
    """What came of one test when it ran last. outcome: `passed`, `failed`, `error`.

    error_type, message, file, span, traceback: of what it raised; span is line, column, end line, end column, or ().
    used: what it used, with versions. unsteady: why it may come out different with the same. step: the head then.
    """

    name: str
    outcome: str
    error_type: str = ""
    message: str = ""
    file: str = ""
    span: tuple[int, ...] = ()
    traceback: str = ""
    used: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unsteady: str = ""
    seconds: float = 0.0
    step: int = START


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOutcome:
    """All tests of a suite hold now as they came out here. step: the head then.

    units: declared units that the tests use, with the versions that they had.
    """

    suite: str
    step: int = START
    tests: tuple[RanTest, ...] = ()
    units: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


Event = (
    StepRecord
    | HeadMoved
    | InitialNames
    | VariablesDescribed
    | ArtifactDeclared
    | SuiteOutcome
    | FileStored
    | ValueStored
    | ValueDropped
)


EFFECTS: Final[Mapping[HostEffect, jail_pb2.HostTarget.Effect.ValueType]] = {
    "external": jail_pb2.HostTarget.EXTERNAL,
    "idempotent": jail_pb2.HostTarget.IDEMPOTENT,
    "pure": jail_pb2.HostTarget.PURE,
}
EFFECT_NAMES: Final = {number: effect for effect, number in EFFECTS.items()}


MAX_AUTHOR = 100
"""Characters. Authors are named in results, in notices and in packets of a fixed size."""


def check_author(author: object) -> None:
    """Raises UsageError unless the name can stand in a sentence."""
    if not isinstance(author, str) or not author.strip() or not author.isprintable():
        raise UsageError(f"an author is a printable text that is not empty, not {author!r:.100}")
    if len(author) > MAX_AUTHOR:
        raise UsageError(f"the name of an author has at most {MAX_AUTHOR} characters, not {len(author)}")
