"""Environments that a platform builds for its tenants, as a client asks for them and waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from cenote.runtime.remote.address import Destination
from cenote_security.environment import Environment
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.environments.errors import EnvironmentBuildError

if TYPE_CHECKING:
    from cenote.runtime.remote.platform_client import PlatformClient
    from cenote_proto.v1 import platform_pb2

T = TypeVar("T")

PATIENCE: Final = 40.0
"""Seconds for one question to the gateway."""

_LOOK_EVERY: Final = 0.5

_NOT_THERE: Final = {
    "path": "a virtual environment of this machine is not on the platform's: name its packages, or write them to a "
    "lock file with `uv pip freeze | uv pip compile --generate-hashes -`",
    "preload": "a platform imports no modules of tenants' environments beforehand: leave out preload",
    "index": "a platform's operator says which index is asked: leave out index",
    "find_links": "a platform's operator says where wheels come from: leave out find_links",
    "offline": "a platform's operator says where wheels come from: leave out offline",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentInfo:
    """An environment of a platform. digest, packages (as `name==version`), size (bytes on the disk of each machine):
    once it is ready. progress: while it is built, the latest line. error: why it has failed. created: in seconds
    since the epoch. common: its operator has given it to all tenants.
    """

    name: str
    state: Literal["building", "ready", "failed"]
    digest: str
    packages: tuple[str, ...]
    size: int
    progress: str
    error: str
    created: float
    common: bool


def silent(_line: str) -> None:
    """A progress that is shown nowhere."""


class PlatformEnvironments:
    """The environments of the token's tenant on one platform. Calls block."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def build(
        self,
        environment: Environment,
        name: str = "",
        *,
        progress: Callable[[str], None] = silent,
        wait: bool = True,
    ) -> EnvironmentInfo:
        """Has the platform build it, unless it has: from then on policies name it.

        name: by default one made of its packages. progress: gets lines as they come. wait: until it is ready; else it
        goes on in the background, and `get` tells how far it is. A caller that ends meanwhile ends nothing.

        Raises EnvironmentBuildError with the next step, RejectedError where the operator does not allow it,
        QuotaExceededError, EntryExistsError for a name with other packages, UsageError, UnfitEnvironmentError.
        """
        found = self._begin(_request(environment, name, progress))
        last = ""
        while wait and found.state == "building":
            if found.progress not in ("", last):
                last = found.progress
                progress(last)
            time.sleep(_LOOK_EVERY)
            found = self.get(found.name)
        if wait and found.state == "failed":
            raise EnvironmentBuildError(f"building environment {found.name!r}", found.error)
        return found

    def begin(
        self,
        name: str,
        requirements: Sequence[str] = (),
        *,
        python: str = "",
        lock: str = "",
        lock_file: str = "",
    ) -> EnvironmentInfo:
        """Has it built in the background, as `build` without `wait`. No file of this machine is read.

        lock: the text of a lock file. lock_file: its format, `requirements.txt` or `pylock.toml`. Raises as `build`.
        """
        from cenote_proto.scalars import make
        from cenote_proto.v1 import platform_pb2

        kind = platform_pb2.BuildEnvironmentRequest
        return self._begin(
            make(kind, name=name, requirements=requirements, python=python, lock=lock, lock_file=lock_file)
        )

    def _begin(self, request: platform_pb2.BuildEnvironmentRequest) -> EnvironmentInfo:
        return _info(self._ask(self._client().build_environment(request)))

    def get(self, name: str) -> EnvironmentInfo:
        """Raises UnknownEntryError."""
        return _info(self._ask(self._client().environment(name)))

    def list(self) -> list[EnvironmentInfo]:
        """Those of the operator, then the tenant's own by name."""
        return [_info(message) for message in self._ask(self._client().environments())]

    def remove(self, name: str) -> None:
        """Its files go once no machine needs them. Raises UnknownEntryError; UsageError while a runtime, a team or a
        job has it.
        """
        self._ask(self._client().remove_environment(name))

    def _client(self) -> PlatformClient:
        from cenote.runtime.remote.platform_client import client_of

        return client_of(self._destination)

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        from cenote.runtime.remote.background import background

        return background().wait(question, PATIENCE + self._destination.wait, "answer")


def with_built_environment(destination: Destination, policy: SandboxPolicy) -> SandboxPolicy:
    """The policy with its environment by digest, built on the platform if need be. Raises as `build`."""
    if not isinstance(policy.environment, Environment):
        return policy
    return replace(policy, environment=PlatformEnvironments(destination).build(policy.environment).digest)


def _request(
    environment: Environment, name: str, progress: Callable[[str], None]
) -> platform_pb2.BuildEnvironmentRequest:
    """Raises UsageError, UnfitEnvironmentError; for a `uv.lock` EnvironmentBuildError, MissingExtraError."""
    from cenote_proto.scalars import make, put
    from cenote_proto.v1 import platform_pb2
    from cenote_worker.environments.packages import resolved

    for field, reason in _NOT_THERE.items():
        if getattr(environment, field):
            raise UsageError(reason)
    request = make(
        platform_pb2.BuildEnvironmentRequest,
        name=name,
        requirements=environment.requirements,
        python=environment.python,
    )
    if environment.lockfile:
        with TemporaryDirectory() as folder:
            lock = resolved(environment, Path(folder), progress)
        put(request, "lock", lock.text)
        put(request, "lock_file", lock.file)
    return request


def _info(message: platform_pb2.EnvironmentDescription) -> EnvironmentInfo:
    states: tuple[Literal["building", "ready", "failed"], ...] = ("building", "ready", "failed")
    return EnvironmentInfo(
        name=message.name,
        state=states[message.state] if message.state < len(states) else "failed",
        digest=message.digest,
        packages=tuple(message.packages),
        size=message.size,
        progress=message.progress,
        error=message.error,
        created=message.created,
        common=message.common,
    )
