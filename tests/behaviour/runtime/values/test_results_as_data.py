"""The result of a host function is in the jail as data: its fields, and no code of its class."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import sys
import threading
from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pydantic
import pytest

from cenote.errors import NotTransferableError, UsageError
from cenote.runtime import Function, PythonRuntime, Type, Variable
from cenote.runtime.inject.injection import pack, signature_text
from cenote.runtime.inject.pickling_unsafe import DataOnly, dump
from cenote_worker.transport.content import Content

pytestmark = pytest.mark.usefixtures("where")

API_KEY = "sk-" + "SECRET"
MOST = 7
T = TypeVar("T")


class Plain:
    token = API_KEY

    def __init__(self) -> None:
        self.region = "eu"
        self._key = API_KEY

    def refresh(self, key: str = API_KEY) -> str:
        return f"Bearer {API_KEY} {key}"

    @property
    def secret(self) -> str:
        return API_KEY

    @staticmethod
    def signed() -> str:
        return API_KEY


class Derived(Plain, ABC, Generic[T]):
    def more(self) -> str:
        return super().refresh()


class Slotted:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = 1

    def key(self) -> str:
        return API_KEY


class Locked:
    """Its own `__getstate__` decides what is kept."""

    def __init__(self) -> None:
        self.lock, self.x = threading.Lock(), 1

    def __getstate__(self) -> dict[str, Any]:
        return {"x": self.x, "used": bool(API_KEY)}


class Meta(type):
    def key(cls) -> str:
        return API_KEY


class WithMeta(metaclass=Meta):
    def __init__(self) -> None:
        self.x = 1


class Node:
    def __init__(self) -> None:
        self.child: Node | None = None
        self.parent: Node | None = None

    def key(self) -> str:
        return API_KEY


class Colour(str, enum.Enum):  # noqa: UP042  (the form of older code)
    RED = "red"

    def key(self) -> str:
        return API_KEY


class Permission(enum.Flag):
    READ = 1
    WRITE = 2

    def key(self) -> str:
        return API_KEY


class Labelled(str, enum.Enum):  # noqa: UP042
    ONE = "one", 1

    def __new__(cls, text: str, number: int) -> Labelled:
        made = str.__new__(cls, text)
        made._value_ = (text, number)  # type: ignore[assignment]
        return made


@dataclass
class Line:
    sku: str
    count: int = 1

    def key(self) -> str:
        return API_KEY


@dataclass(order=True)
class Order(ABC):
    id: int
    colour: Colour = Colour.RED
    lines: list[Line] = field(default_factory=list)
    made: str = field(default_factory=lambda: f"{API_KEY:.2}")

    def key(self) -> str:
        return API_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    a: int

    def key(self) -> str:
        return API_KEY


@dataclass
class Counted(Line):
    """Attributes besides the fields are sent, but not a property's cache."""

    def __post_init__(self) -> None:
        self.total = 2 * self.count
        self._key = API_KEY

    @functools.cached_property
    def cached(self) -> str:
        return API_KEY


class Made(Line):
    """A subclass that is not a dataclass itself."""

    def __init__(self) -> None:
        super().__init__("s")
        self.note = "n"


class Row(NamedTuple):
    a: int
    b: str = "x"

    def key(self) -> str:
        return API_KEY


class Part(pydantic.BaseModel):
    weight: float = 1.0

    def key(self) -> str:
        return API_KEY


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(alias="Name")
    count: int = pydantic.Field(3, ge=0)
    parts: list[Part] = []
    inner: Model | None = None
    _private: str = pydantic.PrivateAttr(default=API_KEY)

    @pydantic.field_validator("count")
    @classmethod
    def checked(cls, value: int) -> int:
        assert API_KEY
        return value


class Root(pydantic.RootModel[list[int]]):
    def key(self) -> str:
        return API_KEY


class ServiceError(ValueError):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> Any:
        return ServiceError, (self.code, API_KEY)


@functools.wraps(np.mean)
def wrapped(*args: Any) -> object:
    return API_KEY, np.mean(*args)


def of(base: Any) -> Any:
    return type(f"My{base.__name__}", (base,), {"__module__": __name__, "key": lambda self: API_KEY})


Text, Number, Many, Table, Group, Pair, Ordered, Frame, Array = map(
    of, (str, int, list, dict, set, tuple, collections.OrderedDict, pd.DataFrame, np.ndarray)
)


def cycle() -> Node:
    first, second = Node(), Node()
    first.child, second.parent = second, first
    return first


