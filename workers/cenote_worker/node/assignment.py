"""What a node has to know of a runtime to serve it, stored beside the runtime's jail."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from cenote_proto.v1 import runtime_pb2
from cenote_security.auth.capability import RuntimeKey
from cenote_security.ids import RuntimeId
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.state.image_seals import ImageSeals
from cenote_worker.runtime.state.storage import NO_STORAGE, RuntimeStorage
from cenote_worker.wire import policies

KEY: Final = "runtime/{}/assignment"
"""The key in the descriptor store; dropped with everything else under `runtime/ID/`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """policy: a serialised Policy. lease: seconds that the runtime outlives its last client, 0 for ever.

    keeping: which of its states are stored, and where. keys: for checking capabilities for it, and
    for sealing images of its process.
    """

    runtime: str
    tenant: str
    policy: bytes = field(repr=False)
    lease: float = 0.0
    created: float = 0.0
    keeping: RuntimeStorage = NO_STORAGE
    keys: tuple[RuntimeKey, ...] = field(default=(), repr=False)

    def sandbox(self) -> SandboxPolicy:
        """Raises UsageError for an invalid policy."""
        return policies.to_policy(runtime_pb2.Policy.FromString(self.policy))

    def seals(self) -> ImageSeals:
        """The seals of the images of its process."""
        return ImageSeals(self.tenant, self.runtime, lambda: self.keys[0].for_images())

    def record(self) -> bytes:
        facts = {
            "runtime": self.runtime,
            "tenant": self.tenant,
            "policy": _text(self.policy),
            "lease": self.lease,
            "created": self.created,
            "keeping": asdict(self.keeping),
            "keys": [{"id": key.id, "secret": _text(key.secret)} for key in self.keys],
        }
        return json.dumps(facts).encode()

    @classmethod
    def of_record(cls, record: bytes) -> Assignment:
        facts: Mapping[str, object] = json.loads(record)
        return cls(
            runtime=str(facts["runtime"]),
            tenant=str(facts["tenant"]),
            policy=_bytes(facts["policy"]),
            lease=float(str(facts["lease"])),
            created=float(str(facts["created"])),
            keeping=_keeping(facts["keeping"]),
            keys=tuple(_keys(facts["keys"], str(facts["runtime"]))),
        )


def _keeping(kept: object) -> RuntimeStorage:
    assert isinstance(kept, dict)
    return RuntimeStorage(**kept)


def _keys(kept: object, runtime: str) -> list[RuntimeKey]:
    assert isinstance(kept, list)
    return [
        RuntimeKey(id=one["id"], runtime=RuntimeId(runtime), secret=_bytes(one["secret"])) for one in kept
    ]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: object) -> bytes:
    return base64.b64decode(str(text))
