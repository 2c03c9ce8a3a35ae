"""Where a platform's records are: a file of its state folder, or PostgreSQL by a URL that a private file there has.

In a file, since a URL may have a password, and arguments of processes are for all to see; and since all processes of
the platform, and its operator's commands, find it there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cenote.gateway.daemon_lock import running_at, runs_already
from cenote.gateway.database import Database
from cenote.gateway.state_folder import StateFolder
from cenote_security.errors import MalformedValueError, UsageError
from cenote_security.secret_files import read_secret_file, replace_file

DATABASE: Final = "CENOTE_DATABASE"
"""The variable that may have the URL, for those who start a platform."""


def database_place(state: StateFolder) -> Path | str:
    """For Database. Raises SecretFileError for a URL that others may read."""
    if not state.database_url.exists():
        return state.database
    try:
        return read_secret_file(state.database_url).decode().strip()
    except UnicodeDecodeError:
        raise MalformedValueError(f"{str(state.database_url)!r} holds no URL") from None


def keep_database_url(state: StateFolder, url: str) -> None:
    """From now on the records of this folder's platform are there.

    Another URL than before may be the same database by another way, or with another password: it has to have the
    tables of a platform. What cannot be opened is not kept.
    Raises UsageError for what is no such URL, or where the records are in a file; UnavailableError while the platform
    runs, without the driver, or for a database that cannot be used; SecretFileError.
    """
    for lock in (state.lock, state.watch):
        if (running := running_at(lock)) is not None:
            raise runs_already(running)
    if state.database.exists():
        raise UsageError(
            f"this platform keeps its records in {str(state.database)!r}; for one that keeps them in PostgreSQL name "
            "another folder with XDG_STATE_HOME"
        )
    state.make()
    lost = "name the one that this platform has worked with" if state.database_url.exists() else ""
    Database(url, lost=lost).close()
    replace_file(state.database_url, f"{url}\n".encode())
