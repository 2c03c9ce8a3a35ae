"""The `gvisor` level: the namespaces of `strict`, and in them a kernel of the jail's own.

What runs in the jail talks to gVisor's kernel, a program (`runsc`, which makes two processes: the sandbox and the
gofer, its way to files), and only that program talks to the host's. So a hole in the host's kernel is out of reach
until one in gVisor's is found; and whoever found that still sits in the namespaces and on the private root of
`strict`, as an unprivileged user. Landlock and the seccomp filter of the other levels are not around it: runsc must
mount, and has a filter of its own.

A jail is not forked from the zygote but starts an interpreter, so nothing is preloaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cenote_security.policy import Mount
from cenote_security.walls import gvisor_bundle as bundle
from cenote_security.walls import libc_unsafe as libc
from cenote_security.walls import root
from cenote_security.walls.fresh_python_unsafe import arguments_of
from cenote_security.walls.level import Allowance
from cenote_security.walls.runsc_unsafe import Runsc
from cenote_security.walls.strict import StrictLevel
from cenote_security.walls.template import EMPTY_FOLDER
from cenote_security.walls.wall import building

_BUNDLE_BYTES: Final = 4 * 2**20
"""Of the memory disk that holds `config.json` and what runsc keeps about the sandbox: tens of kilobytes."""


class GvisorLevel(StrictLevel):
    name = "gvisor"
    own_kernel = True
    own_memory = 96 * 2**20
    """An idle jail has 65 MB, of which 30 are its interpreter's; gVisor's kernel grows with what it is asked for."""
    own_tasks = 96
    tasks_each = 3
    """One runs the code of a task, one is its thread in gVisor's kernel; and each address space has one."""

    def __init__(self, host_proc: int, runsc: Runsc) -> None:
        super().__init__(host_proc)
        self._runsc = runsc
        self._mounts: Sequence[Mount] = ()

    def prepare(self, visible: Sequence[str], mounts: Sequence[Mount]) -> None:
        super().prepare(visible, mounts)
        self._mounts = mounts

    def settle(self, allowance: Allowance) -> None:
        """As the first process of the namespaces, around the sandbox."""
        furniture = self._furnished()
        root.furnish_folders(furniture, allowance.policy)
        root.show_cpus(furniture, allowance.policy)
        with building("mount /proc"):
            # Writable and unmasked: runsc maps its user there, and mounts one more in a namespace below.
            libc.mount("proc", "/proc", "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
        with building("mount the folder of the sandbox"):
            options = f"mode=0700,size={_BUNDLE_BYTES}"
            libc.mount("tmpfs", EMPTY_FOLDER, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, options)

    def command(self, allowance: Allowance, module: str, environment: Mapping[str, str]) -> list[str]:
        """After `settle`: write the sandbox's bundle. Gives the command line that becomes the sandbox.

        module: whose `run()` a fresh interpreter calls inside, with this process's standard streams.
        """
        arguments = [sys.executable, *arguments_of(sys.path, module, "run")]
        config = bundle.config(allowance.policy, arguments, environment, self._mounts)
        with building("write the sandbox's bundle"):
            Path(EMPTY_FOLDER, "config.json").write_text(json.dumps(config))
        return bundle.command(self._runsc.path, self._runsc.version, EMPTY_FOLDER)
