"""The secrets of a work, in private files: keys for its models, and the token by which it has runtimes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree

from cenote_security.secret_files import read_secret_file, replace_file


class Keys:
    """folder: of one work. Raises SecretFileError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, token: str) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._token, token.encode())
        self.keep({})

    def keep(self, secrets: Mapping[str, str]) -> None:
        """Instead of those that were there."""
        replace_file(self._secrets, json.dumps(dict(secrets)).encode())

    def token(self) -> str:
        return read_secret_file(self._token).decode()

    def secrets(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(read_secret_file(self._secrets))
        return found

    def drop_token(self) -> None:
        """It is good for nothing any more. The secrets stay, for work that is taken up again."""
        self._token.unlink(missing_ok=True)

    def replace_token(self, token: str) -> None:
        replace_file(self._token, token.encode())

    def remove(self) -> None:
        rmtree(self._folder, ignore_errors=True)

    @property
    def _token(self) -> Path:
        return self._folder / "token"

    @property
    def _secrets(self) -> Path:
        return self._folder / "secrets"
