"""What is left of a platform whose processes were killed, or are stuck: clusters, keepers, and their jails."""

from __future__ import annotations

from shutil import rmtree

from cenote.gateway.joined_cluster import JoinedCluster
from cenote.gateway.own_cluster_unsafe import forget, kept_cluster
from cenote.gateway.state_folder import StateFolder
from cenote_worker.keeper.client import KeeperClient


def end_remains(state: StateFolder) -> bool:
    """Ends it, for whoever holds the platform's lock. Whether there was anything.

    Raises UnavailableError when there is something on a cluster that cannot be reached.
    """
    joined, cluster, keepers = JoinedCluster.kept(state), kept_cluster(state), state.nodes
    if joined is not None:
        joined.end(state)
    if cluster is not None:
        cluster.end()
        forget(state)
    for folder in keepers:  # after the cluster, which starts a keeper again
        KeeperClient(folder).shut_down()
        rmtree(folder, ignore_errors=True)
    return joined is not None or cluster is not None or bool(keepers)
