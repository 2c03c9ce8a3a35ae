"""The `gvisor` level: the namespaces of `strict`, and in them a kernel of the jail's own.

What runs in the jail talks to gVisor's kernel, a program (`runsc`, which makes two processes: the sandbox and the
gofer, its way to files), and only that program talks to the host's. So a hole in the host's kernel is out of reach
until one in gVisor's is found; and an attacker who has one is still in the namespaces and on the private root of
`strict`, as an unprivileged user. Landlock and the seccomp filter of the other levels are not around it: runsc must
mount, and has a filter of its own.

A jail is not forked from the zygote but starts an interpreter, so nothing is preloaded. The bundle's `config.json`
is of the OCI runtime specification (github.com/opencontainers/runtime-spec, config.md), version 1.0.2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cenote_security.policy import Mount, SandboxPolicy
from cenote_security.walls import root
from cenote_security.walls.fresh_python_unsafe import arguments_of
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.level import JailAllowance, building
from cenote_security.walls.levels.runsc_unsafe import Runsc
from cenote_security.walls.levels.strict_level import StrictLevel
from cenote_security.walls.root import EMPTY_FOLDER, WRITABLE_FOLDERS

SPEC_VERSION: Final = "1.0.2"
STATE: Final = "state"
"""Folder beside `bundle_config.json` in which runsc keeps what it knows of the sandbox."""

_OVERLAY_CAME: Final = 20230301
"""From about then on runsc lays a writable file over the root unless told not to; before, it knows no such flag."""

_USER: Final = 0
"""Who the jail's processes are to gVisor. runsc shows the files of the unprivileged user that runs it as user
0's, and can make none for another. User 0 has no capability there and can get none.
"""

_NAMESPACES: Final = ("pid", "network", "ipc", "uts", "mount")
_CAPABILITY_SETS: Final = ("bounding", "effective", "inheritable", "permitted", "ambient")


def runsc_command(runsc: str, version: int, bundle: str) -> list[str]:
    """The command line that runs the sandbox of a bundle and ends with it. version: the date of the release.

    No platform is named: the default of each release is the one that its makers hold to be ready.
    """
    overlay = ["--overlay2=none"] if version >= _OVERLAY_CAME else []
    return [
        runsc,
        "--rootless",
        "--network=none",
        "--ignore-cgroups",  # the jail's processes are in their group before runsc starts
        *overlay,
        f"--root={bundle}/{STATE}",
        "run",
        f"--bundle={bundle}",
        "jail",
    ]


def bundle_config(
    policy: SandboxPolicy, arguments: Sequence[str], environment: Mapping[str, str], mounts: Sequence[Mount]
) -> dict[str, object]:
    """The `bundle_config.json` of a sandbox that runs `arguments`, on the root of the process that starts it.

    The root is not declared read-only, because it is: it was mounted so, and runsc would fail to do it once more.
    mounts: those that the zygote has made.
    """
    options = ["rw", "rbind", "nosuid", "nodev", *_locked(policy)]
    return {
        "ociVersion": SPEC_VERSION,
        "process": {
            "terminal": False,
            "user": {"uid": _USER, "gid": _USER},
            "args": list(arguments),
            "env": [f"{name}={text}" for name, text in environment.items()],
            "cwd": "/",
            "capabilities": {name: [] for name in _CAPABILITY_SETS},
            "noNewPrivileges": True,
        },
        "root": {"path": "/", "readonly": False},
        "hostname": "cenote",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            *(_bind(folder, options) for folder in WRITABLE_FOLDERS),
            *(_bind(mount.target, _mount_options(mount, policy)) for mount in mounts),
        ],
        "linux": {"namespaces": [{"type": kind} for kind in _NAMESPACES]},
    }


def _bind(path: str, options: Sequence[str]) -> dict[str, object]:
    """A folder or file of the outer root, at the same place inside."""
    return {"destination": path, "type": "bind", "source": path, "options": list(options)}


def _locked(policy: SandboxPolicy) -> list[str]:
    """Of folders that the sandbox may write to."""
    return ["noexec"] if policy.noexec else []


def _mount_options(mount: Mount, policy: SandboxPolicy) -> list[str]:
    locked = _locked(policy) if mount.writable else []
    return ["rw" if mount.writable else "ro", "rbind", "nosuid", "nodev", *locked]


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

    def settle(self, allowance: JailAllowance) -> None:
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

    def command(self, allowance: JailAllowance, module: str, environment: Mapping[str, str]) -> list[str]:
        """After `settle`: write the sandbox's bundle. Gives the command line that becomes the sandbox.

        module: whose `run()` a fresh interpreter calls inside, with this process's standard streams.
        """
        arguments = [sys.executable, *arguments_of(sys.path, module, "run")]
        config = bundle_config(allowance.policy, arguments, environment, self._mounts)
        with building("write the sandbox's bundle"):
            Path(EMPTY_FOLDER, "config.json").write_text(json.dumps(config))
        return runsc_command(self._runsc.path, self._runsc.version, EMPTY_FOLDER)
