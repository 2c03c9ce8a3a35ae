"""What all agents of a team stand on."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.team.events import Broadcast
from cenote.team.progress import Progress
from cenote.team.reader import Reader
from cenote.team.record import TeamRecord
from cenote.team.runtimes import RuntimeFactory
from cenote.team.treasury import Treasury
from cenote.team.variables import TeamVariables
from cenote_security.policy import SandboxPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """One account, one set of variables, one stream of events, one record of progress, one source of runtimes, one
    record of what is done."""

    name: str
    sandbox: SandboxPolicy
    runtimes: RuntimeFactory
    treasury: Treasury
    variables: TeamVariables
    reader: Reader
    broadcast: Broadcast
    progress: Progress
    record: TeamRecord
