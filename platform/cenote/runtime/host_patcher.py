"""What hosts are given to change histories with: they are workers, and know nothing of plans and artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from cenote.harness.artifacts.declaring import news
from cenote.runtime.builds import build_for_client
from cenote.runtime.full_runs import run_in_full
from cenote.runtime.patcher import apply_patch
from cenote_worker.history.events import Declared
from cenote_worker.hosted.full_runs import FullRun, FullRunWatch
from cenote_worker.hosted.patching import BuildRequest, Patcher, PatchRequest, PatchWatch
from cenote_worker.results import Built, Patched

if TYPE_CHECKING:
    from cenote_worker.hosted.runtime import HostedRuntime


class _HostPatcher:
    """See Patcher. It has no state, and is pickled by name for hosts of other processes."""

    def patch(self, runtime: HostedRuntime, request: PatchRequest, watch: PatchWatch) -> Patched:
        return apply_patch(runtime, request, watch)

    def build(self, runtime: HostedRuntime, request: BuildRequest, watch: PatchWatch) -> Built:
        return build_for_client(runtime, request, watch)

    def run_in_full(
        self, runtime: HostedRuntime, head: int, watch: FullRunWatch
    ) -> AbstractContextManager[FullRun]:
        return run_in_full(runtime, head, watch)

    def declare(self, runtime: HostedRuntime, units: Sequence[Declared]) -> None:
        runtime.history.declared(news(runtime.history.units, units))


HOST_PATCHER: Final[Patcher] = _HostPatcher()