def local() -> object:
    secret = API_KEY

    class Local:
        def __init__(self) -> None:
            self.x = 1

        def key(self) -> str:
            return secret

    return Local()


def column() -> pd.DataFrame:
    frame = pd.DataFrame({"a": [1]})
    frame["line"] = [Line("s")]
    return frame


def filled(line: Counted) -> Counted:
    assert line.cached
    return line


BESIDE = "(Counted(sku='s', count=1), 2, {'sku': 's', 'count': 1, 'total': 2})"
GIVEN: dict[str, tuple[Any, str, str]] = {
    "plain": (Plain, "v.region, vars(v)", "('eu', {'region': 'eu'})"),
    "derived": (Derived, "v", "Derived(region='eu')"),
    "slotted": (Slotted, "v.x", "1"),
    "locked": (Locked, "v.x, v.used", "(1, True)"),
    "metaclass": (WithMeta, "v.x, type(type(v)).__name__", "(1, 'type')"),
    "cycle": (cycle, "v.child.parent is v", "True"),
    "local": (local, "v.x", "1"),
    "enum": (lambda: [Colour.RED, {Colour.RED: 1}], "v[0].value, v[1][v[0]], v[0] == 'red'", "('red', 1, True)"),
    "labelled": (lambda: Labelled.ONE, "v.name, v.value", "('ONE', ('one', 1))"),
    "flag": (lambda: Permission.READ | Permission.WRITE, "v.value, type(v).READ in v", "(3, True)"),
    "order": (
        lambda: [Order(1, lines=[Line("s")], made="x")],
        "v[0].id, v[0].colour.name, v[0].lines[0].sku, v[0].made, v[0] == v[0]",
        "(1, 'RED', 's', 'x', True)",
    ),
    "beside": (lambda: filled(Counted("s")), "v, v.total, vars(v)", BESIDE),
    "made": (Made, "v.sku, v.count, v.note", "('s', 1, 'n')"),
    "frozen": (lambda: Frozen(a=1), "v, hash(v) == hash(type(v)(a=1))", "(Frozen(a=1), True)"),
    "row": (lambda: Row(1), "v, v.b, v._replace(a=2)", "(Row(a=1, b='x'), 'x', Row(a=2, b='x'))"),
    "model": (
        lambda: Model(Name="n", parts=[Part(weight=2)], inner=Model(Name="i")),
        "v.name, v.count, v.parts[0].weight, v.inner.name, v.model_dump()['parts']",
        "('n', 3, 2.0, 'i', [{'weight': 2.0}])",
    ),
    "root": (lambda: Root([1, 2]), "v.root", "[1, 2]"),
    "error": (lambda: ServiceError(7, "no"), "v.code, str(v), isinstance(v, ValueError)", "(7, 'no', True)"),
    "text": (lambda: Text("a"), "v + 'b'", "'ab'"),
    "number": (lambda: Number(2), "v + 1", "3"),
    "list": (lambda: Many([1]), "v", "[1]"),
    "dict": (lambda: Table(a=Plain()), "v['a'].region", "'eu'"),
    "set": (lambda: Group({1}), "1 in v", "True"),
    "tuple": (lambda: Pair((1, 2)), "v", "(1, 2)"),
    "ordered": (lambda: Ordered(b=1), "list(v.items())", "[('b', 1)]"),
    "frame": (lambda: Frame({"a": [1, 2]}), "int(v.a.sum())", "3"),
    "array": (lambda: np.arange(3).view(Array), "int(v.sum())", "3"),
    "column": (column, "v.line[0].sku", "'s'"),
    "class": (lambda: Plain, "v.__name__, hasattr(v, 'refresh'), hasattr(v, 'token')", "('Plain', False, False)"),
}  # fmt: skip


def host(function: Any, name: str = "", **more: Any) -> Function:
    return Function(function, host=True, name=name or None, **more)


def text_of(content: Content) -> bytes:
    found = b"".join(map(bytes, content.unpack()))
    content.close()
    return found


@pytest.fixture(scope="module")
def giving() -> Iterator[PythonRuntime]:
    functions = [host(make, f"give_{name}") for name, (make, _, _) in GIVEN.items()]
    with PythonRuntime(functions=functions) as made:
        yield made


@pytest.mark.sweep
@pytest.mark.parametrize("name", GIVEN)
def test_fields_are_there(giving: PythonRuntime, name: str) -> None:
    """By their names, for any class, and of the same class each time."""
    _, code, shown = GIVEN[name]
    result = giving.execute(f"v = give_{name}()\n{code}")
    assert (shown, None) == (result.value, result.error)
    assert "True" == giving.execute(f"type(v) is type(give_{name}())").value


