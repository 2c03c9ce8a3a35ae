"""SKILL.md: YAML between two lines of hyphens, then the instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cenote.skills.errors import SkillError

_MARK = "---"


@dataclass(frozen=True, slots=True)
class SkillText:
    """A file in its two parts."""

    fields: Mapping[str, object]
    body: str


def parse(text: str) -> SkillText:
    """Take a file apart. Raises SkillError with the line, without the path."""
    lines = text.split("\n")
    if lines[0].rstrip() != _MARK:
        raise SkillError("line 1: the file must begin with front matter between two lines of '---'")
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
        # YAML counts lines from 0, within the front matter; the file's first line is the opening mark.
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        raise SkillError(f"line {line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SkillError(f"line 2: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(fields, dict):
        raise SkillError("line 2: the front matter must be fields such as `name: my-skill`")
    return {str(name): value for name, value in fields.items()}
