"""Values into and out of a real jail."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel
from tests.support.descriptors import MEMORY, all_closed
from tests.support.forks.fixtures import by_value  # noqa: F401  (a fixture)

from cenote.runtime import Function, ObjectReference, PythonRuntime, Type, Variable
from cenote_security.errors import (
    CallTimeoutError,
    CenoteError,
    NameExistsError,
    NotTransferableError,
    RolledBackError,
    UnknownNameError,
    UnsafeValueError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import CheckpointRefusedError, IncompleteForkError
from cenote_worker.runtime.injection_log import MAX_FORMER_VALUES

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]


class Color(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: int
    y: int

    def moved(self, by: int) -> Point:
        return Point(self.x + by, self.y)


class Order(BaseModel):
    id: str
    total: float


class Light:
    def __init__(self, name: str) -> None:
        self.name = name
        self.level = 0

    def dim(self, level: int) -> None:
        self.level = level


class Toolkit:
    """Many methods over one database."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def add(self, row: str) -> int:
        self.rows.append(row)
        return len(self.rows)

    def count(self) -> int:
        return len(self.rows)


SECRET = "module level"


def reads_a_global() -> str:
    return SECRET


@pytest.mark.at("embedded", "platform", "relayed")
@pytest.mark.sweep
@pytest.mark.parametrize(
    "value",
    [
        1,
        "text",
        [1, {"a": (2, 3)}, {4}],
        Color.BLUE,
        Point(1, 2),
        Order(id="a", total=2.5),
        {"points": [Point(1, 2)], "color": Color.RED},
    ],
    ids=repr,
)
def test_round_trip(make_runtime, value: Any) -> None:
    """A value injected by value comes back equal, with the caller's own classes."""
    runtime = make_runtime(variables=[Variable("value", value)])
    assert value == runtime.retrieve("value")


def test_plain_objects_come_back(make_runtime) -> None:
    """An injected object is changed by cells and comes back as an instance of its class."""
    runtime = make_runtime(variables=[Variable("light", Light("Living Room"))], types=[Type(Light)])
    assert runtime.execute("light.dim(20)").success
    light = runtime.retrieve("light")
    assert isinstance(light, Light)
    assert ("Living Room", 20) == (light.name, light.level)


def test_classes_come_with_their_values(make_runtime) -> None:
    """Model-written code can make further instances of an injected class."""
    runtime = make_runtime(variables=[Variable("points", [Point(1, 2)])])
    assert runtime.execute("points.append(Point(3, 4).moved(1))").success
    assert [Point(1, 2), Point(4, 4)] == runtime.retrieve("points")


@pytest.mark.at("embedded", "platform", "relayed")
def test_frames_and_arrays(make_runtime) -> None:
    """Frames and arrays keep dtypes, indexes and names; returned ones are writable."""
    frame = pd.DataFrame({"a": [1, 2], "s": ["x", None], "t": pd.to_datetime(["2020-01-01", None])})
    array = np.arange(6, dtype="int16").reshape(2, 3)
    runtime = make_runtime(variables=[Variable("frame", frame), Variable("array", array)])
    assert runtime.execute("array[0, 0] = 9; frame['b'] = frame.a * 2").success
    back = runtime.retrieve("array")
    back[1, 1] = 7
    assert 9 == back[0, 0]
    assert array.dtype == back.dtype
    frame["b"] = frame.a * 2
    pd.testing.assert_frame_equal(frame, runtime.retrieve("frame"))


def test_functions_by_value(make_runtime) -> None:
    """Closures, lambdas and functions that read their module's globals run in the jail."""
    factor = 3
    runtime = make_runtime(
        functions=[
            Function(lambda x: x * factor, name="triple"),
            Function(reads_a_global),
        ]
    )
    result = runtime.execute("triple(2), reads_a_global(), __import__('os').getpid()")
    assert result.success
    assert result.value is not None
    assert result.value.startswith("(6, 'module level'")
    assert str(os.getpid()) not in result.value


def test_what_is_injected_together_shares_its_state(make_runtime) -> None:
    """Bound methods of one toolkit see one database."""
    kit = Toolkit()
    runtime = make_runtime(
        functions=[Function(kit.add), Function(kit.count)], variables=[Variable("kit", kit)]
    )
    assert "(1, 2, 2, 2)" == runtime.execute("add('a'), add('b'), count(), len(kit.rows)").value
    assert [] == kit.rows


