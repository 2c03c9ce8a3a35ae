"""Machines that a cluster is about to lose, or can do without: their durable runtimes move, and they are given back.

Ray's autoscaler removes a machine on which no actor has been for a time; one without any resource counts too. So a
machine that nothing uses is given back by ending what the platform has there. When runtimes wait for room, it is
taken again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from cenote_security.errors import CenoteError
from cenote_worker.node.node import NodeUse
from cenote_worker.node.ray.actor_calls import answers
from cenote_worker.node.state_log import StateLog

log = logging.getLogger("cenote.gateway")

LOOK_EVERY: Final = 2.0
"""Seconds between two looks at all machines. A look is a call to each, and from there to its hosts."""

ANSWER_SECONDS: Final = 10.0
"""Seconds for all machines together. One that does not answer in time is looked at again the next time."""

MOST_NAMED: Final = 20
"""Runtimes that a line of the log names."""


class IdleMachines:
    """agents: by node name. give_back: ends what the platform has on a machine that nothing uses, given its node's
    name. doomed: the nodes that Ray is about to remove. after: seconds for which nothing has used a machine that is
    given back; 0 for never. stays: whether a machine is never given back. ending: set when the platform ends.
    """

    def __init__(
        self,
        agents: Callable[[], Mapping[str, Any]],
        *,
        give_back: Callable[[str], None],
        doomed: Callable[[], Collection[str]],
        stays: Callable[[str], bool],
        after: float,
        ending: threading.Event,
    ) -> None:
        self._agents = agents
        self._give_back = give_back
        self._doomed = doomed
        self._stays = stays
        self._after = after
        self._ending = ending
        self._emptying: set[str] = set()
        """Nodes that this has drained, because nothing uses them or they are doomed."""
        self._named: dict[str, frozenset[str]] = {}
        """What keeps a machine, as the log said last."""
        self._state = StateLog(log, "it could not be seen which machines are used")

    def run(self) -> None:
        """Runs until the platform ends."""
        while not self._ending.wait(LOOK_EVERY):
            self._state.attempt(self.look, CenoteError)

    def look(self) -> None:
        """Drains and gives back what can be, and takes back the drain of what is used again."""
        agents, doomed = self._agents(), set(self._doomed())
        uses: dict[str, NodeUse] = answers(
            {node: agent.use.remote() for node, agent in agents.items() if self._matters(node, doomed)},
            ANSWER_SECONDS,
            self._ending,
        )
        self._emptying &= agents.keys()
        self._named = {node: named for node, named in self._named.items() if node in agents}
        for node, use in uses.items():
            if node in doomed:
                self._name(node, use, "Ray is about to remove machine %s, and these are lost with it: %s")
                self._drain(agents, node, wanted=True)
            elif use.quiet < self._after:
                self._drain(agents, node, wanted=False)
            elif use.lasting or use.references:
                self._name(node, use, "machine %s is idle, and stays because these would be lost with it: %s")
            elif use.durable:
                self._drain(agents, node, wanted=True)
            else:
                self._release(agents, node)

    def _matters(self, node: str, doomed: Collection[str]) -> bool:
        return node in doomed or (self._after > 0 and not self._stays(node))

    def _drain(self, agents: Mapping[str, Any], node: str, *, wanted: bool) -> None:
        """Each drain looks for a gap in the calls once more. One of the operator's is never ended."""
        if not wanted and node not in self._emptying:
            return
        if wanted and node not in self._emptying:
            log.info("the durable runtimes of machine %s move, since it is to go", node)
        drained = answers({node: agents[node].drain.remote(wanted)}, ANSWER_SECONDS, self._ending)
        if wanted:
            self._emptying.add(node)
        elif drained:
            self._emptying.discard(node)

    def _release(self, agents: Mapping[str, Any], node: str) -> None:
        if answers({node: agents[node].leave.remote()}, ANSWER_SECONDS, self._ending).get(node):
            log.info(
                "machine %s is given back to the cluster: nothing has used it for %g s", node, self._after
            )
            self._give_back(node)
            self._emptying.discard(node)

    def _name(self, node: str, use: NodeUse, what: str) -> None:
        """Says once what would be lost: at once in the log, and again only when there is more."""
        if use.lasting <= self._named.get(node, frozenset()) and node in self._named:
            return
        self._named[node] = use.lasting
        shown = ", ".join(sorted(use.lasting)[:MOST_NAMED])
        more = f" and {len(use.lasting) - MOST_NAMED} more" if len(use.lasting) > MOST_NAMED else ""
        values = f"{use.references} shared values" if use.references else ""
        if use.lasting or use.references:
            log.warning(what, node, "; ".join(filter(None, (shown + more, values))))
