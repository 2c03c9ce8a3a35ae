"""A client may run a different version of Python than its runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest

from cenote.errors import NotTransferableError
from cenote.runtime import Function, PythonRuntime, Type, Variable
from cenote_worker.pickling import code_objects


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
    """Otherwise it would run and cause errors of the interpreter's, or wrong results. Data passes as before."""
    monkeypatch.setattr(code_objects, "_HERE", (3, 99))
    with PythonRuntime() as runtime:
        with pytest.raises(NotTransferableError, match=r"of Python 3\.99, which Python 3\.\d+ cannot run"):
            runtime.inject(make())
        runtime.inject(Variable("plain", [1, "a"]))
        assert "[1, 'a']" == runtime.execute("plain").value


def test_bytecode_of_this_version_is_run() -> None:
    with PythonRuntime(functions=[Function(double)], types=[Type(Box)]) as runtime:
        assert "(4, 1)" == runtime.execute("double(2), Box().size()").value


@pytest.mark.parametrize(
    "code", [double.__code__, Box.size.__code__, compile("a = [b for b in c]", "here", "exec")]
)
def test_code_is_written_whole(code: CodeType) -> None:
    """With the name of its file, which is not compared."""
    make, arguments = code_objects.reduced_code(code)
    made = make(*arguments)
    assert code == made
    assert (code.co_filename, code.co_qualname) == (made.co_filename, made.co_qualname)


@pytest.mark.slow
def test_functions_keep_their_file_wherever_they_go(tmp_path: Path) -> None:
    """Into a jail, from there to another one, and there after hibernation: tracebacks use the file name."""
    asked = "double.__code__.co_filename"
    with (
        PythonRuntime(functions=[Function(double)]) as runtime,
        PythonRuntime.open(tmp_path, "other") as other,
    ):
        assert repr(__file__) == runtime.execute(asked).value
        other.inject(Variable("double", runtime.share("double")))
        assert repr(__file__) == other.execute(asked).value
        other.hibernate()
        assert repr(__file__) == other.execute(asked).value
