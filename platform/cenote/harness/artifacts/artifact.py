"""What a user declares: a named unit of code, text or data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from cenote_security.errors import UsageError
from cenote_worker.trace import Location, file, name

ArtifactKind = Literal["function", "module", "tests", "document", "dataset"]

KINDS: Final = get_args(ArtifactKind)

SOURCES: Final = frozenset(("function", "module", "tests"))
"""Kinds of which each other content is another version. Of the others only one that is made anew is: what a step
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
