"""What a process that works on something is given. Values only, and their spelling."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cenote.gateway.orchestrators.works import Kind
from cenote.gateway.state_folder import StateFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorSettings:
    """work: the id of a team, or of a job. address, authority: of the platform's gateway, see Destination.

    state: the platform's folder. otlp: where traces go, if anywhere. log_json: see set_up. No secret is in it.
    """

    state: StateFolder
    kind: Kind
    work: str
    address: str
    authority: str = ""
    otlp: str = ""
    log_json: bool = False

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
        """What `to_json` wrote."""
        given = json.loads(text)
        return cls(
            state=StateFolder(path=Path(given["state"])),
            kind=given["kind"],
            work=given["work"],
            address=given["address"],
            authority=given["authority"],
            # What Ray starts again may have been told by an earlier version.
            otlp=given.get("otlp", ""),
            log_json=given.get("log_json", False),
        )
