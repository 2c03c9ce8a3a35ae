"""Files of an activated skill: they are put where its instructions expect them, while a cell waits.

The instructions are the answer of a host function. Rebuilding that answer in the jail creates the files, so that they
exist again when a recorded answer is replayed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_MOST_LISTED: Final = 30
"""Files named in the instructions; of more, only their number is."""

_FOR_READERS: Final = ("license", "readme", "notice", "changelog")
"""Files at the top of many skills that no code reads: a conflict between two of them must not move all others."""


class SkillFile(NamedTuple):
    """A file of a skill: its path below the skill's folder, its content, and whether it is executable."""

    path: str
    data: bytes
    executable: bool


class Instructions(str):
    """The text of an activated skill. Unpickled, it is plain text that says where the files are."""

    __slots__ = ("files", "skill")

    skill: str
    files: tuple[SkillFile, ...]

    def __new__(cls, text: str, skill: str, files: tuple[SkillFile, ...]) -> Instructions:
        made = super().__new__(cls, text)
        made.skill, made.files = skill, files
        return made

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return with_files_put, (str(self), self.skill, [tuple(file) for file in self.files])


def with_files_put(text: str, skill: str, files: list[tuple[str, bytes, bool]]) -> str:
    """Puts the files into the working directory, or into a folder of the skill's name if a name is taken.

    Returns the text, and where the files are.
    """
    found = [SkillFile(*file) for file in files]
    try:
        free = [file for file in found if not _is_taken(file)]
        left = [file for file in found if file not in free and not _is_for_readers(file)]
        home = Path(skill) if left else Path()
        placed = found if left else free
        for file in placed:
            _put(home, file)
    except OSError as error:
        return f"{text}\n\nThe files of this skill could not be put here: {error}"
    return f"{text}\n\n{_where(home, placed)}"


def _is_taken(file: SkillFile) -> bool:
    """Whether another file is there."""
    place = Path(file.path)
    if any(parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in place.parents):
        return True
    if not os.path.lexists(place):
        return False
    if place.is_symlink() or not place.is_file() or place.stat().st_size != len(file.data):
        return True
    return place.read_bytes() != file.data


def _is_for_readers(file: SkillFile) -> bool:
    return "/" not in file.path and file.path.lower().startswith(_FOR_READERS)


def _put(home: Path, file: SkillFile) -> None:
    place = home / file.path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(file.data)
    if file.executable:
        place.chmod(0o755)


def _where(home: Path, placed: list[SkillFile]) -> str:
    names = [file.path for file in placed[:_MOST_LISTED]]
    more = f" and {len(placed) - len(names)} more" if len(placed) > len(names) else ""
    listed = f"{', '.join(names)}{more}"
    if home == Path():
        return f"Files of this skill, in the working directory: {listed}"
    return (
        f"Files of this skill, in the folder {home}/, since other files have their names: {listed}. "
        f"Go there to run them, with os.chdir({str(home)!r}) or `cd {home}`"
    )
