"""SKILL.md: YAML between two lines of hyphens, then the instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cenote.skills.errors import SkillError

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
        line = _line_of(error)
        raise SkillError(f"line {line + 2}: not valid YAML: {error.problem}{_fix(source, line)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SkillError(f"line 2: not valid YAML: {' '.join(str(error).split())}") from None
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
