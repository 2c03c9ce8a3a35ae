"""Finding gVisor's `runsc`, and asking it for its version."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Final

PLACES: Final = ("/usr/bin/runsc", "/usr/local/bin/runsc", "/usr/sbin/runsc", "/usr/local/sbin/runsc")
"""Where it is looked for. A zygote has no PATH, and a jail's root shows what is below `/usr`."""

REMEDY: Final = (
    "Install gVisor's runsc below /usr: `apt-get install runsc` on Debian 12 or later, else see "
    "https://gvisor.dev/docs/user_guide/install. It needs no daemon and no set-up."
)

_VERSION_SECONDS: Final = 10.0
_DATE: Final = re.compile(r"\b(20\d{6})\.")


@dataclass(frozen=True, kw_only=True)
class Runsc:
    """path: absolute. version: the date of its release as a number, such as 20221219; 0 when it names none."""

    path: str
    version: int


def find() -> Runsc:
    """The first runsc that runs. Raises OSError when there is none, or it cannot be run."""
    for path in filter(os.path.isfile, PLACES):
        return Runsc(path=path, version=_version(path))
    raise FileNotFoundError(errno.ENOENT, f"none of {', '.join(PLACES)} exists")


def describe() -> str:
    found = find()
    return f"{found.path}, release {found.version or 'unknown'}"


def release_date(text: str) -> int:
    """The date in what `runsc --version` prints, such as `runsc version release-20240729.0`; 0 for none. Pure."""
    found = _DATE.search(text.replace("~", " ").replace("-", " "))
    return int(found.group(1)) if found else 0


def _version(path: str) -> int:
    try:
        answer = subprocess.run(
            [path, "--version"], env={}, capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise TimeoutError(errno.ETIMEDOUT, f"{path} --version does not answer") from late
    if answer.returncode != 0:
        raise OSError(
            errno.ENOEXEC, f"{path} --version failed with {answer.returncode}: {answer.stderr[-200:]}"
        )
    return release_date(answer.stdout)
