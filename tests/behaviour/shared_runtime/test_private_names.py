"""An author with private names: invisible to others, but ordinary Python names in every way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path

import pytest

from cenote.runtime import Function, PythonRuntime, Type, Variable, foretold
from cenote_security.errors import NameExistsError, UnknownNameError
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.usefixtures("where")


@dataclass
class Point:
    x: int


@pytest.fixture
def own(runtime: PythonRuntime) -> PythonRuntime:
    return runtime.attach("own", scope="private")


def names(runtime: PythonRuntime) -> set[str]:
    return {info.name for info in runtime.describe()}


@pytest.mark.at("embedded", "platform")
def test_nobody_else_sees_them(runtime: PythonRuntime, own: PythonRuntime, good: Callable) -> None:
    """Neither the common namespace nor another private one sees them, and they see neither."""
    other = runtime.attach("other", scope="private")
    good(runtime, "common = 1")
    good(own, "mine = 2")
    good(other, "mine = 3")
    assert [{"common"}, {"mine"}, {"mine"}] == [names(who) for who in (runtime, own, other)]
    assert (2, 3) == (own.retrieve("mine"), other.retrieve("mine"))
    with pytest.raises(UnknownNameError):
        runtime.retrieve("mine")
    error = own.execute("common").error
    assert "NameError" == error.type
    assert "it is one of the shared names: shared.common" in error.message


def test_shared(runtime: PythonRuntime, own: PythonRuntime, good: Callable) -> None:
    """`shared` has the common names as attributes, both ways, for all authors once one is attached."""
    good(runtime, "table = [1]")
    good(own, "shared.table.append(2)\nshared.model = 'm'\ndel shared.table[0]")
    assert ("[2]", "'m'") == (good(runtime, "table").value, good(runtime, "model").value)
    assert "[2]" == good(runtime, "shared.table").value
    assert "<shared names: table, model>" == good(own, "shared").value
    good(own, "del shared.table")
    assert {"model"} == names(runtime)
    assert "nearest: model" in own.execute("shared.modl").error.message
    assert "True" == good(own, "'shared' not in globals() and vars(shared) is not globals()").value


def test_the_globals_are_a_plain_dict(runtime: PythonRuntime, own: PythonRuntime, good: Callable) -> None:
    """In both kinds of namespace: anything else makes loops several times slower."""
    good(own, "shared.x = 1")
    for who in (runtime, own):
        assert (
            "True" == good(who, "type(globals()) is dict and vars(__import__('__main__')) is globals()").value
        )


DEFINITIONS = """
from __future__ import annotations
import dataclasses, enum, pickle, typing
@dataclasses.dataclass
class Pair:
    left: Pair | None
    right: int = 0
class Colour(enum.Enum):
    RED = 1
def double(x):
    return x * factor
