"""A skill: instructions for a kind of task, with what it takes to follow them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote.skills.errors import SkillError
from cenote.skills.skill_files import files_along, has_files, read_bytes, read_file
from cenote_worker.in_jail.skill_files import SkillFile

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
    functions: Sequence[Function] = ()
    variables: Sequence[Variable] = ()
    types: Sequence[Type] = ()
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
            object.__setattr__(self, name, tuple(getattr(self, name) or ()))
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
