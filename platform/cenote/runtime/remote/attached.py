"""One more author of a runtime on a platform: a client of its own there, with a seat of its own."""

from __future__ import annotations

from collections.abc import Sequence

from cenote.runtime.backend import Backend
from cenote.runtime.branch_line import BranchThere
from cenote.runtime.host_desk import HostDesk
from cenote.runtime.remote.harness import RemoteHarness
from cenote.runtime.remote.platform_client import PlatformClient
from cenote.runtime.remote.runtime import RemoteRuntime
from cenote_proto.v1 import platform_pb2
from cenote_security.errors import RuntimeClosedError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.hosted.branching import ForkOrder
from cenote_worker.supervisor.requests import Listener


class AttachedRemoteRuntime(RemoteRuntime):
    """See Backend.attach. The runtime is the owner's, made when either is first used; it goes on without this one."""

    def __init__(
        self,
        owner: RemoteRuntime,
        client: PlatformClient,
        policy: SandboxPolicy,
        desk: HostDesk,
        name: str,
        author: str,
        *,
        private: bool,
    ) -> None:
        super().__init__(client, policy, desk, name, author=author, private=private)
        self._owner = owner

    def check_open(self) -> None:
        self._owner.check_open()
        if self._closed:
            raise RuntimeClosedError(f"{self._author} was detached from this runtime; attach again")
        super().check_open()

    def attach(self, author: str, *, private: bool) -> Backend:
        return self._owner.attach(author, private=private)

    def reset(self) -> None:
        """Raises UsageError: others hold this runtime too."""
        raise UsageError("only the owner of a runtime can reset it, not an author who is attached")

    def rollback(self, to: int | str, listener: Listener) -> None:  # noqa: ARG002
        """Raises UsageError: others hold this runtime too."""
        raise UsageError("only the owner of a runtime can roll it back, not an author who is attached")

    def rerunning(self) -> RemoteHarness:
        """Raises UsageError: others hold this runtime too."""
        raise UsageError("only the owner of a runtime can patch its history, not an author who is attached")

    def fork(self, order: ForkOrder, count: int, names: Sequence[str]) -> list[BranchThere]:  # noqa: ARG002
        """Raises UsageError: others hold this runtime too."""
        raise UsageError("only the owner of a runtime forks it, not an author who is attached")

    async def _described(self) -> platform_pb2.RuntimeDescription:
        return await self._platform.describe(self._id or await self._owner.opened())
