"""The process of a node that has its zygotes, as a Ray actor. Jails that it has started outlive it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any, Final

import ray

from cenote_security.errors import CenoteError
from cenote_security.policy import SandboxPolicy
from cenote_worker.cluster.ray_calls import LOOKERS, LOOKS, THREADS, here, is_look, raylet
from cenote_worker.cluster.spares import put_spare
from cenote_worker.cluster.state_log import StateLog
from cenote_worker.keeper.client import RETURN_SECONDS, KeeperClient
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.start import Nursery, start_ends

SWEEP_SECONDS: Final = 5.0

_log = logging.getLogger("cenote.cluster")


def nursery_name() -> str:
    """Of that which belongs to this process's raylet."""
    return f"nursery/{raylet()}"


class NurseryActor:
    """Starts jails for the hosts of a node. folder: of its keeper."""

    def __init__(self, folder: str) -> None:
        self._keeper = KeeperClient(Path(folder), RETURN_SECONDS)
        self._nursery = Nursery(lingers=True)
        threading.Thread(target=self._warm, name="cenote-warm", daemon=True).start()
        threading.Thread(target=self._sweep, name="cenote-sweep", daemon=True).start()

    @is_look
    def is_there(self) -> None:
        """Answers at once, unless this process hangs."""

    def start_spare(self, policy: SandboxPolicy) -> str:
        """See put_spare."""
        return put_spare(self._keeper, start_ends(policy, self._nursery))

    def _warm(self) -> None:
        """The first jail of a process waits until numpy and pandas are imported; the next ones do not."""
        try:
            supervisor = self._nursery.start(SandboxPolicy())
        except CenoteError as error:  # whoever asks for a runtime is told again
            _log.warning("no jail of the default policy can be had here: %s", error)
        else:
            supervisor.end(Death(reason="closed"))

    def _sweep(self) -> None:
        state = StateLog(_log, "what jails have left could not be swept")
        while True:
            threading.Event().wait(SWEEP_SECONDS)
            try:
                self._nursery.sweep()
            except Exception as error:  # noqa: BLE001  (the next sweep may do better)
                state.failed(error, expected=isinstance(error, CenoteError))
            else:
                state.worked()


def ensure_nursery(folder: str) -> Any:
    """On this machine; the one that runs, if one does."""
    remote: Any = ray.remote  # whose types know of no groups
    return (
        remote(concurrency_groups={LOOKS: LOOKERS})(NurseryActor)
        .options(
            name=nursery_name(),
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=THREADS,
            scheduling_strategy=here(),
        )
        .remote(folder)
    )
