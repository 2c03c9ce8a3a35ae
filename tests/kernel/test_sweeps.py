"""Which arrays a cell is going to rewrite, by its syntax."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from cenote_worker.in_jail.snapshots.sweeps import sweeps, swept_bytes

SWEEPING = {
    "a += 1": ("a",),
    "import numpy as np\na *= 2; b = a.sum": ("a",),
    "a[:] = a * 2": ("a",),
    "a[...] -= b": ("a",),
    "a[:, :] = 0": ("a",),
    "a += 1\nb[:] = 0\na -= 1\nb.sum()": ("a", "b"),
    "c = a[:] = 0": ("a",),
    "n += 1": ("n",),
    "print(len(a)); a *= np.float32(2)": ("a",),
    "np.add(a, 1, out=a)": ("a",),
    "numpy.sqrt(a, out=a[:])": ("a",),
    "a[:] = np.where(a > 0, np.exp(b), 0)": ("a",),
}

NOT_SWEEPING = (
    "",
    "a = a + 1",
    "a[0] += 1",
    "a[:10] = 0",
    "a[::2] = 0",
    "a[:, 0] = 0",
    "a[mask] = 0",
    "a.b += 1",
    "f(); a += 1",
    "a += f()",
    "a += np.random.random(9)",
    "a += np.linalg.inv(b)",
    "a += np.sort(b)",
    "b = np.add(a, 1)",
    "a = b * 2; a += 1",
    "np.add(a, 1, out=a[1:])",
    "model.fit(b); a += 1",
    "f(b)(c); a += 1",
    "a[:] = [g(each) for each in b]",
    "b = c @ c; a += 1",
    "for i in range(3):\n    a += 1",
    "def f(a):\n    a += 1",
    "if n:\n    a += 1",
    "await b\na += 1",
)


@pytest.mark.parametrize("code", SWEEPING)
def test_whole_arrays_by_plain_statements(code: str) -> None:
    """In their order, each once. Whether a name has an array is for the namespace to say."""
    assert SWEEPING[code] == sweeps(ast.parse(code))


@pytest.mark.parametrize("code", NOT_SWEEPING)
def test_parts_and_what_may_take_its_time(code: str) -> None:
    """A copy is worth keeping where little of an array changes, or the cell runs for long anyway."""
    assert () == sweeps(ast.parse(code))


def test_only_arrays_are_swept() -> None:
    """A number is bound anew; so is what numpy does not know, as far as anybody can tell."""
    namespace = {"a": np.zeros(1000), "n": 1, "t": (1,)}
    assert 8000 == swept_bytes(("a", "n", "t", "missing"), namespace)


@pytest.mark.parametrize("value", [" + ".join(["1"] * 2000), f"[{'1, ' * 2000}]"], ids=["deep", "wide"])
def test_trees_of_any_size(value: str) -> None:
    """What a program has written may be a sum of thousands: it is not looked at to its end."""
    assert () == sweeps(ast.parse(f"a += {value}"))