@pytest.mark.parametrize("name", GIVEN)
def test_no_code_and_nothing_that_it_names_goes(name: str) -> None:
    """The key is not in the sent data: as a global, a closure's, a default, a class attribute, a private one."""
    value = GIVEN[name][0]()
    sent = text_of(dump(name, value, data=DataOnly()).content)
    assert API_KEY.encode() not in sent
    assert b"Bearer" not in sent


@pytest.mark.at("embedded", "platform")
def test_a_class_is_sent_whole_only_where_it_is_said(make_runtime: Any) -> None:
    """`by_value=True`, of functions, of async ones, and of host objects' methods."""

    def give() -> object:
        return Plain()

    async def later() -> object:
        return Plain()

    class Shop:
        def give(self) -> object:
            return Plain()

    functions = [host(give, by_value=True), host(later, by_value=True), host(give, "data")]
    variables = [Variable("shop", Shop(), host=True, by_value=True), Variable("other", Shop(), host=True)]
    with make_runtime(functions=functions, variables=variables) as runtime:
        for call in ("give()", "(await later())", "shop.give()"):
            assert repr(f"Bearer {API_KEY} {API_KEY}") == runtime.execute(f"{call}.refresh()").value
        for call in ("data()", "other.give()"):
            error = runtime.execute(f"{call}.refresh()").error
            assert error is not None
            assert "Plain has no field 'refresh'" in error.message
            assert "by_value=True" in error.message


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: lambda: API_KEY, "is a function of the client's"),
        (lambda: Plain().refresh, "`Plain.refresh` is a function"),
        (lambda: functools.partial(cycle), "`cycle` is a function"),
        (lambda: wrapped, "is a function of the client's"),
        pytest.param(
            lambda: dataclasses.make_dataclass("P", ["x"], namespace={"key": lambda self: API_KEY})(1),
            "<lambda>` is a function",
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 12), reason="the class is of a module, and goes as data"
            ),
        ),
        (lambda: {"m": sys.modules[__name__]}, "is a module of the client's"),
    ],
)
def test_code_is_refused(make: Any, reason: str) -> None:
    """The error names the alternative."""
    with pytest.raises(NotTransferableError, match=reason) as caught:
        dump("x", make(), data=DataOnly())
    assert "by_value=True" in str(caught.value)


def test_a_class_with_its_own_pickling_over_a_librarys() -> None:
    """Its code would have to run in the jail."""

    class Odd(pd.DataFrame):
        def __reduce__(self) -> Any:
            return Odd, ()

    with pytest.raises(NotTransferableError, match="a way of its own to be pickled"):
        dump("x", Odd(), data=DataOnly())


def test_by_value_is_of_what_stays_in_the_client() -> None:
    for make in (lambda: Function(cycle, by_value=True), lambda: Variable("x", 1, by_value=True)):
        with pytest.raises(UsageError, match="needs host=True"):
            make()


def make_order(id: int) -> Order:
    return Order(id, lines=[Line("s")])


def place(order: Order) -> str:
    assert type(order) is Order
    assert all(type(line) is Line for line in order.lines)
    return f"{order.id} {order.colour.key()[:2]} {order.made}"


def describe(model: Model) -> str:
    assert type(model) is Model
    return f"{model.name} {model.count} {[type(part) is Part for part in model.parts]}"


def test_classes_of_annotations_go_as_data() -> None:
    """Classes of arguments: the code that their methods use is not sent with the function."""
    (parcel,) = pack([host(place), host(describe), host(make_order)], "")
    assert API_KEY.encode() not in text_of(parcel.injection.values)
    assert {"Order", "Line", "Colour", "Model", "Part"} <= {name.split(":")[1] for name in parcel.classes}
    assert set() == parcel.sent


