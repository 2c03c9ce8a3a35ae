"""A client may run another version of Python than its runtime does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cenote.errors import NotTransferableError
from cenote.runtime import Function, PythonRuntime, Type, Variable
from cenote_worker import code_versions


def double(number: int) -> int:
    return 2 * number


class Box:
    def size(self) -> int:
        return 1


@pytest.mark.parametrize(
    "make", [lambda: Function(double), lambda: Type(Box), lambda: Variable("boxes", [Box()])]
)
def test_bytecode_of_another_version_is_refused(
    make: Callable[[], Function | Type | Variable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was run, and gave errors of the interpreter's, or something else. Data goes as before."""
    monkeypatch.setattr(code_versions, "_HERE", (3, 99))
    with PythonRuntime() as runtime:
        with pytest.raises(NotTransferableError, match=r"of Python 3\.99, which Python 3\.\d+ cannot run"):
            runtime.inject(make())
        runtime.inject(Variable("plain", [1, "a"]))
        assert "[1, 'a']" == runtime.execute("plain").value


def test_bytecode_of_this_version_is_run() -> None:
    with PythonRuntime(functions=[Function(double)], types=[Type(Box)]) as runtime:
        assert "(4, 1)" == runtime.execute("double(2), Box().size()").value
