"""The execution state of a runtime that is there: questions, and changes of its history."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, Protocol, TypeVar

from cenote.harness.applying.apply import ApplyOptions, ApplyResult
from cenote.harness.applying.auditor import Audit, UnsoundError
from cenote.harness.artifacts.build import BuildOptions
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.artifacts.declaration import Artifact, news
from cenote.harness.patching.errors import NoWayError
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.forecast import make_plan
from cenote.harness.planning.plan import Plan
from cenote.harness.questions.execution_state import ExecutionState
from cenote.harness.slicing.slices import Slice, Verification, VerificationSandbox, verify
from cenote_security.errors import UnknownEntryError, UsageError
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord

_T = TypeVar("_T")

Face = TypeVar("Face")
"""Of a runtime, as its user holds it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AppliedPatch:
    """A patch that was applied, the line that it was applied to, and the step that the patched one ends with."""

    patch: Patch
    before: tuple[StepRecord, ...]
    head: int


class HistoryOwner(Protocol):
    """The runtime that a state belongs to."""

    def read_history(self) -> History:
        """See Backend."""

    def kept(self) -> frozenset[int]:
        """Steps whose end states can be gone back to. Raises UsageError where patches cannot be applied."""

    def stored(self) -> Mapping[int, int]:
        """See Ground. Raises as `kept`."""

    def why_not_begun_again(self) -> str:
        """Why the history cannot be run from its start beside the live state; empty if it can, or if not known."""

    def apply(self, plan: Plan, options: ApplyOptions) -> ApplyResult:
        """See `apply_plan`; what was applied is kept for longer than other states."""

    def audit(self, options: ApplyOptions) -> Audit | None:
        """Runs the live history in full, beside it, and compares; None where the draw or the setting says no."""

    def go_back(self, step: int) -> None:
        """The live state becomes that after a kept step. Raises NotKeptError."""

    def declare(self, units: Sequence[ArtifactDeclared]) -> None:
        """Notes them in the history. Raises UsageError where that is not allowed, or where they are inconsistent."""

    def build(self, options: BuildOptions) -> BuildResult:
        """See Builder, of all that is declared."""

    def stage(self) -> VerificationSandbox:
        """Where slices are verified. Raises UsageError where none can be."""


@dataclass(kw_only=True, slots=True)
class AppliedPatches:
    """Patches that this process has applied to one runtime, and the lock for applying one."""

    applied: dict[str, AppliedPatch] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)


