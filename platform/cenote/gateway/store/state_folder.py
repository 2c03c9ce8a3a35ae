"""Where a platform stores what outlives it: one folder, private to its owner."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cenote_security.auth.secret_files import make_private_folder
from cenote_security.errors import SecretFileError, UnavailableError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFolder:
    """The paths in the folder."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "gateway.db"

    @property
    def database_url(self) -> Path:
        """Contains the URL of the database, if it is not a file here."""
        return self.path / "database.url"

    @property
    def audit(self) -> Path:
        return self.path / "audit"

    @property
    def audit_key(self) -> Path:
        return self.path / "audit.key"

    @property
    def master_key(self) -> Path:
        return self.path / "master.key"

    @property
    def certificates(self) -> Path:
        return self.path / "tls"

    @property
    def lock(self) -> Path:
        return self.path / "daemon.lock"

    @property
    def watch(self) -> Path:
        """The lock of the watcher, which restarts the platform's process."""
        return self.path / "watch.lock"

    @property
    def nodes(self) -> list[Path]:
        """Folders of this machine's descriptor stores, named for their nodes."""
        return sorted(self.path.glob("node-*"))

    @property
    def cluster(self) -> Path:
        """Records the platform's own Ray cluster."""
        return self.path / "cluster.json"

    @property
    def joined(self) -> Path:
        """Records the Ray cluster that this platform has joined."""
        return self.path / "joined.json"

    @property
    def cluster_token(self) -> Path:
        return self.path / "cluster.token"

    @property
    def cluster_log(self) -> Path:
        return self.path / "cluster.log"

    @property
    def teams(self) -> Path:
        """A folder of secrets for each team."""
        return self.path / "teams"

    @property
    def jobs(self) -> Path:
        """A folder of secrets for each job."""
        return self.path / "jobs"

    @property
    def store(self) -> Path:
        """States of durable runtimes, and records of all, unless stored elsewhere; a folder per tenant."""
        return self.path / "store"

    @property
    def store_url(self) -> Path:
        """Contains the URL of the store that the platform was last started with; it may contain credentials."""
        return self.path / "store.url"

    @property
    def log(self) -> Path:
        return self.path / "platform.log"

    def make(self) -> None:
        """Creates the folder. Raises SecretFileError for another user's, UnavailableError where it cannot be made."""
        try:
            make_private_folder(self.path)
            status = self.path.stat()
            if status.st_uid != os.geteuid():
                raise SecretFileError(self.path, f"it belongs to another user (uid {status.st_uid})")
            self.path.chmod(0o700)
        except OSError as error:
            raise UnavailableError(f"{str(self.path)!r} cannot be used: {error.strerror}") from None


def state_folder() -> StateFolder:
    """The folder by XDG's rules for state. Raises UsageError for a user without a home."""
    try:
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    except RuntimeError:
        raise UsageError("this user has no home folder; set XDG_STATE_HOME") from None
    return StateFolder(path=Path(base) / "cenote")
