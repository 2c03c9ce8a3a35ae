"""A value that was injected is shared as the memory that it came in, while it is what that memory holds."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from cenote import PythonRuntime, SandboxPolicy, Variable
from cenote.runtime.inject.references import ObjectReference

ROWS = 2**18


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=("numpy",))) as made:
        yield made


def memory_of(reference: ObjectReference) -> tuple[int, int]:
    """The file that the value is in."""
    content = reference.content()
    assert content.memory is not None
    status = os.fstat(content.memory.fileno())
    content.close()
    return status.st_dev, status.st_ino


def shared(runtime: PythonRuntime, name: str) -> tuple[tuple[int, int], object]:
    """The file, and the value as another runtime has it."""
    reference = runtime.share(name)
    with PythonRuntime(sandbox=SandboxPolicy(preload=("numpy",))) as other:
        other.inject(Variable("given", reference))
        value = other.retrieve("given")
    found = memory_of(reference)
    reference.release()
    return found, value


def test_an_unchanged_value_is_the_memory_that_it_came_in(runtime: PythonRuntime) -> None:
    """Also after cells that only read, after a second name, and as given to it by reference."""
    value = np.random.default_rng(1).random(ROWS)
    runtime.inject(Variable("a", value))
    first, given = shared(runtime, "a")
    np.testing.assert_array_equal(value, given)
    runtime.execute("total = a.sum()\nalias = a")
    assert (first, first) == (shared(runtime, "a")[0], shared(runtime, "alias")[0])
    reference = runtime.share("a")
    with PythonRuntime() as other:
        other.inject(Variable("b", reference))
        assert first == shared(other, "b")[0]
    reference.release()


def test_an_updated_value(runtime: PythonRuntime) -> None:
    runtime.inject(Variable("a", np.ones(ROWS)))
    runtime.update_variable("a", np.zeros(ROWS))
    first, given = shared(runtime, "a")
    np.testing.assert_array_equal(np.zeros(ROWS), given)
    assert first == shared(runtime, "a")[0]


@pytest.mark.parametrize(
    "change",
    [
        "a[5] = 7.0",
        "a[-1] = 7.0",
        "a = a[1:]",
        "a = a.reshape(2, -1)",
        "a = a[::-1]",
        "a = a.view('i8')",
        "a = a.copy()",
        "a = [a, a]",
        "a.flags.writeable = False",
        "import ctypes\nctypes.memset(a.ctypes.data + 4096, 1, 1)",
    ],
)
def test_a_changed_one_is_not(runtime: PythonRuntime, change: str) -> None:
    """Sealed memory cannot be shared as anything else than it holds; and a change after sharing changes nothing."""
    value = np.arange(float(ROWS))
    runtime.inject(Variable("a", value))
    before = runtime.share("a")
    runtime.execute(change)
    changed, given = shared(runtime, "a")
    assert memory_of(before) != changed
    np.testing.assert_array_equal(np.asarray(runtime.retrieve("a")), np.asarray(given))
    with PythonRuntime() as other:
        other.inject(Variable("given", before))
        np.testing.assert_array_equal(value, np.asarray(other.retrieve("given")))
    before.release()


def test_a_change_that_was_undone_is_a_copy(runtime: PythonRuntime) -> None:
    """Its page is not the file's any more, though it has the same bytes."""
    value = np.arange(float(ROWS))
    runtime.inject(Variable("a", value))
    first, _ = shared(runtime, "a")
    runtime.execute("a[7] = 0.0\na[7] = 7.0")
    again, given = shared(runtime, "a")
    assert first != again
    np.testing.assert_array_equal(value, given)


def test_a_frame(runtime: PythonRuntime) -> None:
    """All of its blocks in one memory."""
    frame = pd.DataFrame({"x": np.arange(float(ROWS)), "n": np.arange(ROWS)})
    runtime.inject(Variable("df", frame))
    first, given = shared(runtime, "df")
    assert isinstance(given, pd.DataFrame)
    pd.testing.assert_frame_equal(frame, given)
    runtime.execute("df.loc[3, 'x'] = 0.5")
    again, given = shared(runtime, "df")
    assert isinstance(given, pd.DataFrame)
    assert (first != again, 0.5) == (True, given.loc[3, "x"])


def test_values_that_came_together_are_shared_apart(runtime: PythonRuntime) -> None:
    """The memory has both."""
    runtime.inject(Variable("a", np.zeros(ROWS)), Variable("b", np.ones(ROWS)))
    (first, given), (second, other) = shared(runtime, "a"), shared(runtime, "b")
    assert first != second
    np.testing.assert_array_equal(np.zeros(ROWS), given)
    np.testing.assert_array_equal(np.ones(ROWS), other)


def test_a_state_that_was_gone_back_to(runtime: PythonRuntime) -> None:
    """A frozen copy of the process has the memory, too."""
    value = np.arange(float(ROWS))
    runtime.inject(Variable("a", value))
    runtime.execute("import os")
    first, _ = shared(runtime, "a")
    kept = runtime.snapshot()
    runtime.execute("a[5] = 7.0")
    assert first != shared(runtime, "a")[0]
    runtime.rollback(kept.step)
    again, given = shared(runtime, "a")
    assert first == again
    np.testing.assert_array_equal(value, given)