class LiveState(ExecutionState):
    """What has happened in a runtime, and changes of that. Shared by both faces: what blocks is theirs to call."""

    def __init__(self, site: HistoryOwner, changes: AppliedPatches) -> None:
        super().__init__(site.read_history)
        self._site = site
        self._changes = changes

    def _plan(self, patch: Patch) -> Plan:
        _expect(patch, Patch, "a plan is made from a Patch, such as Patch.replace_step(2, code)")
        self.refresh()
        kept, stored = self._site.kept(), self._site.stored()
        try:
            line = self._past.line(self.head)
            present = patch.renumbered(self._past.present(line))
            environments = self._past.history.environments
            return make_plan(present, line, kept, stored, begun=self._past.begun, environments=environments)
        except NoWayError as none:
            if not (why := self._site.why_not_begun_again()):
                raise
            raise NoWayError(f"{none.reason}, nor can its history begin again: {why}") from None

    def _apply(self, plan: Plan, options: ApplyOptions) -> ApplyResult:
        _expect(plan, Plan, "what is applied is the Plan that `plan(patch)` gives")
        with self._changes.turn:
            result = self._site.apply(plan, options)
            if result.status == "applied":
                applied = AppliedPatch(patch=plan.patch, before=plan.course.records, head=result.head)
                self._changes.applied[plan.patch.id] = applied
                result = self._audited(result, plan.patch, options)
        self.refresh()
        return result

    def _audited(self, result: ApplyResult, patch: Patch, options: ApplyOptions) -> ApplyResult:
        """The result with the auditor's findings. Raises UnsoundError; the patch can be reverted by then."""
        audit = self._site.audit(options)
        if audit is not None and audit.outcome == "different":
            self.refresh()
            raise UnsoundError(audit, patch.id, result.steps_rerun, result.steps_reused)
        return replace(result, audit=audit)

    def _revert(self, patch_id: str, options: ApplyOptions) -> ApplyResult:
        _expect(patch_id, str, "a patch is taken back by its id, `plan.patch.id`")
        applied = self._changes.applied.get(patch_id)
        if applied is None:
            raise UnknownEntryError("patch", patch_id)
        after = self._past.line(applied.head)
        back = applied.patch.revert(applied.before, after, self._past.history.tree.first)
        return self._apply(self._plan(back), options)

    def _declare(self, artifacts: tuple[Artifact, ...]) -> None:
        for artifact in artifacts:
            _expect(
                artifact, Artifact, 'what is declared is an Artifact, such as Artifact("shop.py", "module")'
            )
        self._note(
            ArtifactDeclared(name=one.name, kind=one.kind, depends_on=one.depends_on) for one in artifacts
        )

    def _drop(self, name: str) -> None:
        self.refresh()
        self.artifact(name)
        self._note([ArtifactDeclared(name=name, dropped=True)])

    def _note(self, units: Iterable[ArtifactDeclared]) -> None:
        self.refresh()
        self._site.declare(news(self._past.history.units, units))
        self.refresh()

    def _build(self, options: BuildOptions) -> BuildResult:
        with self._changes.turn:
            result = self._site.build(options)
            if result.status == "built" and result.patch is not None:
                applied = AppliedPatch(patch=result.patch, before=result.before, head=result.head)
                self._changes.applied[result.patch.id] = applied
                if result.applied is not None:
                    audited = self._audited(result.applied, result.patch, options.apply)
                    result = replace(result, applied=audited)
        self.refresh()
        return result

    def _verify(self, found: Slice) -> Verification:
        _expect(found, Slice, "what is verified is the Slice that `slice(symbol)` gives")
        stage = self._site.stage()
        self.refresh()
        return verify(found, self._past, stage)

    def _rollback(self, step: int) -> None:
        self._site.go_back(step)
        self.refresh()


class RuntimeState(LiveState, Generic[Face]):
    """The execution state of a PythonRuntime."""

    def __init__(self, site: HistoryOwner, changes: AppliedPatches, fork: Callable[[int], Face]) -> None:
        super().__init__(site, changes)
        self._fork = fork

    def plan(self, patch: Patch) -> Plan:
        """The steps that applying the patch to the current line would run again, and why. Nothing is executed.

        Raises PatchConflictError if the patch does not fit; UnavailableError, UsageError where none can be applied.
        """
        return self._plan(patch)

    def apply(self, plan: Plan, options: ApplyOptions | None = None) -> ApplyResult:
        """Runs again what the patch affects, and nothing else: the state is then that of a full run.

        All of it or nothing, unless options say otherwise. Equal host calls get their recorded answers; another call
        with an external effect is not made, and ends it. Cells that other authors run meanwhile end it too.

        Raises StalePlanError when the runtime has gone on since the plan was made, StateNotKeptError when a failure
        could not be undone, StepNotRepeatedError for what cannot be run again, SecurityError for code that the rules
        refuse. UnsoundError is the alarm of `audit_patches`; the patch stays applied.
        """
        return self._apply(plan, options or ApplyOptions())

    def revert(self, patch_id: str, options: ApplyOptions | None = None) -> ApplyResult:
        """Takes back a patch that this process has applied, and nothing else: what came after it stays, other
        patches too. As `apply`. patch_id: `plan.patch.id`.

        Raises UnknownEntryError for any other; PatchConflictError where a later patch has changed the same lines, or
        nothing of it is in the line to the head.
        """
        return self._revert(patch_id, options or ApplyOptions())

    def verify(self, found: Slice) -> Verification:
        """Runs the program of a slice in a fresh runtime, and compares what it gives with what is there.

        The fresh one has the same policy, without a network, and what clients have injected. Host functions are not
        called: their recorded answers are given. Statements that turn out to be needed are put back: see the result.

        Raises UnavailableError when no jail can be had, UsageError for attached authors.
        """
        return self._verify(found)

    def rollback(self, step: int) -> None:
        """As `rollback` of the runtime: raises NotKeptError, and does nothing, for what is not kept any more."""
        self._rollback(step)

    def fork(self, step: int) -> Face:
        """A runtime of its own that begins with the state after a kept step; see `fork` of the runtime. Close it."""
        return self._fork(step)

    def declare(self, *artifacts: Artifact) -> None:
        """Tracks these artifacts, or updates their declarations. They are in the history, for all clients.

        Raises UnknownArtifactError for a dependency that was not declared, ArtifactCycleError, and UsageError for
        attached authors.
        """
        self._declare(artifacts)

    def drop(self, name: str) -> None:
        """Stops tracking an artifact. Raises UnknownArtifactError, UsageError for one that others depend on."""
        self._drop(name)

    def build(self, options: BuildOptions | None = None) -> BuildResult:
        """Brings all artifacts up to date, and nothing else: all of it or nothing.

        A step that changed an artifact after its first use is moved before that use, and what that affects is run
        again as `apply` does. Then the tests that used anything different are run in the jail, beside the state.
        The result is `failed`, and everything as before, when a step raises or a test does not pass.

        Raises UnbuildableError; else as `apply`.
        """
        return self._build(options or BuildOptions())