@pytest.mark.at("embedded")
@pytest.mark.slow
def test_estimators(make_runtime) -> None:
    """A scikit-learn estimator is injected, fitted by a cell, and shared onwards."""
    from sklearn.linear_model import LinearRegression

    runtime = make_runtime(variables=[Variable("model", LinearRegression())])
    result = runtime.execute("import numpy as np\nmodel.fit(np.array([[1.], [2.]]), np.array([2., 4.]))")
    assert result.success, result.error
    assert [2.0] == pytest.approx(runtime.retrieve("model", trusted=True).coef_)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ((i for i in range(3)), "generator"),
        (open(os.devnull), "open file"),  # noqa: SIM115
    ],
    ids=["generator", "file"],
)
def test_what_cannot_go_is_refused_with_a_reason(value: object, reason: str) -> None:
    """Generators and open files stay; the error names the variable and the remedy."""
    with pytest.raises(NotTransferableError, match=reason) as caught:
        PythonRuntime(variables=[Variable("fine", 1), Variable("stuck", value)])
    assert "'stuck'" in str(caught.value)


def test_sizes_that_cannot_be(runtime) -> None:
    """CPython 3.11 reports a negative size for a negative number of 181 bits and more. Asking loses nothing."""
    code = """
keep = [1, 2]
det = -3**500
rows = [-3**500]
class Liar(list):
    def __sizeof__(self): return -7
liar = Liar()
globals()["half \\ud83d"] = 1
"""
    assert runtime.execute(code).success
    sizes = {info.name: info.size for info in runtime.describe()}
    assert {"keep", "det", "rows", "Liar", "liar", "half \\ud83d"} == sizes.keys()
    assert min(sizes.values()) >= 0
    assert -(3**500) == runtime.retrieve("det")
    with runtime.share("det") as shared:
        assert 0 <= shared.size < 1_000
        runtime.inject(Variable("again", shared))
    assert "([1, 2], True)" == runtime.execute("keep, again == det == -3**500").value


def test_what_is_said_of_variables_is_printable(runtime) -> None:
    """Names, types and descriptions come from the jail; code that prints them has a terminal."""
    code = """
act = "\\x1b]0;title\\x07\\u202e"
globals()[act] = 1
Odd = type(act, (), {})
odd = Odd()
keys = {act: 1}
"""
    assert runtime.execute(code).success
    found = runtime.describe()
    assert {"act", "Odd", "odd", "keys", "\\x1b]0;title\\x07\\u202e"} == {info.name for info in found}
    assert all(text.isprintable() for info in found for text in (info.name, info.type, info.description))
    with runtime.share("odd") as shared:
        assert "\\x1b]0;title\\x07\\u202e" == shared.type
    error = runtime.execute("raise Exception(act) from Exception(act)").error
    assert error is not None
    assert "\\x1b]0;title\\x07\\u202e" == error.message
    assert str(error).replace("\n", "").isprintable()
    with pytest.raises(CenoteError) as refused:
        runtime.retrieve("odd")
    assert str(refused.value).isprintable()
    assert "\x1b]0;title\x07\u202e\n" == runtime.execute("print(act)").stdout


def test_names(make_runtime) -> None:
    """inject refuses a taken name, update a missing one; delete and describe do what their names say."""
    runtime = make_runtime(variables=[Variable("a", 1)])
    with pytest.raises(NameExistsError):
        runtime.inject(Variable("a", 2))
    runtime.execute("made_here = 1")
    with pytest.raises(NameExistsError):
        runtime.inject(Variable("made_here", 2))
    runtime.inject(Variable("b", 2))
    runtime.update_variable("a", 10)
    runtime.update_variable("made_here", 11)
    with pytest.raises(UnknownNameError, match="made_here"):
        runtime.update_variable("made_her", 1)
    assert "(10, 2, 11)" == runtime.execute("a, b, made_here").value
    runtime.delete("b")
    with pytest.raises(UnknownNameError):
        runtime.retrieve("b")
    with pytest.raises(UnknownNameError, match="nearest names are made_here"):
        runtime.retrieve("made_her")
    assert {"a", "made_here"} == {info.name for info in runtime.describe()}
    runtime.inject(Variable("b", 3))
    with pytest.raises(UsageError):
        Variable("not a name", 1)


@pytest.mark.at("embedded", "platform", "relayed")
def test_injected_values_survive_the_loss_of_a_jail(make_runtime) -> None:
    """A new jail has the injected values, including updates, and not those made by cells."""
    kit = Toolkit()
    policy = SandboxPolicy(snapshots="none")
    runtime = make_runtime(variables=[Variable("a", 1), Variable("kit", kit)], sandbox=policy)
    runtime.inject(Variable("b", 2))
    runtime.update_variable("a", 5)
    runtime.execute("c = 3; kit.add('x')")
    assert "lost" == runtime.execute("import os; os._exit(1)").state
    assert "(5, 2, 0, False)" == runtime.execute("a, b, kit.count(), 'c' in globals()").value


