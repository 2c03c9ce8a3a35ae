"""What `runsc` is told about one sandbox: its command line, and the bundle's `config.json`. Pure.

The file is of the OCI runtime specification (github.com/opencontainers/runtime-spec, config.md), version 1.0.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cenote_security.policy import Mount, SandboxPolicy
from cenote_security.walls.template import WRITABLE_FOLDERS

SPEC_VERSION: Final = "1.0.2"
STATE: Final = "state"
"""Folder beside `config.json` in which runsc keeps what it knows of the sandbox."""

_OVERLAY_CAME: Final = 20230301
"""From about then on runsc lays a writable file over the root unless told not to; before, it knows no such flag."""

_USER: Final = 0
"""Who the jail's processes are to gVisor. runsc shows the files of whoever runs it, an unprivileged user, as user
0's, and can make none for another. User 0 has no capability there and can get none.
"""

_NAMESPACES: Final = ("pid", "network", "ipc", "uts", "mount")
_CAPABILITY_SETS: Final = ("bounding", "effective", "inheritable", "permitted", "ambient")


def command(runsc: str, version: int, bundle: str) -> list[str]:
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


def config(
    policy: SandboxPolicy, arguments: Sequence[str], environment: Mapping[str, str], mounts: Sequence[Mount]
) -> dict[str, object]:
    """The `config.json` of a sandbox that runs `arguments`, on the root of whoever starts it.

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
