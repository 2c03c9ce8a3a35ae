"""What of the host's system a jail sees, and the `/etc` it gets instead of the host's."""

from __future__ import annotations

from typing import Final

SYSTEM_PATHS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
"""Programs and libraries, shown read-only as they are."""

ETC_SHOWN: Final = ("/etc/alternatives", "/etc/fonts", "/etc/ssl/certs")
"""Folders of `/etc` that programs and libraries below `/usr` point into."""

ETC_COPIED: Final = ("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/ssl/openssl.cnf")
"""Small files without secrets, copied, so that a symbolic link among them leads nowhere else."""

DEVICES: Final = ("null", "zero", "full", "random", "urandom")

DEVICE_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}


def etc_files(identity: int, home: str) -> dict[str, str]:
    """Synthesised files of `/etc`: one user, no network. Pure."""
    return {
        "/etc/passwd": f"cave:x:{identity}:{identity}:cave:{home}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "/etc/group": f"cave:x:{identity}:\nnogroup:x:65534:\n",
        "/etc/hosts": "127.0.0.1 localhost cenote\n::1 localhost cenote\n",
        "/etc/hostname": "cenote\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
        "/etc/resolv.conf": "",
    }


def cpu_files(count: int) -> dict[str, str]:
    """Files of `/sys/devices/system/cpu` that the C library counts processors by. Pure."""
    online = "0" if count == 1 else f"0-{count - 1}"
    return dict.fromkeys(("online", "possible", "present"), online + "\n")
