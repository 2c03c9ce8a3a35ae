"""A whole platform in this process, and tenants that use it with generated stubs, without the cenote client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from tests.support.serving.plain import Line

from cenote.gateway.api.server import GatewayServer
from cenote.gateway.machines.local_nodes import LocalNodes
from cenote.gateway.machines.nodes import Nodes
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.stores import Stores
from cenote.gateway.tls.certificates import InternalTls, kept_authority
from cenote_proto.v1 import platform_pb2, reference_pb2, runtime_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceStub
from cenote_proto.v1.reference_pb2_grpc import ReferenceServiceStub
from cenote_security.auth.capability import MasterKey
from cenote_security.auth.tokens import ORDINARY_SCOPES
from cenote_security.ids import TenantId, TokenId
from cenote_security.policy import SandboxPolicy
from cenote_worker.serving.endpoints import Secured
from cenote_worker.serving.limits import ServerTimeouts
from cenote_worker.wire import policies

Description = platform_pb2.RuntimeDescription
BARE = SandboxPolicy(preload=(), memory="256MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """How a call was refused, as any client sees it."""

    code: grpc.StatusCode
    text: str


def refused(ask: Callable[[], object]) -> Refusal:
    """The refusal of a call. Fails when it is not refused."""
    try:
        given = ask()
    except grpc.RpcError as error:
        return Refusal(code=error.code(), text=error.details())
    raise AssertionError(f"this was not refused but gave {given}")


class User:
    """A client with a token. Calls raise grpc.RpcError."""

    def __init__(self, address: str, token: str, tenant: TenantId) -> None:
        self.address, self.token, self.tenant = address, token, tenant
        self._metadata = (("authorization", f"Bearer {token}"),)
        self.channel = grpc.insecure_channel(address)
        self._platform = PlatformServiceStub(self.channel)
        self._references = ReferenceServiceStub(self.channel)
        self.lines: list[Line] = []

    @property
    def token_id(self) -> TokenId:
        return TokenId(self.token.split("_")[1])

    def describe(self) -> platform_pb2.PlatformDescription:
        return self._platform.Describe(platform_pb2.DescribePlatform(), metadata=self._metadata)

    def create(self, name: str = "", policy: SandboxPolicy = BARE, **more: Any) -> Description:
        return self.creation(name, policy, **more).result()

    def creation(self, name: str = "", policy: SandboxPolicy = BARE, **more: Any) -> grpc.Future:
        """A creation in progress. The caller may cancel it, and then is gone."""
        request = platform_pb2.CreateRuntimeRequest(name=name, policy=policies.from_policy(policy), **more)
        return self._platform.CreateRuntime.future(request, metadata=self._metadata)

    def get(self, name: str) -> Description:
        return self._platform.GetRuntime(platform_pb2.RuntimeName(name=name), metadata=self._metadata)

    def delete(self, name: str) -> platform_pb2.DeleteRuntimeReply:
        return self._platform.DeleteRuntime(platform_pb2.RuntimeName(name=name), metadata=self._metadata)

    def fork(self, name: str, **request: Any) -> list[Description]:
        wanted = platform_pb2.ForkRuntimeRequest(name=name, **request)
        return list(self._platform.ForkRuntime(wanted, metadata=self._metadata).runtimes)

    def page(self, **request: Any) -> platform_pb2.ListRuntimesReply:
        return self._platform.ListRuntimes(
            platform_pb2.ListRuntimesRequest(**request), metadata=self._metadata
        )

    def names(self) -> list[str]:
        return [each.name for each in self.page().runtimes]

    def line(self, runtime: Description | str, client: str = "one") -> Line:
        """A connection to a runtime where its description says it is; through the gateway where it says nothing."""
        if isinstance(runtime, str):
            line = Line(self.address, runtime, client, self.token)
        else:
            address = runtime.address or self.address
            line = Line(address, runtime.id, client, runtime.capability or self.token)
        self.lines.append(line)
        return line

    def share(self, runtime: Description, code: str) -> str:
        """A reference to a value that a cell creates."""
        line = self.line(runtime)
        line.welcome()
        assert line.run(f"shared = {code}").success
        return line.answer(line.send(share=runtime_pb2.Share(name="shared"))).shared.reference

    def reference(self, name: str) -> reference_pb2.ReferenceDescription:
        return self._references.GetReference(reference_pb2.ReferenceId(id=name), metadata=self._metadata)

    def hold(self, name: str) -> reference_pb2.ReferenceDescription:
        request = reference_pb2.HoldRequest(id=name, holder="me", lease=60)
        return self._references.HoldReference(request, metadata=self._metadata)

    def release(self, name: str) -> reference_pb2.ReleaseReply:
        request = reference_pb2.ReleaseRequest(id=name, holder="me")
        return self._references.ReleaseReference(request, metadata=self._metadata)

    def read(self, name: str) -> bytes:
        request = reference_pb2.ReferenceId(id=name)
        chunks = self._references.ReadReference(request, metadata=self._metadata)
        return b"".join(chunk.data for chunk in chunks)

    def references(self, **request: Any) -> reference_pb2.ListReferencesReply:
        return self._references.ListReferences(
            reference_pb2.ListReferencesRequest(**request), metadata=self._metadata
        )

    def close(self) -> None:
        for line in self.lines:
            line.cut()
        self.channel.close()


class World:
    """A platform with its own state folder; `reopen` starts it again."""

    def __init__(
        self,
        folder: Path,
        *,
        relayed: bool = False,
        secured: bool = False,
        nodes: Nodes | None = None,
        machines: Callable[[MasterKey], Nodes] | None = None,
    ) -> None:
        """secured: whether gateway and machines use TLS, as off the loopback.

        machines: creates the nodes; the caller ends them.
        """
        self.state = StateFolder(path=folder / "state")
        self.relayed = relayed
        self.secured = secured
        self._given = nodes
        self._machines = machines
        self._users: list[User] = []
        self._open()

    def reopen(self) -> None:
        self.close()
        self._open()

    def user(self, tenant: str, scopes: Any = ORDINARY_SCOPES, lifetime: float | None = None) -> User:
        """A user of a tenant, which is created if needed, with an own token."""
        known = {each.name: each.id for each in self.stores.tenants.all()}
        owner = known.get(tenant) or self.stores.tenants.create(tenant).id
        return self.holder(self.stores.tokens.issue(owner, scopes, lifetime=lifetime).text, owner)

    def holder(self, token: str, tenant: TenantId = TenantId("")) -> User:  # noqa: B008
        """A client with that text as its token."""
        self._users.append(User(self.address, token, tenant))
        return self._users[-1]

    def _open(self) -> None:
        with ExitStack() as opened:
            self.stores = opened.enter_context(Stores(self.state))
            self.lines = InternalTls(kept_authority(self.state.certificates), everywhere=self.secured)
            if self._machines is not None:
                self._given = self._machines(self.stores.master_key)
            self.nodes = self._given or opened.enter_context(
                LocalNodes(
                    self.stores.master_key, patience=ServerTimeouts(grace=0.1), secured=self._secured()
                )
            )
            self.server = opened.enter_context(
                closing(
                    GatewayServer(
                        self.stores, self.nodes, lines=self.lines, relayed=self.relayed, recheck=0.1
                    )
                )
            )
            self.address = self.server.start()
            self._opened = opened.pop_all()

    def _secured(self) -> Secured | None:
        if not self.secured:
            return None
        return Secured(material=lambda: self.lines.serving("127.0.0.1"), clients=not self.relayed)

    def close(self) -> None:
        for user in self._users:
            user.close()
        self._users.clear()
        self._opened.close()
