"""What a process that works on a team is told. Values only, and their spelling."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cenote.gateway.state_folder import StateFolder
from cenote_security.ids import TeamId


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorSettings:
    """state: the platform's folder. address, authority: of its gateway, see Destination. No secret is in it."""

    state: StateFolder
    team: TeamId
    address: str
    authority: str = ""

    def to_json(self) -> str:
        return json.dumps(
            {
                "state": str(self.state.path),
                "team": self.team,
                "address": self.address,
                "authority": self.authority,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> OrchestratorSettings:
        """What `to_json` wrote."""
        given = json.loads(text)
        return cls(
            state=StateFolder(path=Path(given["state"])),
            team=TeamId(given["team"]),
            address=given["address"],
            authority=given["authority"],
        )
