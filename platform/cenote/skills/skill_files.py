"""Files of a skill's directory: instructions, and what they refer to. Nothing outside of it is ever read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from cenote.skills.errors import SkillError

SKILL_FILE = "SKILL.md"
INJECTION_FILE = "injection.py"

MAX_BYTES = 256 * 1024
"""Bytes of one file. The standard wants instructions below 5,000 tokens; ten times that is a mistake."""

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
    root = directory.resolve()
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
    try:
        return read_text(target)
    except SkillError as error:
        raise SkillError(f"{path}: {error}") from None


def has_files(directory: Path) -> bool:
    """Whether there is anything beside SKILL.md and injection.py."""
    return bool(_files(directory.resolve()))


def _files(root: Path) -> list[str]:
    """Relative paths of the readable files below a directory, the two with a meaning of their own left out."""
    paths = (path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_file())
    names = (str(path) for path in paths if not any(part.startswith((".", "__")) for part in path.parts))
    return list(islice((name for name in names if name not in (SKILL_FILE, INJECTION_FILE)), _MAX_LISTED))
