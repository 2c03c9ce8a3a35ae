"""A skill: instructions for a kind of task, with the files that they refer to.

Nothing outside of a skill's directory is ever read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable
from cenote_security.errors import UsageError
from cenote_worker.jail.workdir.skill_files import SkillFile


class SkillError(UsageError):
    """A skill is not as it must be.

    problems: each with its file, and the line or the field where there is one.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


class SkillWarning(UserWarning):
    """A skill was left out, or a field of it is not as it must be; its text names the file, the line and the fix."""


SKILL_FILE = "SKILL.md"
INJECTION_FILE = "injection.py"

MAX_BYTES = 256 * 1024
"""Bytes of one file. The standard wants instructions below 5,000 tokens; ten times that is a mistake."""

MAX_ALL_BYTES = 64 * 2**20
"""Bytes of all files that go along with a skill into a runtime; a font is a megabyte."""

MAX_FILES = 2_000
"""Files that do."""

_NEVER = frozenset({"__pycache__", ".git", ".hg", ".svn", ".DS_Store"})

_MAX_LISTED = 50
"""Files named to a model that asked for one which is not there."""


def read_text(path: Path) -> str:
    """A text file: UTF-8, with or without a byte order mark, with line breaks of any system.

    Raises SkillError, without the path, for anything else and for more than MAX_BYTES.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SkillError(error.strerror or str(error)) from None
    if len(data) > MAX_BYTES:
        raise SkillError(f"larger than {MAX_BYTES // 1024} KiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SkillError(f"not a text in UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_file(directory: Path, path: str) -> str:
    """The text of a file below a directory. Raises SkillError, fit for a model to read."""
    target = _target(directory.resolve(), path)
    try:
        return read_text(target)
    except SkillError as error:
        raise SkillError(f"{path}: {error}") from None


def _target(root: Path, path: str) -> Path:
    try:
        # Resolving first means that a symbolic link counts as where it leads.
        target = (root / path).resolve()
        is_file = target.is_file()
    except (OSError, TypeError, ValueError, RuntimeError):
        raise SkillError(f"{path!r:.200} is not a path") from None
    if not target.is_relative_to(root):
        raise SkillError(f"{path!r:.200} is outside of the skill's directory")
    if not is_file:
        listed = ", ".join(_files(root)) or "none"
        raise SkillError(f"the skill has no file {path!r:.200}; there are: {listed}")
    return target


def read_bytes(directory: Path, path: str) -> bytes:
    """A file below a directory, whatever is in it. Raises SkillError, fit for a model to read."""
    target = _target(directory.resolve(), path)
    try:
        with target.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SkillError(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise SkillError(f"{path}: larger than {MAX_BYTES // 1024} KiB")
    return data


def files_along(directory: Path) -> tuple[SkillFile, ...]:
    """All files below a directory that its code may need; links that lead out of it, and what it imports here, not.

    Raises SkillError for what is too much, or cannot be read.
    """
    root, size = directory.resolve(), 0
    found: list[SkillFile] = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if _NEVER & set(name.parts) or str(name) in (SKILL_FILE, INJECTION_FILE):
            continue
        if not path.is_file() or not path.resolve().is_relative_to(root):
            continue
        size += path.stat().st_size
        if len(found) >= MAX_FILES or size > MAX_ALL_BYTES:
            raise SkillError(f"has more than {MAX_FILES} files, or {MAX_ALL_BYTES // 2**20} MiB")
        try:
            found.append(SkillFile(str(name), path.read_bytes(), bool(path.stat().st_mode & 0o111)))
        except OSError as error:
            raise SkillError(f"{name}: {error.strerror or error}") from None
    return tuple(found)


def has_files(directory: Path) -> bool:
    """Whether there is anything beside SKILL.md and injection.py."""
    return bool(_files(directory.resolve()))


def _files(root: Path) -> list[str]:
    """Relative paths of the readable files below a directory, the two with a meaning of their own left out."""
    paths = (path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_file())
    names = (str(path) for path in paths if not any(part.startswith((".", "__")) for part in path.parts))
    return list(islice((name for name in names if name not in (SKILL_FILE, INJECTION_FILE)), _MAX_LISTED))


MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
"""Characters; these limits are those of the Agent Skills standard."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, eq=False)
class Skill:
    """What an agent can learn on demand, after the Agent Skills standard.

    name: lowercase letters, digits and single hyphens, at most 64 characters.
    description: what it does and when to use it, at most 1024 characters; all that the model sees at first.
    body_content: the instructions, shown when the model activates the skill.
    functions, variables, types: put into the runtime on activation.
    license, compatibility, metadata, allowed_tools: as in its file; for people, not used by the agent.
    directory: where further files of the skill are, None for a skill without.

    Raises SkillError, which names every field that is wrong.
    """

    name: str
    description: str
    body_content: str = ""
    functions: Sequence[Function] = field(default_factory=list)
    variables: Sequence[Variable] = field(default_factory=list)
    types: Sequence[Type] = field(default_factory=list)
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    directory: Path | None = None

    def __post_init__(self) -> None:
        problems = field_problems(self.name, self.description, self.compatibility)
        if problems:
            raise SkillError(*problems)
        for name in ("functions", "variables", "types"):
            object.__setattr__(self, name, list(getattr(self, name) or ()))
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))

    @property
    def exports(self) -> tuple[Injectable, ...]:
        """Types first: the rest may be made of them."""
        return (*self.types, *self.functions, *self.variables)

    @property
    def has_files(self) -> bool:
        """Whether there are files beside the instructions that a model may want to read."""
        return self.directory is not None and has_files(self.directory)

    def read_file(self, path: str) -> str:
        """The text of a file in the skill's directory.

        Raises SkillError for a path outside of it, and for what is no text file of bounded size.
        """
        if self.directory is None:
            raise SkillError(f"skill {self.name} has no files")
        return read_file(self.directory, path)

    def read_bytes(self, path: str) -> bytes:
        """A file in the skill's directory, whatever is in it. Raises SkillError as `read_file` does."""
        if self.directory is None:
            raise SkillError(f"skill {self.name} has no files")
        return read_bytes(self.directory, path)

    def files_along(self) -> tuple[SkillFile, ...]:
        """The files that go with it into a runtime. Raises SkillError where they are too many, or cannot be read."""
        return files_along(self.directory) if self.directory is not None else ()


