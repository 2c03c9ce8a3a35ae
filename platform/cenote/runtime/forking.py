"""Forks: further runtimes that begin with the state of one, or with a state that one has kept."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from cenote.runtime.core import Origin, RuntimeCore
from cenote.runtime.host_desk import HostDesk, LineDesk
from cenote.runtime.listeners import BlockingListener
from cenote.runtime.replies import rollback, snapshot
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import IncompleteForkError
from cenote_worker.hosted.branching import StateCopy
from cenote_worker.hosted.runtime import HostedRuntime

_AT_A_TIME: Final = 8
"""Branches that are started at once; more would wait for the zygote, which makes one jail after the other."""

MAX_BRANCHES: Final = 256
"""Of one call: each is a jail of its own, and a slip such as 10**6 would bring the machine down before it is told."""


def fork(
    core: RuntimeCore, step: int | str | None, count: int, *, deterministic: bool, partial: bool
) -> list[RuntimeCore]:
    """So many running branches; see PythonRuntime.fork. Blocks."""
    source = hosted(core)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UsageError(f"a fork makes at least one runtime, not {count!r}")
    if count > MAX_BRANCHES:
        raise UsageError(
            f"a fork makes at most {MAX_BRANCHES} runtimes at once, not {count}; fork again for more"
        )
    copy = _copied(core, source, step, deterministic=deterministic)
    made: list[RuntimeCore] = []
    try:
        if copy.missing and not partial:
            raise IncompleteForkError(copy.missing)
        made += [_branch(core, source, copy, partial=partial) for _ in range(count)]
        _start(made)
    except BaseException:
        for branch in made:
            branch.close()
        raise
    finally:
        copy.close()
    return made


def hosted(core: RuntimeCore) -> HostedRuntime:
    """The runtime in this process behind a core. Raises UsageError where there is none that is the caller's own."""
    if not isinstance(core.backend, HostedRuntime):
        raise UsageError("only embedded runtimes fork and merge, and only their owner does it")
    return core.backend


def _copied(
    core: RuntimeCore, source: HostedRuntime, step: int | str | None, *, deterministic: bool
) -> StateCopy:
    if step is None:
        return StateCopy.of(source, deterministic=deterministic)
    with _back_at(core, step):
        return StateCopy.of(source, deterministic=deterministic)


def _branch(core: RuntimeCore, source: HostedRuntime, copy: StateCopy, *, partial: bool) -> RuntimeCore:
    def place(_policy: SandboxPolicy, desk: HostDesk) -> HostedRuntime:
        return copy.runtime(LineDesk(desk), partial=partial)

    branch = core.branch(place)
    branch.origin = Origin(history=source.history.id, step=copy.step)
    return branch


def _start(branches: list[RuntimeCore]) -> None:
    """All of them, some at a time: each waits for its jail most of the time. Raises what the first to fail raises."""
    if len(branches) == 1:
        branches[0].start()
        return
    with ThreadPoolExecutor(min(len(branches), _AT_A_TIME), thread_name_prefix="cenote-fork") as pool:
        for started in [pool.submit(branch.start) for branch in branches]:
            started.result()


@contextmanager
def _back_at(core: RuntimeCore, to: int | str) -> Iterator[None]:
    """Goes to a kept state, and forward again. Raises UnavailableError, before it moves, if it could not."""
    kept = BlockingListener()
    core.snapshot("", kept)
    present = snapshot(kept.wait(core.resume), "").step
    _go(core, to)
    try:
        yield
    finally:
        _go(core, present)


def _go(core: RuntimeCore, to: int | str) -> None:
    gone = BlockingListener()
    core.rollback(to, gone)
    rollback(gone.wait(core.resume))
