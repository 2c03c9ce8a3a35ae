"""Reads skills from files: SKILL.md is YAML between two lines of hyphens, then the instructions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable
from cenote.skills.injection_unsafe import load_exports
from cenote.skills.skill import (
    INJECTION_FILE,
    MAX_DESCRIPTION,
    SKILL_FILE,
    Skill,
    SkillError,
    SkillWarning,
    compatibility_problem,
    field_problems,
    read_text,
)

if TYPE_CHECKING:
    import yaml


_MARK = "---"
_FIELD = re.compile(r"(?P<indent>\s*)(?P<name>[\w-]+)\s*:\s+(?P<text>\S.*)")
_MOST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class SkillText:
    """A file in its two parts."""

    fields: Mapping[str, object]
    body: str


def parse(text: str) -> SkillText:
    """Take a file apart. Raises SkillError with the line, without the path."""
    lines = text.split("\n")
    if lines[0].rstrip() != _MARK:
        raise SkillError(
            "line 1: No YAML frontmatter found: the file must begin with it, between two lines of '---'"
        )
    end = next((i for i, line in enumerate(lines[1:], start=1) if line.rstrip() == _MARK), None)
    if end is None:
        raise SkillError("line 1: the front matter has no closing line of '---'")
    fields = _load("\n".join(lines[1:end]))
    return SkillText(fields, "\n".join(lines[end + 1 :]).strip())


def _load(source: str) -> Mapping[str, object]:
    import yaml

    try:
        fields = yaml.safe_load(source)
    except yaml.MarkedYAMLError as error:
        line = _line_of(error)
        raise SkillError(f"line {line + 2}: Invalid YAML: {error.problem}{_fix(source, line)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SkillError(f"line 2: Invalid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(fields, dict):
        raise SkillError("line 2: the front matter must be fields such as `name: my-skill`")
    return {str(name): value for name, value in fields.items()}


def _line_of(error: yaml.MarkedYAMLError) -> int:
    """From 0, within the front matter; the file's first line is the opening mark.

    A quotation that is not closed is noticed much later than where it begins.
    """
    begins = error.context_mark if "quoted scalar" in (error.context or "") else None
    mark = begins or error.problem_mark
    return mark.line if mark else -1


def _fix(source: str, line: int) -> str:
    """What to write instead, where quotes would do."""
    lines = source.split("\n")
    field = _FIELD.match(lines[line]) if 0 <= line < len(lines) else None
    if field is None:
        return ""
    if "\t" in field["indent"]:
        return "; write blanks instead of tabs at the beginning of the line"
    text = field["text"].strip().strip("\"'")
    quoted = "'" + text.replace("'", "''") + "'"
    return f"; put the text in quotes: {field['name']}: {_shortened(quoted)}"


def _shortened(quoted: str) -> str:
    return quoted if len(quoted) <= _MOST_SHOWN else f"{quoted[: _MOST_SHOWN - 4]}...'"


T = TypeVar("T")


class SkillDiscovery:
    """Finds and loads skills: folders with a SKILL.md, and an injection.py if they bring code along."""

    Error = SkillError

    @classmethod
    def from_file(cls, path: str | Path) -> Skill:
        """The skill of one SKILL.md; its folder's injection.py is run, in this process.

        Raises SkillError, which names the file and the line or the field. A SkillWarning names what a skill can do
        without: a description that is too long is cut, an optional field that makes no sense is left out.
        """
        skill, notes = _read(Path(path))
        _warn(notes)
        return skill

    @classmethod
    def from_directory(cls, directory: str | Path) -> list[Skill]:
        """The skills of a folder: its own, and those of the folders in it, by name of the folder.

        A skill that cannot be read is left out with a SkillWarning. Raises SkillError, with the problems of all, if
        none of them can.
        """
        directory = Path(directory)
        if not directory.is_dir():
            raise SkillError(f"Skills directory not found: {directory}")
        skills: dict[str, Skill] = {}
        problems: list[str] = []
        notes: list[str] = []
        for path in sorted([*directory.glob(SKILL_FILE), *directory.glob(f"*/{SKILL_FILE}")]):
            try:
                skill, found = _read(path)
            except SkillError as error:
                problems += error.problems
                continue
            notes += found
            if (first := skills.setdefault(skill.name, skill)) is not skill:
                problems.append(f"{path.parent}: name: {skill.name!r} is also that of {first.directory}")
        if problems and not skills:
            raise SkillError(*problems)
        _warn([*(f"{problem}; this skill is left out" for problem in problems), *notes])
        return list(skills.values())


def _warn(notes: Sequence[str]) -> None:
    for note in notes:
        warnings.warn(note, SkillWarning, stacklevel=3)


def _read(path: Path) -> tuple[Skill, list[str]]:
    """A skill, and what was amended. Raises SkillError."""
    if not path.exists():
        raise SkillError(f"Skill file not found: {path}")
    text = _located(path, lambda: parse(read_text(path)))
    fields, amended = _amended(text.fields)
    problems = _problems(fields)
    if problems:
        raise SkillError(*(f"{path}: {problem}" for problem in problems))
    exports = _exports(path.parent / INJECTION_FILE, str(fields["name"]))
    return _skill(path, fields, text.body, exports), [f"{path}: {note}" for note in amended]


def _amended(fields: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """The fields as they can be used, and what was done to them."""
    fields, notes = dict(fields), []
    description = fields.get("description")
    if isinstance(description, str) and len(description) > MAX_DESCRIPTION:
        fields["description"] = f"{description[: MAX_DESCRIPTION - 1].rstrip()}…"
        notes.append(
            f"description: {len(description)} characters, of which {MAX_DESCRIPTION} are used; say it in fewer words"
        )
    if not isinstance(fields.get("metadata") or {}, dict):
        del fields["metadata"]
        notes.append("metadata: left out, since it has no fields with texts, such as `version: '1.0'`")
    if problem := compatibility_problem(fields.get("compatibility")):
        del fields["compatibility"]
        notes.append(f"{problem}; it is left out")
    return fields, notes


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
    found = field_problems(fields.get("name"), fields.get("description"), None)
    return [f"Missing required field {name!r}" for name in missing] + [
        problem for problem in found if problem.partition(":")[0] not in missing
    ]


def _exports(path: Path, name: str) -> tuple[Injectable, ...]:
    return _located(path, lambda: load_exports(path, name)) if path.is_file() else ()


def _located(path: Path, read: Callable[[], T]) -> T:
    """Adds the file to the problems of what is read from it."""
    try:
        return read()
    except SkillError as error:
        raise SkillError(*(f"{path}: {problem}" for problem in error.problems)) from error.__cause__
