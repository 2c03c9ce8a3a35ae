"""What is known of a jail's worker that died, or is to die, while a copy of it can go on. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cenote_worker.results import Rollback
from cenote_worker.supervisor.autopsy import Death, Setback
from cenote_worker.supervisor.edge import KeptReply, RefusedReply, ReplyBody, SurveyedReply
from cenote_worker.supervisor.protocol import CHANGES
from cenote_worker.supervisor.requests import JailRequest, Outcome

STRIKE_SECONDS = 12.0
"""What a jail has to put a copy in the place of a worker that was killed; then it is ended as a whole."""

MOST_DEATHS = 20
"""Of workers during one request, before the jail is ended as a whole: its warden goes back step by step meanwhile."""


@dataclass(slots=True)
class Recovery:
    """struck: why the worker was sentenced, until a copy of it has taken its place.

    setback: what happened to the worker that the running request was sent to, or that was idle, until somebody was
    told. passing: likewise, where nothing is missing but threads, connections and processes, so that it can wait for
    the next cell. head: the step whose end the live namespace is at. touched: something but a cell has changed it
    since.
    spared: the worker was killed for a limit, and has not been asked for anything since. relieved: likewise, and
    all snapshots but the newest were given up. missing: whether the setback has taken the namespace further back than
    the running request. deaths: of workers since that was sent.
    """

    struck: Death | None = None
    setback: Setback | None = None
    passing: Setback | None = None
    head: int = 0
    touched: bool = False
    spared: bool = False
    relieved: bool = False
    missing: bool = False
    deaths: int = 0

    def begin(self) -> None:
        """Another request is about to be sent."""
        self.spared = self.relieved = False
        self.deaths = 0

    @property
    def is_hopeless(self) -> bool:
        """Whether each worker that takes another's place dies, too."""
        return self.deaths > MOST_DEATHS

    def may_relieve(self) -> bool:
        """Whether giving up snapshots may help: true once for each request."""
        first, self.relieved = not self.relieved, True
        return first

    def may_strike(self) -> bool:
        """Whether killing the worker may help. Not where that was tried and nothing has run since."""
        return not self.spared

    def strike(self, death: Death) -> None:
        self.struck, self.spared = death, True

    def ran(self, step: int) -> None:
        """The state is that of this step now, and can be had again: a cell has come to its end, or it was kept."""
        self.head, self.touched = step, False

    def changed(self, step: int) -> None:
        """Something but a cell has changed the state. step: its number now; 0 for the one that it had."""
        if step:
            self.ran(step)
        else:
            self.touched = True

    def answered(self, request: JailRequest, reply: ReplyBody) -> Outcome:
        """What a request comes to that is no cell; its answer tells where the state is now."""
        if isinstance(reply, SurveyedReply):
            self.found_at(reply.step)
            return Rollback(step=reply.step, severed=reply.severed, amiss=reply.amiss)
        if request.ask in CHANGES and not isinstance(reply, RefusedReply):
            self.changed(request.step)
        elif isinstance(reply, KeptReply):
            self.ran(reply.step)
        return reply

    def revive(self, found: Death, step: int) -> bool:
        """A copy goes on. True when the state is another than the one before, or a request may have been lost."""
        death, self.struck = self.struck or found, None
        self.deaths += 1
        changed = self.missing = step != self.head or self.touched
        nearest = self.head if self.setback is None else self.setback.before
        self.setback = Setback(death=death, step=step, before=nearest)
        self.head, self.touched = step, False
        return changed

    def found_at(self, step: int) -> None:
        """The live worker has said where it is: another copy may have gone on than the one that was told of."""
        self.head = step
        if self.setback is not None:
            self.setback = replace(self.setback, step=step)

    def news(self) -> tuple[str, ...]:
        """For the result of a cell that ran in a successor of the worker, which was idle when it died."""
        passing, self.passing = self.passing, None
        setback, missing = self.told(), self.missing
        if setback is not None and missing:
            return (setback.as_news(),)
        return () if passing is None else (passing.as_news(),)

    def pass_over(self) -> None:
        """Nothing was under way, and the state is the same: the next cell is run, and its result tells."""
        self.passing = self.told()

    def told(self) -> Setback | None:
        """The setback, for whoever is told of it now."""
        setback, self.setback = self.setback, None
        return setback