@pytest.mark.at("embedded", "platform", "relayed")
@pytest.mark.sweep
@pytest.mark.parametrize(
    "code",
    [
        "x = lambda: 1",
        "x = (i for i in [])",
        "import threading; x = threading.Lock()",
        "class Mine: pass\nx = Mine()",
        "class Evil:\n    def __reduce__(self): return (print, ('pwned',))\nx = Evil()",
    ],
)
def test_retrieve_refuses_what_it_does_not_know(runtime: PythonRuntime, code: str) -> None:
    """Only plain data and named classes are rebuilt; the error says how to opt in."""
    runtime.execute(code)
    with pytest.raises(UnsafeValueError, match="classes="):
        runtime.retrieve("x")


def test_retrieve_never_unpickles(runtime: PythonRuntime, capsys: pytest.CaptureFixture[str]) -> None:
    """A class that would run code while it is unpickled runs none."""
    runtime.execute("class Point:\n    def __reduce__(self): return (print, ('pwned',))\nx = [Point()]")
    with pytest.raises(UnsafeValueError):
        runtime.retrieve("x", classes=[Point])
    assert "pwned" not in capsys.readouterr().out


@pytest.mark.at("embedded", "platform", "relayed")
def test_sharing_by_reference(make_runtime) -> None:
    """A value goes to another runtime, is writable there, and no other runtime sees the change."""
    producer, consumer, third = make_runtime(), make_runtime(), make_runtime()
    producer.execute("import numpy as np\ndata = np.zeros(1_000_000)")
    with producer.share("data") as reference:
        assert ("numpy.ndarray", (1_000_000,)) == (reference.type, reference.shape)
        consumer.inject(Variable("data", reference))
        third.inject(Variable("data", reference))
    consumer.execute("data[0] = 7")
    assert ["7.0", "0.0", "0.0"] == [
        runtime.execute("float(data[0])").value for runtime in (consumer, third, producer)
    ]


@pytest.mark.at("embedded", "platform", "relayed")
def test_a_reference_outlives_its_maker(make_runtime) -> None:
    """The value exists after the runtime that made it has ended."""
    producer, consumer = make_runtime(), make_runtime()
    producer.execute("data = list(range(100_000))")
    reference = producer.share("data")
    producer.close()
    consumer.inject(Variable("data", reference))
    assert "4999950000" == consumer.execute("sum(data)").value


def test_a_released_reference(make_runtime) -> None:
    """Using it is an error with a next step."""
    producer = make_runtime()
    producer.execute("data = bytes(200_000)")
    reference = producer.share("data")
    reference.release()
    with pytest.raises(UsageError, match="share the value again"):
        make_runtime().inject(Variable("data", reference))


@pytest.mark.at("embedded")
def test_references_do_not_leak_descriptors(make_runtime) -> None:
    """A hundred references made and dropped leave only those needed for later injection, and these until the end."""
    runtime = make_runtime()
    runtime.execute("data = bytes(200_000)")
    runtime.share("data").release()
    with all_closed(MEMORY):
        with all_closed(MEMORY, spare=1 + MAX_FORMER_VALUES):
            for _ in range(100):
                reference = runtime.share("data")
                assert isinstance(reference, ObjectReference)
                runtime.update_variable("data", reference)
            del reference
        runtime.close()


class OnlyHere:
    """It can be sent, but not made again in a jail."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number" * 30_000,)


@pytest.mark.at("embedded")
def test_what_a_jail_refuses_leaves_no_descriptor(make_runtime) -> None:
    """The error names it, and the descriptors of the value are closed."""
    runtime = make_runtime()
    runtime.core.start()  # the first jail of a process brings memory that stays
    with all_closed(MEMORY):
        for _ in range(3):
            with pytest.raises(NotTransferableError, match="'broken' cannot be sent"):
                runtime.inject(Variable("broken", OnlyHere()))


IMPATIENT = SandboxPolicy(call_timeout=0.5)

NAMED = """
class Name(str):
    def __eq__(self, other): __import__('time').sleep(600)
    def __hash__(self): return hash("z")
globals()[Name("z")] = 1
"""


@pytest.mark.at("embedded")
def test_a_name_that_never_ends(make_runtime) -> None:
    """A user's object may be the key of a variable; it is compared with another."""
    runtime = make_runtime(sandbox=IMPATIENT)
    runtime.execute("y = 5")
    runtime.execute(NAMED)
    with pytest.raises(CallTimeoutError):
        runtime.retrieve("z")
    assert "5" == runtime.execute("y").value


