"""Where a platform keeps what outlives it: one folder, its owner's alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cenote_security.auth.secret_files import make_private_folder
from cenote_security.errors import SecretFileError, UnavailableError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFolder:
    """The names in it."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "gateway.db"

    @property
    def database_url(self) -> Path:
        """Where the records are instead, if it is there."""
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
        """The lock of whoever starts the platform's process again."""
        return self.path / "watch.lock"

    @property
    def nodes(self) -> list[Path]:
        """Folders of keepers of this machine, which are named for their nodes."""
        return sorted(self.path.glob("node-*"))

    @property
    def cluster(self) -> Path:
        """Which Ray cluster is this platform's own."""
        return self.path / "cluster.json"

    @property
    def joined(self) -> Path:
        """Which Ray cluster this platform is on that is not its own."""
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
        """States of durable runtimes, and records of all, unless they are to be elsewhere; a folder per tenant."""
        return self.path / "store"

    @property
    def log(self) -> Path:
        return self.path / "platform.log"

    def make(self) -> None:
        """Raises SecretFileError for another user's folder, UnavailableError where there can be none."""
        try:
            make_private_folder(self.path)
            status = self.path.stat()
            if status.st_uid != os.geteuid():
                raise SecretFileError(self.path, f"it belongs to another user (uid {status.st_uid})")
            self.path.chmod(0o700)
        except OSError as error:
            raise UnavailableError(f"{str(self.path)!r} cannot be used: {error.strerror}") from None


def state_folder() -> StateFolder:
    """Where XDG says that programs keep their state. Raises UsageError for a user without a home."""
    try:
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    except RuntimeError:
        raise UsageError("this user has no home folder; set XDG_STATE_HOME") from None
    return StateFolder(path=Path(base) / "cenote")
