"""The inputs of a process that works on a team or a job: settings, the loop to run, and secrets in files.

Credentials of jails are apart from the definition, which is stored in a database and shown.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Protocol

from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.work.workload import Kind
from cenote_proto.v1 import job_pb2, runtime_pb2, team_pb2
from cenote_security.auth.secret_files import read_secret_file, replace_file
from cenote_security.errors import SecretFileError
from cenote_worker.wire import policies


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorSettings:
    """work: the id of a team, or of a job; empty if these are for all. address, authority: of the platform's gateway,
    see Destination.

    state: the platform's folder. otlp: where traces go, if anywhere. log_json: see set_up. Contains no secret.
    """

    state: StateFolder
    kind: Kind
    work: str = ""
    address: str = ""
    authority: str = ""
    otlp: str = ""
    log_json: bool = False

    def of(self, work: str, where: tuple[str, str]) -> OrchestratorSettings:
        """The same for one work. where: address and authority of the gateway."""
        return replace(self, work=work, address=where[0], authority=where[1])

    def to_json(self) -> str:
        return json.dumps(
            {
                "state": str(self.state.path),
                "kind": self.kind,
                "work": self.work,
                "address": self.address,
                "authority": self.authority,
                "otlp": self.otlp,
                "log_json": self.log_json,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> OrchestratorSettings:
        """Parses the output of `to_json`."""
        given = json.loads(text)
        return cls(
            state=StateFolder(path=Path(given["state"])),
            kind=given["kind"],
            work=given["work"],
            address=given["address"],
            authority=given["authority"],
            # An actor that Ray restarts may have settings of an earlier version.
            otlp=given.get("otlp", ""),
            log_json=given.get("log_json", False),
        )


class WorkSecrets:
    """folder: of one team or job. Raises SecretFileError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, token: str) -> None:
        try:
            for folder in (
                self._folder.parent,
                self._folder,
            ):  # not the platform's state, which may be moved away
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SecretFileError(self._folder, error.strerror or str(error)) from None
        replace_file(self._token, token.encode())
        self.keep({}, {})

    def keep(self, secrets: Mapping[str, str], credentials: Mapping[str, str]) -> None:
        """Replaces what is stored. secrets: keys of models. credentials: as `taken_out` of a definition."""
        replace_file(self._secrets, json.dumps(dict(secrets)).encode())
        replace_file(self._credentials, json.dumps(dict(credentials)).encode())

    def token(self) -> str:
        return read_secret_file(self._token).decode()

    def secrets(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(read_secret_file(self._secrets))
        return found

    def credentials(self) -> dict[str, str]:
        if not self._credentials.exists():  # of an earlier version
            return {}
        found: dict[str, str] = json.loads(read_secret_file(self._credentials))
        return found

    def drop_token(self) -> None:
        """Removes the token, which is no longer valid. The secrets stay, for work that is reopened."""
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

    @property
    def _credentials(self) -> Path:
        return self._folder / "credentials"


class WorkLoop(Protocol):
    def work(self) -> None:
        """Runs until there is nothing more to do. Raises SupersededError, DatabaseUnavailableError."""

    def make_room(self) -> None:
        """Makes `work` return soon, before its work is done, if it can. From any thread."""


def loop_of(settings: OrchestratorSettings) -> WorkLoop:
    return loop_type(settings.kind)(settings)


def loop_type(kind: Kind) -> Callable[[OrchestratorSettings], WorkLoop]:
    """Imports only what this kind needs."""
    if kind == "team":
        from cenote.gateway.teams.orchestrator import Orchestrator

        return Orchestrator
    from cenote.gateway.jobs.runner import JobRunner

    return JobRunner


Works = job_pb2.JobDefinition | team_pb2.TeamDefinition


def taken_out(definition: Works) -> dict[str, str]:
    """Removes them from the definition. Returns them by whose policy they are in, for `put_back`."""
    taken: dict[str, str] = {}
    for whose, policy in _policies(definition):
        if secrets := policies.take_secrets(policy):
            taken[whose] = base64.b64encode(secrets).decode()
    return taken


def put_back(definition: Works, taken: Mapping[str, str]) -> None:
    """Adds what was taken out."""
    for whose, policy in _policies(definition):
        if whose in taken:
            policies.give_secrets(policy, base64.b64decode(taken[whose]))


def _policies(definition: Works) -> Iterator[tuple[str, runtime_pb2.Policy]]:
    """The common one under an empty name, those of members under theirs."""
    if definition.HasField("sandbox"):
        yield "", definition.sandbox
    if isinstance(definition, team_pb2.TeamDefinition):
        for member in definition.members:
            if member.HasField("sandbox"):
                yield member.name, member.sandbox
