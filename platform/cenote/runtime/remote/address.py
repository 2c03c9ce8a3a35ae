"""Which platform a client means, and by what right: arguments, environment, token file."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cenote_security.auth.secret_files import read_secret_file
from cenote_security.errors import UsageError
from cenote_security.extras import require

ADDRESS: Final = "CENOTE_ADDRESS"
TOKEN: Final = "CENOTE_TOKEN"
AUTHORITY: Final = "CENOTE_CA"
"""A file with the certificate of the authority that vouches for a platform. With it, connections are TLS."""
EMBEDDED: Final = "embedded"
"""As an address: a jail on this machine, whatever the environment says."""

WAIT: Final = "CENOTE_WAIT"
"""Seconds for which clients wait for a platform that does not answer and was there before."""

PORT: Final = 8470
HTTP_PORT: Final = 8480
DEFAULT_WAIT: Final = 30.0

LONGEST_WAIT: Final = 600.0
"""Seconds for which a platform may have a client wait for room: some clouds need as long for a machine."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a platform's gateway listens, as `host:port`, and a bearer token; empty where none is known.

    authority: the file with whose certificates its own is checked; empty without TLS. wait: seconds, see WAIT.
    insists: whether that was said, and not the default: then also for one of which nothing is known here.
    """

    address: str
    token: str = field(default="", repr=False)
    authority: str = ""
    wait: float = DEFAULT_WAIT
    insists: bool = False


def destination(
    address: str | None, token: str | None = None, wait: float | None = None
) -> Destination | None:
    """The platform that is meant; None for this machine.

    address: `host:port` or `host`; None for what CENOTE_ADDRESS says, `"embedded"` for this machine in any case.
    token: None for what CENOTE_TOKEN or the token file says. wait: None for what CENOTE_WAIT says.
    Raises UsageError, SecretFileError for a token file that others can read, MissingExtraError.
    """
    given = address if address is not None else os.environ.get(ADDRESS) or EMBEDDED
    if given == EMBEDDED:
        return None
    require_client()
    authority = os.environ.get(AUTHORITY, "")
    return Destination(
        _checked(given),
        _header(token if token is not None else _token()),
        authority,
        wait_seconds() if wait is None else wait,
        wait is not None or bool(os.environ.get(WAIT)),
    )


def require_client() -> None:
    """Raises MissingExtraError where the libraries of a platform's client are not installed."""
    require("the platform's client", "platform", "grpc")


def wait_seconds() -> float:
    """What the environment says, else half a minute. Raises UsageError."""
    given = os.environ.get(WAIT) or str(DEFAULT_WAIT)
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{WAIT} is a number of seconds, such as 30, or 0 for no wait; not {given!r:.100}")
    return seconds


def token_file() -> Path:
    """Where `cenote up` leaves a token for its own user."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "cenote" / "token"


def _token() -> str:
    if token := os.environ.get(TOKEN, ""):
        return token
    try:
        path = token_file()
    except RuntimeError:  # there is no home
        return ""
    return read_secret_file(path).decode("ascii", "replace").strip() if path.exists() else ""


def _header(token: str) -> str:
    """As it travels, without the line end that it may have been read with. Raises UsageError, which hides it."""
    text = token.strip()
    if not (text.isascii() and text.isprintable()):
        raise UsageError(
            f"what was given as a token is none: it has characters that no token has; check {TOKEN}"
        )
    return text


def _checked(address: str) -> str:
    if not isinstance(address, str):
        raise UsageError(f"an address is a text, such as localhost:{PORT}, not {address!r:.100}")
    host, colon, port = address.rpartition(":")
    if not colon or "]" in port:
        host, port = address, str(PORT)
    bracketed = host.startswith("[") and host.endswith("]")
    plain = host.strip("[]") and host.isprintable() and not set(host) & set(" /?#@,")
    number = port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536
    if not plain or not number or (":" in host and not bracketed):
        raise UsageError(f"{address!r} is not an address; write it as host:port, such as localhost:{PORT}")
    return f"{host}:{port}"