@pytest.mark.at("embedded")
def test_columns_that_never_end(make_runtime) -> None:
    """The description of one variable takes too long; the others are described."""
    runtime = make_runtime(sandbox=IMPATIENT)
    slow = "    def __repr__(self): __import__('time').sleep(600)\n    __str__ = __repr__"
    runtime.execute(f"import pandas as pd\nclass C:\n{slow}\nx, y = pd.DataFrame([[1]], columns=[C()]), 5")
    assert {"x", "y"} <= {info.name for info in runtime.describe()}


ENDLESS = [
    ("__str__", lambda runtime: runtime.retrieve("error")),
    ("__reduce__", lambda runtime: runtime.share("x")),
    ("__getstate__", lambda runtime: runtime.retrieve("x", trusted=True)),
    ("__del__", lambda runtime: runtime.delete("x")),
    ("__del__", lambda runtime: runtime.update_variable("x", 1)),
    ("__reduce_ex__", lambda runtime: runtime.fork()),
    ("__setstate__", lambda runtime: runtime.fork()),
]
"""Methods that a call runs in the jail."""


@pytest.mark.at("embedded")
@pytest.mark.sweep
@pytest.mark.usefixtures("by_value")
@pytest.mark.parametrize(("method", "call"), ENDLESS)
def test_a_value_that_never_ends(make_runtime, method: str, call: Callable[[PythonRuntime], object]) -> None:
    """Each call that runs code of a jail has the policy's limit, and leaves the rest unchanged."""
    runtime = make_runtime(sandbox=IMPATIENT)
    body = f"    def {method}(self, *_): __import__('time').sleep(600)"
    runtime.execute(f"class E(Exception):\n{body}\nclass X:\n    a = 1\n{body}\nx, y, error = X(), 5, E()")
    runtime.execute("x.a = 2")
    with suppress(CallTimeoutError, CheckpointRefusedError, IncompleteForkError):
        call(runtime)
        assert method == "__del__", "a value that never ends has come to an end"
    assert "5" == runtime.execute("y").value


@pytest.mark.at("embedded")
@pytest.mark.slow
def test_a_value_that_ignores_its_interrupt(make_runtime) -> None:
    """Its process is killed, as a cell's is, and the newest copied state continues."""
    runtime = make_runtime(sandbox=IMPATIENT)
    runtime.execute(
        "import time\ny = 5\nclass X:\n    def __reduce__(self):\n        while True:\n"
        "            try: time.sleep(600)\n            except BaseException: pass\nx = X()"
    )
    runtime.execute("0")  # the state is copied before it
    with pytest.raises(RolledBackError, match=r"call ran out of time.* of 0\.5 s"):
        runtime.share("x")
    assert "5" == runtime.execute("y").value


class Ranged:
    """With a cached property, next to a lock in Python 3.11."""

    @cached_property
    def top(self) -> int:
        return 9


@pytest.mark.at("embedded")
def test_classes_with_cached_properties(make_runtime) -> None:
    """They are sent into a jail, to another one, and into a branch."""
    runtime = make_runtime(variables=[Variable("ranged", Ranged())])
    assert "(9, {'top': 9})" == runtime.execute("(ranged.top, vars(ranged))").value
    with PythonRuntime() as other, runtime.fork() as branch:
        other.inject(Variable("handed", runtime.share("ranged")))
        assert "9" == other.execute("handed.top").value
        assert "9" == branch.execute("type(ranged)().top").value


@pytest.mark.at("embedded")
def test_a_function_with_a_cache_is_refused_with_a_way_out(make_runtime) -> None:
    """It pickles itself as a name that a jail does not have; the error names the alternative."""

    @cache
    def slow(n: int) -> int:
        return n

    runtime = make_runtime()
    for item in (Function(slow), Variable("table", [slow])):
        with pytest.raises(NotTransferableError, match=r"slow` has a cache .* without the decorator"):
            runtime.inject(item)
    runtime.inject(Function(slow, host=True))
    assert "3" == runtime.execute("slow(3)").value


@pytest.mark.at("embedded")
def test_what_is_not_wrapped_is_told_how(make_runtime) -> None:
    """A function or class by itself has everything that its wrapper needs."""

    def double(n: int) -> int:
        return 2 * n

    runtime = make_runtime()
    for item, hint in (
        (double, r"write Function\(double\)"),
        (Point, r"write Type\(Point\)"),
        (3, "not int$"),
    ):
        with pytest.raises(UsageError, match=hint):
            runtime.inject(item)
