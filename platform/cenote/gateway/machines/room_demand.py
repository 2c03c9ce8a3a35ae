"""What a platform asks of a Ray cluster for runtimes that wait for room, in a form that Ray's autoscaler sees."""

from __future__ import annotations

from typing import Final

from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from cenote_worker.node.ray.cluster import PLACES

MOST_ASKED: Final = 100
"""Places that are asked for at once. Ray looks at each every few seconds; the rest follows as machines come."""


class RoomDemand:
    """A placement group for each place that lacks, which no present machine can give: agents hold theirs.

    Not in Ray's list of wishes (`request_resources`): that is one for a whole cluster, and stays after the process
    that has set it. These end with the gateway, however it ends. One group for all would be placed as a whole or not
    at all.
    """

    def __init__(self) -> None:
        self._asked: list[PlacementGroup] = []

    def ask(self, places: int) -> None:
        """Asks for so many places from now on, instead of what was asked before."""
        wanted = min(places, MOST_ASKED)
        while len(self._asked) > wanted:
            remove_placement_group(self._asked.pop())
        while len(self._asked) < wanted:
            self._asked.append(placement_group([{PLACES: 1}]))
