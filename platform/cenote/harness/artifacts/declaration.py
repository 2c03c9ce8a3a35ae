"""What a user declares: named units of code, text or data; and whether declarations hold together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final, Literal, cast, get_args

from cenote_security.errors import UsageError
from cenote_worker.execution.trace import Location, file, name
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.jail.errors.nearest import nearest


class UnknownArtifactError(UsageError):
    """No artifact of that name was declared. nearest: names that were."""

    def __init__(self, name: str, declared: Iterable[str] = ()) -> None:
        self.name = name
        self.nearest = tuple(nearest(name, declared))
        super().__init__(name)

    def __str__(self) -> str:
        hint = f"; the nearest names are {', '.join(self.nearest)}" if self.nearest else ""
        return f"no artifact {self.name!r} was declared{hint}"


class ArtifactCycleError(UsageError):
    """Artifacts would depend on themselves. path: from one back to it."""

    def __init__(self, path: Sequence[str]) -> None:
        super().__init__(tuple(path))
        self.path = tuple(path)

    def __str__(self) -> str:
        return f"artifacts cannot depend on themselves: {' -> '.join(self.path)}"


class UnbuildableError(UsageError):
    """An artifact cannot be brought up to date. reason: why, and what would help."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name} cannot be brought up to date: {self.reason}"


ArtifactKind = Literal["function", "module", "tests", "document", "dataset"]

KINDS: Final = get_args(ArtifactKind)

SOURCES: Final = frozenset(("function", "module", "tests"))
"""Kinds of which each new content is a new version. Of other kinds only an object made anew is: what a step
makes of a table that is there (a column more) is the next state of that table."""

MAX_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Artifact:
    """A unit to watch over. Its content is where it always was: this only names it.

    name: of a `function` (or class) the name that it has in the namespace; of a `module` its file in the working
    directory, such as `shop.py`; of `tests` such a file, or a pattern of names of functions in the namespace, such as
    `test_*`; of a `document` or `dataset` a file (a name with a dot or a slash) or a variable.
    depends_on: names of other artifacts, besides those that can be seen: a text about a function has not run it.
    """

    name: str
    kind: ArtifactKind
    depends_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.depends_on, str) or not isinstance(self.depends_on, Iterable):
            raise UsageError(f"depends_on is a list of names of artifacts, not {self.depends_on!r:.100}")
        object.__setattr__(self, "depends_on", tuple(self.depends_on))
        if self.kind not in KINDS:
            raise UsageError(f"kind is one of {', '.join(KINDS)}, not {self.kind!r}")
        if not isinstance(self.name, str):
            raise UsageError(f"the name of an artifact is a text, not {type(self.name).__name__}")
        if not self.name or len(self.name) > MAX_NAME or self.name != self.name.strip():
            raise UsageError(f"{self.name[:MAX_NAME]!r} is no name of an artifact")
        if self.is_file and (self.name.startswith("/") or ".." in self.name.split("/")):
            raise UsageError(f"{self.name!r} is no path in the working directory")
        if self.kind == "module" and not self.name.endswith(".py"):
            raise UsageError(f"a module is a file, such as `shop.py`, not {self.name!r}")

    @property
    def is_file(self) -> bool:
        if self.kind in ("document", "dataset"):
            return "." in self.name or "/" in self.name
        return self.name.endswith(".py")

    @property
    def is_source(self) -> bool:
        return self.kind in SOURCES

    @property
    def place(self) -> Location | None:
        """Where its content is; None for tests that are functions of the namespace, which are in many places."""
        if self.is_file:
            return file(self.name)
        return None if self.kind == "tests" else name(self.name)


MAX_ARTIFACTS: Final = 500
"""Of one history: each question about them goes along all steps with all of them."""


def declared(units: Mapping[str, ArtifactDeclared]) -> dict[str, Artifact]:
    """Those of a history, by name. What a later version of Cenote has declared there is left out."""
    known = {name for name, unit in units.items() if unit.kind in KINDS}
    return {name: _artifact(unit, known) for name, unit in units.items() if name in known}


def with_declared(known: Mapping[str, Artifact], new: Iterable[Artifact]) -> dict[str, Artifact]:
    """All of them, the new in place of what had their names. Raises UnknownArtifactError, ArtifactCycleError."""
    together = {**known, **{artifact.name: artifact for artifact in new}}
    for artifact in together.values():
        for dependency in artifact.depends_on:
            if dependency not in together:
                raise UnknownArtifactError(dependency, together)
    depending_last(together)
    return together


def depending_last(artifacts: Mapping[str, Artifact]) -> Sequence[str]:
    """All names, each after those that it depends on. Raises ArtifactCycleError."""
    try:
        return tuple(
            TopologicalSorter({name: one.depends_on for name, one in artifacts.items()}).static_order()
        )
    except CycleError as error:  # whose path goes from what is needed to what needs it
        raise ArtifactCycleError(error.args[1][::-1]) from None


def news(
    units: Mapping[str, ArtifactDeclared], asked: Iterable[ArtifactDeclared]
) -> tuple[ArtifactDeclared, ...]:
    """What of this is different from what is declared, so that the same once more changes nothing.

    Raises UsageError for what is no artifact, and where they would not hold together.
    """
    together, new = dict(units), list[Artifact]()
    for unit in (asked := tuple(asked)):
        if unit.dropped:
            _drop(unit.name, together)
        else:
            new.append(_artifact(unit, unit.depends_on))
            together[unit.name] = unit
    if len(together) > MAX_ARTIFACTS:
        raise UsageError(f"a runtime has at most {MAX_ARTIFACTS} artifacts; drop some first")
    with_declared(declared(together), new)
    return tuple(unit for unit in asked if not _equal(units.get(unit.name), unit))


def _drop(name: str, units: dict[str, ArtifactDeclared]) -> None:
    units.pop(name, None)
    for other in units.values():
        if name in other.depends_on:
            raise UsageError(f"{other.name} depends on {name}; drop that first, or declare it anew without")


def _equal(former: ArtifactDeclared | None, unit: ArtifactDeclared) -> bool:
    if former is None or unit.dropped:
        return former is None and unit.dropped
    return (former.kind, former.depends_on) == (unit.kind, unit.depends_on)


def _artifact(unit: ArtifactDeclared, known: Iterable[str]) -> Artifact:
    depends_on = tuple(name for name in unit.depends_on if name in known)
    return Artifact(unit.name, cast(ArtifactKind, unit.kind), depends_on)
