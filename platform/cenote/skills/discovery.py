"""Reads skills from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote.skills.errors import SkillError
from cenote.skills.front_matter import parse
from cenote.skills.injection_unsafe import load_exports
from cenote.skills.skill import Skill, field_problems
from cenote.skills.skill_files import INJECTION_FILE, SKILL_FILE, read_text

T = TypeVar("T")


class SkillDiscovery:
    """Finds and loads skills: folders with a SKILL.md, and an injection.py if they bring code along."""

    Error = SkillError

    @classmethod
    def from_file(cls, path: str | Path) -> Skill:
        """The skill of one SKILL.md; its folder's injection.py is run, in this process.

        Raises SkillError, which names the file and the line or the field.
        """
        path = Path(path)
        text = _located(path, lambda: parse(read_text(path)))
        problems = _problems(text.fields)
        if problems:
            raise SkillError(*(f"{path}: {problem}" for problem in problems))
        exports = _exports(path.parent / INJECTION_FILE, str(text.fields["name"]))
        return _skill(path, text.fields, text.body, exports)

    @classmethod
    def from_directory(cls, directory: str | Path) -> list[Skill]:
        """The skills of a folder: its own, and those of the folders in it, by name of the folder.

        Raises SkillError with the problems of all of them at once.
        """
        directory = Path(directory)
        if not directory.is_dir():
            raise SkillError(f"{directory}: no such folder of skills")
        skills: list[Skill] = []
        problems: list[str] = []
        for path in sorted([*directory.glob(SKILL_FILE), *directory.glob(f"*/{SKILL_FILE}")]):
            try:
                skills.append(cls.from_file(path))
            except SkillError as error:
                problems += error.problems
        problems += _doubles(skills)
        if problems:
            raise SkillError(*problems)
        return skills


def _skill(path: Path, fields: Mapping[str, object], body: str, exports: tuple[Injectable, ...]) -> Skill:
    metadata = fields.get("metadata") or {}
    assert isinstance(metadata, dict)
    return Skill(
        name=str(fields["name"]),
        description=str(fields["description"]),
        body_content=body,
        functions=[item for item in exports if isinstance(item, Function)],
        variables=[item for item in exports if isinstance(item, Variable)],
        types=[item for item in exports if isinstance(item, Type)],
        license=_optional(fields.get("license")),
        compatibility=_optional(fields.get("compatibility")),
        metadata={str(key): str(value) for key, value in metadata.items()},
        allowed_tools=_tools(fields.get("allowed-tools")),
        directory=path.parent,
    )


def _optional(value: object) -> str | None:
    return None if value is None else str(value)


def _tools(value: object) -> tuple[str, ...]:
    """The standard has one text, separated by blanks; lists are common."""
    if isinstance(value, list):
        return tuple(map(str, value))
    return () if value is None else tuple(str(value).replace(",", " ").split())


def _problems(fields: Mapping[str, object]) -> list[str]:
    missing = [name for name in ("name", "description") if fields.get(name) is None]
    problems = [f"{name}: missing" for name in missing]
    found = field_problems(fields.get("name"), fields.get("description"), fields.get("compatibility"))
    problems += [problem for problem in found if problem.partition(":")[0] not in missing]
    if not isinstance(fields.get("metadata") or {}, dict):
        problems.append("metadata: must be fields with texts")
    return problems


def _exports(path: Path, name: str) -> tuple[Injectable, ...]:
    return _located(path, lambda: load_exports(path, name)) if path.is_file() else ()


def _located(path: Path, read: Callable[[], T]) -> T:
    """Adds the file to the problems of what is read from it."""
    try:
        return read()
    except SkillError as error:
        raise SkillError(*(f"{path}: {problem}" for problem in error.problems)) from error.__cause__


def _doubles(skills: list[Skill]) -> list[str]:
    seen: dict[str, Skill] = {}
    problems = []
    for skill in skills:
        first = seen.setdefault(skill.name, skill)
        if first is not skill:
            problems.append(f"{skill.directory}: name: {skill.name!r} is also that of {first.directory}")
    return problems
