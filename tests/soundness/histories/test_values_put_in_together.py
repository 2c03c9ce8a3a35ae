"""Objects shared from the beginning, or since an untraced step, are shared after a patch as in a full run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from cenote.harness import Patch
from cenote.runtime import PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy

SANDBOX = SandboxPolicy(preload=())

LATER = "later = [1]; more = [2]; most = [3]"
"""Stands. So it is cheapest to continue from the present state, and to copy what must be different there."""

Deed = str | Callable[[PythonRuntime], None]


def put_in(runtime: PythonRuntime) -> None:
    together = [1]
    runtime.inject(Variable("a", together), Variable("b", together))


def replaced(runtime: PythonRuntime) -> None:
    runtime.update_variable("a", "other")


CASES: dict[str, tuple[Sequence[Deed], int, Deed]] = {
    "a name that a step has bound to something else": ((put_in, "k = 1", "a = 'other'"), 2, "k = 2"),
    "a name that a client has replaced": ((put_in, "k = 1", replaced), 2, ""),
    "one that was read before": ((put_in, "k = len(a)", replaced), 2, ""),
    "a step that has parted them is gone": ((put_in, "a = a[:]", "a.append(1)"), 1, "k = 1"),
    "such a step by the other name": ((put_in, "b = b[:]", "a.append(1)"), 1, "k = 1"),
    "such a step, and a comparison": ((put_in, "a = a[:]", "same = a is b"), 1, "k = 1"),
    "a step parts them": ((put_in, "k = 1", "a.append(1)"), 1, "b = b[:]"),
    "a step changes both before they are parted": (
        (put_in, "k = 1", "b = [*b, 2]", "k2 = b[0]"),
        1,
        "a.append(1)",
    ),
    "they come later": (("k = 1", put_in, "a = 'other'"), 2, "k = 2"),
    "since nobody watched": (("a = [1]; b = a", "exec('z = 1')", "len(a)", replaced), 3, ""),
}


def done(runtime: PythonRuntime, deeds: Sequence[Deed]) -> None:
    for deed in deeds:
        if not isinstance(deed, str):
            deed(runtime)
        elif deed:
            runtime.execute(deed)


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_names_share_objects_as_in_a_full_run(case: str) -> None:
    """No trace shows it: initial values were written by no step, and are read by their own names only."""
    deeds, place, other = CASES[case]
    look = "a is b, a, b, globals().get('same')"
    with PythonRuntime(sandbox=SANDBOX) as live, PythonRuntime(sandbox=SANDBOX) as full:
        done(live, (*deeds, LATER))
        done(full, (*deeds[:place], other, *deeds[place + 1 :], LATER))
        state = live.state
        put_in_first = deeds[0] is put_in  # then it is no step, but part of the start
        number = state.line(state.head)[place - put_in_first].number
        patch = (
            Patch.replace_step(number, other)
            if isinstance(other, str) and other
            else Patch.remove_step(number)
        )
        assert "applied" == state.apply(state.plan(patch)).status
        assert full.execute(look).value == live.execute(look).value