class AsyncRuntimeState(LiveState, Generic[Face]):
    """The execution state of an AsyncPythonRuntime: questions are answered at once, changes are awaited."""

    def __init__(
        self, site: HistoryOwner, changes: AppliedPatches, fork: Callable[[int], Awaitable[Face]]
    ) -> None:
        super().__init__(site, changes)
        self._fork = fork

    async def fork(self, step: int) -> Face:
        """See RuntimeState."""
        return await self._fork(step)

    async def plan(self, patch: Patch) -> Plan:
        """See RuntimeState."""
        return await asyncio.to_thread(self._plan, patch)

    async def apply(self, plan: Plan, options: ApplyOptions | None = None) -> ApplyResult:
        """See RuntimeState. Cancelled, it ends after the step that runs, and puts everything back first."""
        return await _finished(partial(self._apply, plan), options or ApplyOptions())

    async def revert(self, patch_id: str, options: ApplyOptions | None = None) -> ApplyResult:
        """See RuntimeState."""
        return await _finished(partial(self._revert, patch_id), options or ApplyOptions())

    async def verify(self, found: Slice) -> Verification:
        """See RuntimeState. Cancelled, its fresh runtime ends when the program does."""
        return await asyncio.to_thread(self._verify, found)

    async def rollback(self, step: int) -> None:
        """See RuntimeState."""
        await asyncio.to_thread(self._rollback, step)

    async def declare(self, *artifacts: Artifact) -> None:
        """See RuntimeState."""
        await asyncio.to_thread(self._declare, artifacts)

    async def drop(self, name: str) -> None:
        """See RuntimeState."""
        await asyncio.to_thread(self._drop, name)

    async def build(self, options: BuildOptions | None = None) -> BuildResult:
        """See RuntimeState. Cancelled, it ends after the step that runs, or after the tests."""
        chosen = options or BuildOptions()
        return await _finished(lambda apply: self._build(replace(chosen, apply=apply)), chosen.apply)


def _expect(given: object, kind: type, what: str) -> None:
    """Raises UsageError for an argument of another kind, before anything is asked of the runtime."""
    if not isinstance(given, kind):
        raise UsageError(f"{what}, not {type(given).__name__}")


async def _finished(work: Callable[[ApplyOptions], _T], options: ApplyOptions) -> _T:
    """The result of work on a thread. A cancelled caller waits until the work has put everything back."""
    leaving = threading.Event()
    heeding = replace(options, cancelled=lambda: leaving.is_set() or options.cancelled())
    working = asyncio.ensure_future(asyncio.to_thread(work, heeding))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        leaving.set()
        await asyncio.wait((working,))
        raise