factor = 2
"""


def test_what_is_defined_there_can_be_pickled(own: PythonRuntime, good: Callable) -> None:
    """Classes and functions belong to `__main__`, and are found there by any lookup."""
    good(own, DEFINITIONS)
    assert (
        "(Pair(left=None, right=3), True, 4)"
        == good(
            own,
            "p, c, f = pickle.loads(pickle.dumps((Pair(None, 3), Colour.RED, double)))\n(p, c is Colour.RED, f(2))",
        ).value
    )
    assert "True" == good(own, "typing.get_type_hints(Pair)['left'] == Pair | None").value
    assert "True" == good(own, "__name__ == '__main__' == Pair.__module__").value


def test_two_authors_define_the_same_class(
    runtime: PythonRuntime, own: PythonRuntime, good: Callable
) -> None:
    """Each pickles their own, whichever author ran in between."""
    other = runtime.attach("other", scope="private")
    for who, side in ((own, 1), (other, 2), (runtime, 3)):
        good(who, f"import pickle\nclass C:\n    side = {side}\nc = C()")
    for who, side in ((own, "1"), (other, "2"), (runtime, "3")):
        assert (
            side
            == good(who, "again = pickle.loads(pickle.dumps(c))\nassert type(again) is C\nagain.side").value
        )


@pytest.mark.at("embedded", "platform")
def test_values_out_of_it(runtime: PythonRuntime, own: PythonRuntime, good: Callable) -> None:
    """`share` and `retrieve` accept functions and instances from there."""
    good(own, DEFINITIONS + "pair = Pair(None, 7)")
    with PythonRuntime() as elsewhere:
        elsewhere.inject(Variable("twice", own.share("double")), Variable("pair", own.share("pair")))
        assert "(8, 7)" == good(elsewhere, "twice(4), pair.right").value
    good(runtime, "class Point:\n    pass")  # the private one is not
    good(own, "@dataclasses.dataclass\nclass Point:\n    x: int\npoint = Point(5)")
    mine = make_dataclass("Point", [("x", int)])
    mine.__module__ = "__main__"
    assert mine(5) == own.retrieve("point", classes=[mine])


def test_what_a_model_is_shown(own: PythonRuntime, good: Callable) -> None:
    """Tracebacks, descriptions, hints and magics look as usual."""
    good(
        own,
        "class Trouble(Exception): pass\ndef fail(): raise Trouble('no')\nclass Thing: pass\nthing = Thing()",
    )
    error = own.execute("fail()").error
    assert "Trouble" == error.type
    assert "Trouble: no" in str(error)
    assert "__main__" not in str(error)
    assert "Thing" == next(info.type for info in own.describe() if info.name == "thing")
    assert "nearest: thing" in own.execute("thingg").error.message
    assert "Trouble  fail  Thing  thing\n" == good(own, "%who").stdout
    good(own, "%reset\n")
    assert set() == names(own)


def test_magics_work_on_the_authors_names(runtime: PythonRuntime, own: PythonRuntime, good: Callable) -> None:
    """`%%capture`, `%run` and `!` too, in turns."""
    good(runtime, "word = 'common'")
    good(own, "word = 'own'")
    assert ["own\n", "common\n"] == [good(who, "!echo {word}").stdout for who in (own, runtime)]
    good(own, "%%capture seen\nprint('hi')")
    good(own, "%%writefile script.py\nran = __name__")
    good(own, "%run script.py")
    assert {"word", "seen", "ran"} == names(own)
    assert {"word"} == names(runtime)


@pytest.mark.at("embedded", "platform", "relayed")
def test_injections_are_the_authors(runtime: PythonRuntime, own: PythonRuntime, good: Callable) -> None:
    """Two namespaces may use one name for different things, including host functions."""
    runtime.inject(Variable("x", 1), Function(lambda: "for all", name="who", host=True))
    own.inject(Variable("x", 2), Function(lambda: "for one", name="who", host=True), Type(Point))
    for _ in range(2):
        assert "(1, 'for all')" == good(runtime, "x, who()").value
        assert "(2, 'for one')" == good(own, "x, who()").value
    assert Point(3) == (good(own, "p = Point(3)"), own.retrieve("p"))[1]
    assert ["who"] == [function.name for function in own.port.functions]
    with pytest.raises(NameExistsError):
        own.inject(Variable("x", 3))
    own.update_variable("x", 4)
    own.delete("x")
    assert "1" == good(runtime, "x").value


@pytest.mark.at("embedded", "platform")
def test_they_wait_for_the_author(runtime: PythonRuntime, own: PythonRuntime, good: Callable) -> None:
    """An author who leaves and returns finds their names, directory and injections."""
    own.inject(Variable("given", 1))
    good(own, "made = 2\nimport os\nos.environ['COLOUR'] = 'red'")
    own.close()
    again = runtime.attach("own", scope="private")
    assert "(1, 2, 'red')" == good(again, "given, made, os.environ['COLOUR']").value
    assert ["given"] == [variable.name for variable in again.port.variables]
    assert "NameError" == runtime.attach("own").execute("made").error.type


@pytest.mark.at("embedded", "platform")
def test_injections_survive_the_jail(forgetful: PythonRuntime, good: Callable) -> None:
    """The next jail gets them in the same namespace, with the latest value."""
    runtime, own = forgetful, forgetful.attach("own", scope="private")
    runtime.inject(Variable("x", "common"))
    own.inject(Variable("x", "own"), Function(lambda: "here", name="who", host=True))
    own.update_variable("x", "newer")
    runtime.update_variable("x", "for all")
    assert "lost" == own.execute("import os\nos._exit(1)").state
    assert "('newer', 'here')" == good(own, "x, who()").value
    assert "'for all'" == good(runtime.attach("late"), "x").value


@pytest.mark.at("embedded", "platform", "relayed")
def test_host_objects_of_two_authors(runtime: PythonRuntime, own: PythonRuntime, good: Callable) -> None:
    """Calls reach the object that the author has injected."""
    runtime.inject(Variable("stack", [1], host=True))
    own.inject(Variable("stack", [2], host=True))
    assert ("1", "2") == (good(runtime, "stack.pop()").value, good(own, "stack.pop()").value)


def test_await_and_threads(own: PythonRuntime, good: Callable) -> None:
    """Top-level await and threads see the author's names."""
    good(own, "import asyncio, threading\nx = 1")
    assert "1" == good(own, "async def f():\n    await asyncio.sleep(0)\n    return x\nawait f()").value
    good(own, "def g():\n    global y\n    y = x + 1\nt = threading.Thread(target=g)\nt.start()\nt.join()")
    assert 2 == own.retrieve("y")


@pytest.mark.parametrize(
    ("cell", "said"), [("_x = 1", ["names of ann: only the common names are stored"]), ("1", [])]
)
def test_a_stored_state_says_whose_names_it_lacks(tmp_path: Path, cell: str, said: list[str]) -> None:
    """An author who has bound nothing, not even a name with an underscore, has none."""
    with PythonRuntime(sandbox=SandboxPolicy(preload=()), store=str(tmp_path), name="r") as runtime:
        with runtime.attach("ann", scope="private") as ann:
            assert ann.execute(cell).success
            runtime.checkpoint()
        assert said == [each for each in foretold(tmp_path, "r").missing if "ann" in each]
