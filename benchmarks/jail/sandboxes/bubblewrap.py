"""bubblewrap as Debian packages it: namespaces and a private root. It brings no seccomp filter."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.jail.sandboxes.piped import PYTHON, Piped
from cenote_security.walls.interpreter import running
from cenote_security.walls.root import SYSTEM_PATHS

WORKDIR = "/workspace"
_WALLS = ("bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--proc", "/proc",
          "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", WORKDIR, "--chdir", WORKDIR)  # fmt: skip


class Bubblewrap(Piped):
    def command(self) -> list[str]:
        return [*_WALLS, *_shown((*SYSTEM_PATHS, *running().visible)), *PYTHON]

    @property
    def folder(self) -> str:
        return WORKDIR


def _shown(paths: tuple[str, ...]) -> list[str]:
    """The paths that a Cenote jail also shows: system and interpreter, read-only; links stay links."""
    words: list[str] = []
    for path in filter(os.path.lexists, dict.fromkeys(paths)):
        if Path(path).is_symlink():
            words += ["--symlink", str(Path(path).readlink()), path]
        else:
            words += ["--ro-bind", path, path]
    return words
