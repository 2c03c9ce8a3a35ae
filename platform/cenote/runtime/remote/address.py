"""Which platform a client means, and by what right: arguments, environment, token file."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cenote_security.errors import RejectedError, UsageError

ADDRESS: Final = "CENOTE_ADDRESS"
TOKEN: Final = "CENOTE_TOKEN"
AUTHORITY: Final = "CENOTE_CA"
"""A file with the certificate of the authority that vouches for a platform. With it, connections are TLS."""
EMBEDDED: Final = "embedded"
"""As an address: a jail on this machine, whatever the environment says."""

PORT: Final = 8470


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a platform's gateway listens, as `host:port`, and a bearer token; empty where none is known.

    authority: the file with whose certificates its own is checked; empty without TLS.
    """

    address: str
    token: str = field(default="", repr=False)
    authority: str = ""


def destination(address: str | None, token: str | None = None) -> Destination | None:
    """The platform that is meant; None for this machine.

    address: `host:port` or `host`; None for what CENOTE_ADDRESS says, `"embedded"` for this machine in any case.
    token: None for what CENOTE_TOKEN or the token file says. Raises UsageError, RejectedError for a token file that
    others can read.
    """
    given = address if address is not None else os.environ.get(ADDRESS, "")
    if not given or given == EMBEDDED:
        return None
    authority = os.environ.get(AUTHORITY, "")
    return Destination(_checked(given), token if token is not None else _token(), authority)


def token_file() -> Path:
    """Where `cenote up` leaves a token for its own user."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "cenote" / "token"


def _token() -> str:
    if token := os.environ.get(TOKEN, ""):
        return token
    try:
        path = token_file()
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_IMODE(mode) & 0o077:
                raise RejectedError(f"{path} holds a token and can be read by others; run: chmod 600 {path}")
            return file.read().strip()
    except (FileNotFoundError, RuntimeError):  # RuntimeError: there is no home
        return ""


def _checked(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or "]" in port:
        host, port = address, str(PORT)
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"{address!r} is not an address; write it as host:port, such as localhost:{PORT}")
    return f"{host}:{port}"