def field_problems(name: object, description: object, compatibility: object) -> list[str]:
    """What is wrong with these fields, one line each, beginning with the field's name."""
    problems = []
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        wanted = f"must be 1 to {MAX_NAME} lowercase letters, digits and single hyphens, not {name!r:.100}"
        if isinstance(name, str) and len(name) > MAX_NAME:
            wanted = f"{len(name)} characters, which exceeds {MAX_NAME} characters"
        problems.append(f"name: {wanted}{_name_instead(name)}")
    if not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION:
        found = f"{len(description)} characters" if isinstance(description, str) else repr(description)
        fix = "" if isinstance(description, str) else "; put the text in quotes"
        problems.append(
            f"description: must be a text of 1 to {MAX_DESCRIPTION} characters, not {found:.100}{fix}"
        )
    if problem := compatibility_problem(compatibility):
        problems.append(problem)
    return problems


def compatibility_problem(compatibility: object) -> str:
    """What is wrong with this field; empty if nothing."""
    if compatibility is None or (
        isinstance(compatibility, str) and 0 < len(compatibility) <= MAX_COMPATIBILITY
    ):
        return ""
    return f"compatibility: must be a text of 1 to {MAX_COMPATIBILITY} characters"


def _name_instead(name: object) -> str:
    """A name like it that is allowed."""
    words = re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-")[:MAX_NAME].strip("-")
    return f"; write {words}" if words and isinstance(name, str | int) else ""
