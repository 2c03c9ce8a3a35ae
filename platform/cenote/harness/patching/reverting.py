"""What a patch has done to a history is taken back, and nothing else: as `git revert` does with a commit."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cenote.harness.patching.errors import PatchConflictError
from cenote.harness.patching.patched_history import LineStep
from cenote.harness.patching.text_edits import apply_diff
from cenote_worker.history.step import StepRecord

_PUT_BACK = "reverting the patch puts it back in its place"


@dataclass(frozen=True, kw_only=True, slots=True)
class TakeBack:
    """before, after: the line that the patch was applied to, and the one that it made.

    first: of a step's number, that of the step which it stands for in the end, through whatever patches. Steps of
    all lines that stand for the same one are one step with several versions.
    """

    before: tuple[StepRecord, ...]
    after: tuple[StepRecord, ...]
    first: Callable[[int], int]

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        """Raises PatchConflictError where later changes are in the way, or nothing of the patch is in the line."""
        before, after = self._versions(self.before), self._versions(self.after)
        if _codes(before) == _codes(after):
            return tuple(line)
        steps = {self.first(step.number): step for step in line}
        undone = {key: _undone(step, before.get(key), after.get(key)) for key, step in steps.items()}
        kept = {key: step for key, step in undone.items() if step is not None}
        gone = [record for key, record in before.items() if key not in after and key not in steps]
        restored = self._with(_in_old_order(kept, [*before], [*after]), gone, [*before])
        if [*restored.values()] == [*line]:
            raise PatchConflictError(
                "this line has nothing of it: it was taken back before, or applied to another line"
            )
        return _marked(restored.values(), line)

    def _versions(self, records: Iterable[StepRecord]) -> dict[int, StepRecord]:
        return {self.first(record.number): record for record in records}

    def _with(
        self, steps: Mapping[int, LineStep], gone: Iterable[StepRecord], order: Sequence[int]
    ) -> dict[int, LineStep]:
        """Steps that the patch has taken out come after the last of their predecessors that is still there."""
        keys = [*steps]
        back = {self.first(record.number): record for record in gone}
        for key in back:
            ahead = [one for one in order[: order.index(key)] if one in keys]
            keys.insert(keys.index(ahead[-1]) + 1 if ahead else 0, key)
        return {key: _brought_back(back[key]) if key in back else steps[key] for key in keys}


def _codes(versions: Mapping[int, StepRecord]) -> list[tuple[int, str]]:
    return [(key, record.code) for key, record in versions.items()]


def _brought_back(record: StepRecord) -> LineStep:
    return LineStep(code=record.code, origin=record, change="reverting the patch brings it back")


def _undone(step: LineStep, was: StepRecord | None, made: StepRecord | None) -> LineStep | None:
    """The step without what the patch has made of it; None for one that the patch has put in."""
    if made is None or (was is not None and was.code == made.code):
        return step
    if was is None:
        if step.code != made.code:
            raise _changed_since(step, "")
        return None
    code = was.code if step.code == made.code else _merged(step, made.code, was.code)
    if code == step.code:
        return step
    return replace(step, code=code, change="reverting the patch restores its code")


def _merged(step: LineStep, made: str, was: str) -> str:
    """The code of a step that was changed again since, in other lines."""
    if step.code == was:
        return was
    diff = "\n".join(difflib.unified_diff(made.split("\n"), was.split("\n"), lineterm=""))
    try:
        return apply_diff(step.code, diff)
    except PatchConflictError as conflict:
        raise _changed_since(step, conflict.hunk) from None


def _changed_since(step: LineStep, hunk: str) -> PatchConflictError:
    return PatchConflictError(
        f"step {step.number} was changed by a later patch too; take that one back first, or patch the step",
        hunk,
    )


def _in_old_order(
    steps: Mapping[int, LineStep], before: Sequence[int], after: Sequence[int]
) -> dict[int, LineStep]:
    """Those that the patch has moved change places again; all others stay where they are."""
    old = [key for key in before if key in after and key in steps]
    new = [key for key in after if key in old]
    now = [key for key in steps if key in old]
    if old == new or now == old:
        return dict(steps)
    if now != new:
        raise PatchConflictError("its steps were put in another order since; take that patch back first")
    places = iter(old)
    keys = [next(places) if key in old else key for key in steps]
    return {key: steps[key] for key in keys}


def _marked(restored: Iterable[LineStep], line: Sequence[LineStep]) -> tuple[LineStep, ...]:
    """Steps that now come after a step which they came before are marked as changed, as the walk needs it."""
    places = {step.number: place for place, step in enumerate(line)}
    marked, last = list[LineStep](), -1
    for step in restored:
        place = places.get(step.number, last)
        moved = place < last and not step.change
        marked.append(replace(step, change=_PUT_BACK) if moved else step)
        last = max(last, place)
    return tuple(marked)
