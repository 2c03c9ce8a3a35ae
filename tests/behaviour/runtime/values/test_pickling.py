"""Values sent into a jail: by value where the jail could not import them, large buffers beside the stream."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cenote.runtime.inject.pickling_unsafe import dump, is_foreign
from cenote_security.errors import NotTransferableError
from cenote_worker.transport.content import Content


def load(content: Content) -> object:
    stream, *buffers = content.unpack()
    return pickle.loads(stream, buffers=buffers)


def test_large_buffers_travel_beside_the_stream() -> None:
    """An array of 1 MB is a separate part; a small one stays in the stream."""
    large = dump("large", np.ones(131_072)).content
    assert [131_072 * 8] == [len(part) for part in large.unpack()[1:]]
    assert 1 == len(dump("small", np.ones(10)).content.unpack())


def test_arrays_that_are_not_contiguous() -> None:
    """They are copied into one piece, values intact."""
    array = np.arange(200_000).reshape(400, 500)[::2, ::3]
    assert np.array_equal(array, load(dump("a", array).content))


def test_two_names_for_one_array_stay_one(tmp_path: Path) -> None:
    """Sharing inside one injection is kept, large buffers included."""
    array = np.zeros(100_000)
    first, second = load(dump("pair", (array, array)).content)
    first[0] = 1
    assert 1 == second[0]


def test_modules_that_a_jail_cannot_import_go_by_value(tmp_path: Path) -> None:
    """A function of the user's module runs where that module does not exist, with its globals and classes."""
    (tmp_path / "my_tools.py").write_text(
        textwrap.dedent(
            """
            LIMIT = 3
            class Item:
                def __init__(self, n): self.n = n
            def make(n): return Item(min(n, LIMIT))
            """
        )
    )
    sending = textwrap.dedent(
        """
        import sys
        from cenote.runtime.inject.pickling_unsafe import dump
        import my_tools
        pickled = dump("make", my_tools.make)
        sys.stdout.buffer.write(bytes(pickled.content.unpack()[0]))
        """
    )
    stream = subprocess.run(
        [sys.executable, "-c", sending],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    ).stdout
    receiving = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(9).n)"
    elsewhere = subprocess.run(
        [sys.executable, "-c", receiving], input=stream, cwd="/", capture_output=True, check=True
    )
    assert b"3\n" == elsewhere.stdout


MODELS = """
from __future__ import annotations
import enum, pydantic, sys
from cenote.runtime.inject.pickling_unsafe import dump
class Colour(enum.Enum):
    RED = "red"
class Part(pydantic.BaseModel):
    colour: Colour
class Whole(pydantic.BaseModel):
    first: Part
    rest: dict[str, list[Part]] = {}
    inside: Whole | None = None
sys.stdout.buffer.write(bytes(dump("it", Whole).content.unpack()[0]))
"""


def test_models_that_share_parts_of_their_schemas() -> None:
    """Pydantic models that use each other, with postponed annotations, arrive whole: they validate as before."""
    stream = subprocess.run([sys.executable, "-c", MODELS], capture_output=True, check=True).stdout
    receiving = (
        "import pickle, sys; Whole = pickle.load(sys.stdin.buffer); part = {'colour': 'red'};"
        "print(Whole(first=part, rest={'a': [part]}, inside={'first': part}).model_dump_json())"
    )
    elsewhere = subprocess.run([sys.executable, "-c", receiving], input=stream, capture_output=True)
    part = b'{"colour":"red"}'
    inside = b'{"first":' + part + b',"rest":{},"inside":null}'
    assert (
        b'{"first":' + part + b',"rest":{"a":[' + part + b']},"inside":' + inside + b"}\n" == elsewhere.stdout
    )


def test_by_value_classes_are_noted() -> None:
    """Afterwards the client knows the classes whose instances a jail may send."""

    class Local:
        pass

    classes = dump("x", Local()).classes
    assert [Local] == list(classes.values())
    assert [f"{Local.__module__}:{Local.__qualname__}"] == list(classes)


def test_foreign_and_installed_classes() -> None:
    """Installed packages and the standard library are visible in a jail; this test module is not."""

    class Local:
        pass

    assert is_foreign(Local)
    assert not is_foreign(Path)
    assert not is_foreign(np.ndarray)


@pytest.mark.slow
def test_libraries_outside_the_environment_go_by_name(tmp_path: Path) -> None:
    """One on PYTHONPATH that pip has installed; and numpy without a record there.

    The jail imports both from their locations, and sees no file of the project there.
    """
    records = tmp_path / "tool-1.0.dist-info"
    records.mkdir()
    (records / "RECORD").write_text("tool.py,sha256=x,0\n")
    (tmp_path / "tool.py").write_text("class Tool: n = 3\ndef fail(): 1 / 0\n")
    (tmp_path / "mine.py").write_text("class Mine: n = 4\n")
    (tmp_path / "numpy").symlink_to(Path(np.__file__).parent)
    program = textwrap.dedent(
        """
        import json, os, mine, numpy, tool
        from cenote import PythonRuntime, Variable
        here = os.path.dirname(tool.__file__)
        assert os.path.dirname(os.path.dirname(numpy.__file__)) == here
        values = {"a": tool.Tool(), "b": mine.Mine(), "c": numpy.arange(3), "d": tool}
        with PythonRuntime(variables=[Variable(*item) for item in values.items()]) as runtime:
            code = f"import os; x = [a.n, b.n, int(c.sum()), d.__file__, *sorted(os.listdir({here!r}))]"
            assert runtime.execute(code).success
            print(json.dumps(runtime.retrieve("x")))
            print(json.dumps("in tool.py:2, in fail" in runtime.execute("d.fail()").error.traceback))
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    values, traced = map(json.loads, done.stdout.splitlines())
    assert [3, 4, 3, f"{tmp_path}/tool.py", "numpy", "tool-1.0.dist-info", "tool.py"] == values
    assert traced


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ((i for i in ()), "generator"),
        (open("/dev/null"), "open file"),  # noqa: SIM115
        (sys._getframe(), "cannot pickle"),
    ],
    ids=["generator", "file", "frame"],
)
def test_refusals_name_variable_and_reason(value: object, reason: str) -> None:
    """The message names the variable, the reason and the remedy."""
    with pytest.raises(NotTransferableError, match=reason) as caught:
        dump("it", {"nested": [value]})
    assert "'it'" in str(caught.value)


def test_pickling_costs_nothing_per_loaded_module() -> None:
    """Each answer of a host function is a pickle; a program has thousands of modules."""
    with _pretended_modules(20_000):
        started = time.thread_time()
        for _ in range(100):
            dump("x", 1)
        assert time.thread_time() - started < 0.5


@contextmanager
def _pretended_modules(count: int) -> Iterator[None]:
    names = [f"pretended_{number}" for number in range(count)]
    for name in names:
        module = types.ModuleType(name)
        module.__file__ = f"/nowhere/{name}.py"
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def test_the_global_list_of_modules_is_left_as_it_was() -> None:
    """cloudpickle's registry belongs to the user; it is unchanged afterwards, also after errors."""
    import cloudpickle

    before = set(cloudpickle.list_registry_pickle_by_value())
    dump("x", 1)
    with pytest.raises(NotTransferableError):
        dump("x", sys._getframe())
    assert before == set(cloudpickle.list_registry_pickle_by_value())
