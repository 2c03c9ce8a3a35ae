"""Signs certificates of machines, for as long as the platform runs.

Machines never call the gateway, so it asks them: by the cluster's own calls, which only who has its token can make.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from cenote.gateway.component_lines import ComponentLines
from cenote_security.errors import CenoteError, UsageError
from cenote_worker.cluster.ray_calls import answers
from cenote_worker.cluster.state_log import StateLog

log = logging.getLogger("cenote.gateway")

LOOK_EVERY: Final = 0.5
"""Seconds for which a machine that has just come waits. A question costs a millisecond."""

ANSWER_SECONDS: Final = 3.0
"""For all machines together."""


class Certifier:
    """agents: by the names of their nodes. host: what the servers of a node listen at, by what the cluster says; ""
    for a node that has left. ending: set when the platform ends.
    """

    def __init__(
        self,
        agents: Callable[[], Mapping[str, Any]],
        host: Callable[[str], str],
        lines: ComponentLines,
        ending: threading.Event,
    ) -> None:
        self._agents = agents
        self._host = host
        self._lines = lines
        self._ending = ending
        self._state = StateLog(log, "no certificates could be signed for the machines")

    def run(self) -> None:
        """Until the platform ends."""
        while not self._ending.wait(LOOK_EVERY):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001  (whatever Ray raises while its head is away: the next look may do better)
                self._state.failed(error, expected=isinstance(error, CenoteError))
            else:
                self._state.worked()

    def look(self) -> None:
        """Signs what is asked for now."""
        agents = self._agents()
        asked: dict[str, bytes] = answers(
            {node: agent.certificate_request.remote(self._lines.authority) for node, agent in agents.items()},
            ANSWER_SECONDS,
            self._ending,
        )
        for node, certificate in signed(asked, self._host, self._lines).items():
            # Nobody waits: should it not arrive, it is asked for again.
            agents[node].certify.remote(certificate, self._lines.authority)


def signed(asked: Mapping[str, bytes], host: Callable[[str], str], lines: ComponentLines) -> dict[str, bytes]:
    """Certificates of the nodes that need one. What a node asks for wrongly is not the others' loss.

    asked: their requests, empty of those that need none. host: see Certifier.
    """
    given = {}
    for node, request in asked.items():
        if request and (listens := host(node)):
            try:
                given[node] = lines.sign(request, listens)
            except UsageError as error:
                log.warning("node %s gets no certificate: %s", node, error)
    return given