@pytest.mark.at("embedded", "platform")
@pytest.mark.slow
def test_arguments_of_such_classes(make_runtime: Any) -> None:
    """Made in the jail or returned by a host function: the function gets its own class."""
    with make_runtime(functions=[host(place), host(describe), host(make_order)]) as runtime:
        for code, value in {
            "place(make_order(3))": "'3 sk sk'",
            "place(Order(5, made='now'))": "'5 sk now'",
            "type(make_order(1)) is Order, isinstance(make_order(1).lines[0], Line)": "(True, True)",
            "describe(Model(Name='n', parts=[Part(weight=1)]))": "'n 3 [True]'",
            "describe(Model(Name='n', parts=[{'weight': 1}]))": "'n 3 [True]'",
            "Order(1, made='') < Order(2, made='')": "True",
        }.items():
            result = runtime.execute(code)
            assert (value, None) == (result.value, result.error), code
        error = runtime.execute("Order(5)").error
        assert error is not None
        assert "the default of this field is in the client" in error.message
        error = runtime.execute("describe(Model(Name='n', count=-1))").error
        assert error is not None
        assert "greater than or equal to 0" in error.message  # by the client's own class


@pytest.mark.slow
def test_a_class_that_was_injected_is_that_class(make_runtime: Any) -> None:
    """On purpose, with its methods: results are its instances, also in branches."""
    with make_runtime(functions=[host(make_order)], types=[Type(Order)]) as runtime:
        assert "(True, 'sk-SECRET')" == runtime.execute("o = make_order(1)\ntype(o) is Order, o.key()").value
        branch = runtime.fork()
        assert "'sk-SECRET'" == branch.execute("make_order(1).key()").value
    with make_runtime(functions=[host(make_order)], variables=[Variable("v", [Order(1)])]) as runtime:
        assert (
            "(True, 'x')"
            == runtime.execute("o = make_order(1)\ntype(o) is type(v[0]), o.made[:0] + 'x'").value
        )


def test_a_record_keeps_its_class_in_branches_and_other_jails(make_runtime: Any) -> None:
    """One description is one class."""
    with make_runtime(functions=[host(make_order)]) as runtime, make_runtime() as other:
        runtime.execute("o = make_order(1)")
        branch = runtime.fork()
        code = "type(make_order(1)) is type(o) is Order, o == make_order(1)"
        assert "(True, True)" == branch.execute(code).value
        assert Order(1, lines=[Line("s")]) == runtime.retrieve("o")
        branch.inject(host(lambda: Model(Name="n", parts=[Part()]), "give_model"))
        branch.execute("m = give_model()")
        again = branch.fork().fork()
        assert "(True, 1.0)" == again.execute("type(give_model()) is type(m), m.parts[0].weight").value
        other.inject(Variable("o", runtime.share("o")))
        assert "('s', 'Order')" == other.execute("o.lines[0].sku, type(o).__name__").value


def test_a_host_object_itself_stays(giving: PythonRuntime) -> None:
    """A method that returns its own object would send its content as data."""

    class Client:
        def __init__(self) -> None:
            self.key = API_KEY

        def again(self) -> Client:
            return self

        def inside(self) -> object:
            return [{"client": self}]

    client = Client()

    def give() -> object:
        return client

    giving.inject(Variable("client", client, host=True), host(give, "give_client"))
    for call in ("client.again()", "client.inside()", "give_client()"):
        error = giving.execute(call).error
        assert error is not None
        assert "Client itself stays in the client" in error.message


def test_the_text_of_an_error_reaches_the_jail(giving: PythonRuntime) -> None:
    """Its class and its attributes do not."""

    def fail() -> None:
        raise ServiceError(7, "no such order")

    giving.inject(host(fail, "fail"))
    result = giving.execute(
        "try:\n    fail()\nexcept Exception as e:\n    print(type(e).__name__, e, hasattr(e, 'code'))"
    )
    assert "HostError ServiceError: no such order False\n" == result.stdout


def test_defaults_are_shown_where_the_function_spells_them_out(giving: PythonRuntime) -> None:
    """The signature in the jail: the value of a name may be a key."""

    def find(
        text: str,
        key: str = API_KEY,
        mode: str = "fast",
        where: object = ("a", 1),
        *,
        limit: int = MOST,
        colour: Colour = Colour.RED,
        order: object = Order(1, made=API_KEY),
    ) -> None: ...

    expected = (
        "(text: 'str', key: 'str' = ..., mode: 'str' = 'fast', where: 'object' = ('a', 1), *, "
        "limit: 'int' = 7, colour: 'Colour' = Colour.RED, order: 'object' = ...) -> 'None'"
    )
    assert expected == signature_text(find)
    giving.inject(host(find))
    assert expected == giving.execute("import inspect\nprint(inspect.signature(find))").stdout.strip()
    assert "(x=...)" == signature_text(eval("lambda x='a': x"))  # there is no source to read
    assert "(*, key=..., n=1)" == signature_text(functools.partial(lambda key, n: None, key=API_KEY, n=1))
