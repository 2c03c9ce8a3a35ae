"""gVisor's runsc, by its own command for running a program on the host's files with a memory overlay."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.jail.sandboxes.piped import PYTHON, Piped


class Gvisor(Piped):
    rounds_apart: ClassVar[int] = 6

    def command(self) -> list[str]:
        return ["runsc", "--network=none", "--ignore-cgroups", "do", "--quiet", *PYTHON]

    @property
    def folder(self) -> str:
        """In the overlay, which is in memory; nothing of it reaches the host."""
        return "/tmp"
