"""The events of a history, the names of their authors and the effects of host functions.

A history is read from its beginning, and only added to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """One injection: the names that it binds, private ones prefixed with their author's name.

    content: see StepRecord. replaces: it removes the values of an earlier injection of the same kind and name.
    """

    names: tuple[str, ...]
    content: str = ""
    replaces: bool = False

    def supersedes(self, other: ValuesInjected) -> bool:
        """Whether repeating this one makes repeating `other` unnecessary."""
        return bool(other.names) and set(other.names) <= set(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialNames:
    """What the state before the first step now contains: each fresh jail begins with these names.

    files: what clients wrote into the working directory before the first step, which no fresh jail has: the digest
    of each content by path, empty where the content is not kept. values: the injections that made those names, in
    order, without those that an older version of Cenote did not record.
    """

    names: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    values: tuple[ValuesInjected, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStored:
    """A content that a client has written into a file, stored once: steps refer to it by digest.

    data: None in a copy that is used for planning only.
    """

    digest: str
    data: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueStored:
    """The values of an injection, so that they can be injected again: steps refer to them by digest.

    data: in the format of `runtime.injection_log`; None in a copy that is used for planning only.
    """

    digest: str
    data: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDropped:
    """The values with this content were never stored here and are gone elsewhere too: their steps have none."""

    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesDescribed:
    """Descriptions of the namespace's variables in the state after a step.

    variables: those that are new or described differently than in an earlier state of the same line. gone: names of
    variables that existed then and do not now.
    """

    step: int
    variables: tuple[VariableInfo, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactDeclared:
    """A named unit of code, text or data is tracked, or no longer (dropped). Replaces an earlier declaration.

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
    """The outcome of one test's last run. outcome: `passed`, `failed`, `error`.

    error_type, message, file, span, traceback: of what it raised; span is line, column, end line, end column, or ().
    used: what it used, with versions. unsteady: why it may end otherwise with the same input. step: the head then.
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
    """The current outcomes of all tests of a suite. step: the head then.

    units: declared units that the tests use, with the versions that they had.
    """

    suite: str
    step: int = START
    tests: tuple[RanTest, ...] = ()
    units: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentUsed:
    """Steps after `after` ran with these packages, until the next such event.

    digest: of the built environment; empty for the packages of the process that starts the jails, not named here.
    python: its version. packages: as `name==version`. lock: SHA-256 of what they were installed from; empty for a
    virtual environment that lies elsewhere.
    """

    digest: str = ""
    python: str = ""
    packages: tuple[str, ...] = ()
    lock: str = ""
    after: int = START

    def __str__(self) -> str:
        return f"environment {self.digest[:12]}" if self.digest else "the packages of the process"


def packages_of(step: int, environments: Sequence[EnvironmentUsed]) -> EnvironmentUsed:
    """What a step ran with."""
    used = [environment for environment in environments if environment.after < step]
    return used[-1] if used else EnvironmentUsed()


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
    | EnvironmentUsed
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
    """Raises UsageError unless the name can be used in a sentence."""
    if not isinstance(author, str) or not author.strip() or not author.isprintable():
        raise UsageError(f"an author is a printable text that is not empty, not {author!r:.100}")
    if len(author) > MAX_AUTHOR:
        raise UsageError(f"the name of an author has at most {MAX_AUTHOR} characters, not {len(author)}")
