"""Files of a skill's directory: instructions, and what they refer to. Nothing outside of it is ever read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from cenote.skills.errors import SkillError
from cenote_worker.in_jail.skill_files import SkillFile

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
