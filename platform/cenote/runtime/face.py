"""What both faces of a runtime say without waiting: who it is, what holds it, that it stays where it is."""

from __future__ import annotations

import weakref
from typing import NoReturn, Self, SupportsIndex

from cenote.runtime.authors import Scope
from cenote.runtime.core import RuntimeCore
from cenote.runtime.port import RuntimePort
from cenote_worker.egress.ledger import Decision
from cenote_worker.results import Carried


class RuntimeFace:
    """A runtime in somebody's hands."""

    core: RuntimeCore

    @classmethod
    def holding(cls, core: RuntimeCore) -> Self:
        """The face of a core that nobody else holds."""
        runtime = cls.over(core)
        weakref.finalize(runtime, core.close)
        return runtime

    @classmethod
    def over(cls, core: RuntimeCore) -> Self:
        """A second face over a runtime that somebody else owns."""
        runtime = cls.__new__(cls)
        runtime.core = core
        return runtime

    def __repr__(self) -> str:
        return self.core.shown(type(self).__name__)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        self.core.__reduce_ex__(protocol)

    @property
    def name(self) -> str:
        """What it is called, and found by in its store, its history or on its platform; empty if it has no name."""
        return self.core.name or ""

    @property
    def author(self) -> str:
        """Who the steps of this runtime are attributed to; empty for its owner."""
        return self.core.author

    @property
    def scope(self) -> Scope:
        """Whose names this runtime's calls are about."""
        return self.core.scope

    @property
    def isolation(self) -> str:
        """What holds this runtime's jail: `strict`, `landlock` or `none`."""
        return self.core.isolation

    @property
    def carried(self) -> Carried | None:
        """What a branch, a restored or a woken runtime has otherwise than the state that it was made of.

        None for a runtime that began with its injected values, before its jail is there, and on a platform: there
        the `news` of its first cell say it, as they do here.
        """
        return self.core.carried

    @property
    def network_log(self) -> tuple[Decision, ...]:
        """The latest decisions about requests to leave the jail, oldest first. The logger `cenote.egress` has all."""
        return self.core.network_log

    @property
    def limits(self) -> str:
        """Who holds the limits of this runtime's jail as a whole: `cgroup v1`, `cgroup v2` or `watchdog`."""
        return self.core.limits

    @property
    def port(self) -> RuntimePort:
        """What an agent sees of this runtime."""
        return RuntimePort(self.core)
