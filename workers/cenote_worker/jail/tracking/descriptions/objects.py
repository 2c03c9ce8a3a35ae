"""Functions, classes, modules, instances and sets as descriptions.

A set is described by its members in iteration order, and by where more will go. Two sets with the same order may
differ in order when more is added, if members have other slots, slots of removed members remain, or the table has
another size; and `pop` continues from its last position.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, Final

import xxhash

from cenote_worker.execution.trace import WITH_TRACEBACK, module, name
from cenote_worker.jail.tracking.code.bytecode_effects import Facts, facts_of
from cenote_worker.jail.tracking.code.instructions import said_anywhere
from cenote_worker.jail.tracking.code.opaque_setters import sets_by_name
from cenote_worker.jail.tracking.descriptions import extension_objects
from cenote_worker.jail.tracking.descriptions.classes import (
    ABSTRACT,
    Classes,
    InstanceLayout,
    answers_of,
    attributes,
    can_be_set_on,
    is_class,
    module_of,
    mro,
    public_name,
    qualname,
    registered_with,
)
from cenote_worker.jail.tracking.descriptions.graph import ATOMS, ObjectGraph
from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import identities_of, packed
from cenote_worker.process.memory_unsafe import IS_READABLE, REMOVED, Head, head_of, table_of
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_MANY: Final = 64
"""Slots from which on a table is described as a whole."""


def members(graph: ObjectGraph, value: Any, kind: Any) -> object:
    """Describes a set or frozenset. kind: which of the two it is, or is derived from."""
    told = (kind.__sizeof__(value), graph.tokens(kind.__iter__(value)))
    layout = _layout(head_of(value)) if IS_READABLE else None
    return (*told, layout) if layout else told


def _layout(head: Head) -> object:
    """None for most small sets: their members have the slots of their hashes, which differ in another process."""
    if not head.filled:
        return head.finger
    words = table_of(head)
    hashes = words[1::2]
    if head.mask >= _MANY:
        # For a member whose hash is zero this says as much: it has the first place on its way that looks free.
        return (head.finger, xxhash.xxh3_128_hexdigest(hashes.tobytes()))
    mask = head.mask
    placed = enumerate(zip(words[::2].tolist(), hashes.tolist(), strict=True))
    told = [
        (slot, number)
        for slot, (member, number) in placed
        if member and (number & mask != slot or number == REMOVED)
    ]
    return (head.finger, told) if told or head.finger else None


_UNSEEN: Final = (
    "asyncio", "threading", "_thread", "concurrent", "multiprocessing", "socket", "selectors", "subprocess", "ctypes",
    "_asyncio", "_contextvars", "ssl", "signal",
)  # fmt: skip
"""Modules whose objects lead to more than their references show."""

_SKIPPED: Final = frozenset(
    (
        "__dict__",
        "__weakref__",
        ABSTRACT,
        "__module__",
        "__firstlineno__",
        "__static_attributes__",
        "__slotnames__",
    )
)
NOWHERE: Final = "*"
"""For code whose globals belong to no module."""

_TELLS_LINES: Final = Facts(attributes=frozenset(("lineno",)))
"""A recorded warning contains its line number."""

_codes: OrderedDict[int, tuple[CodeType, str]] = OrderedDict()
_bases = type.__dict__["__bases__"].__get__
_name = type.__dict__["__name__"].__get__
_modules = sys.modules
_is_watched, _references = weakref.getweakrefcount, weakref.getweakrefs
_referred = weakref.ReferenceType.__call__
_referents = gc.get_referents


def code_digest(code: CodeType) -> str:
    """A digest of what the code does, without its position and line numbers."""
    known = _codes.get(id(code))
    if known is not None and known[0] is code:
        return known[1]
    said, held = said_anywhere(code)
    constants = [
        code_digest(constant) if type(constant) is CodeType else _constant(constant) for constant in held
    ]
    parts = (
        said, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags,
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_qualname, code.co_exceptiontable,
    )  # fmt: skip
    digest = xxhash.xxh3_128_hexdigest(packed(parts))
    _codes[id(code)] = code, digest
    if len(_codes) > 5_000:
        _codes.popitem(last=False)
    return digest


def _constant(constant: object) -> object:
    """A set of strings has another order in another process, which a program cannot see for a constant."""
    if type(constant) is frozenset:
        return sorted(packed(item) for item in constant)
    return constant


class Objects:
    """Handlers that have to know whose classes are."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes

    def function(self, graph: ObjectGraph, value: FunctionType) -> object:
        home = home_of(graph, value.__globals__)
        if home is None:
            return self._library_function(graph, value)
        if home == NOWHERE:
            return self._made_function(graph, value)
        if value is not graph.root and graph.namespace.get(value.__name__) is value:
            return _by_name(graph, value.__name__)
        graph.changeable(value)
        graph.code(value.__code__, home)
        if home:
            graph.refer(module(home))
        cells = value.__closure__ or ()
        return (
            "function", code_digest(value.__code__), value.__qualname__, value.__name__,
            graph.token(value.__module__), value.__doc__ and str(value.__doc__),
            graph.token(value.__defaults__), graph.token(value.__kwdefaults__), graph.tokens(cells),
            graph.token(value.__annotations__), graph.inline(value.__dict__) if value.__dict__ else None,
        )  # fmt: skip

    def _library_function(self, graph: ObjectGraph, value: FunctionType) -> object:
        """Describes it by its name, and by what a user has passed into it: a decorator's function, a callback."""
        home = str(value.__globals__.get("__name__", ""))
        graph.tool(home.partition(".")[0], value.__qualname__)
        if sets_by_name(value.__name__):
            graph.packages.add(home)
        held = [
            graph.tokens(value.__closure__ or ()),
            graph.inline(value.__dict__) if value.__dict__ else None,
        ]
        code = value.__code__
        if code.co_filename.startswith("<") and not code.co_filename.startswith("<frozen "):
            # It was compiled from text that a call may have brought, as `dataclasses.make_dataclass` does.
            held += [code_digest(code), graph.tokens((value.__defaults__, value.__kwdefaults__))]
        return ("library", home, value.__qualname__, held)

    def _made_function(self, graph: ObjectGraph, value: FunctionType) -> object:
        """Describes a function that a library has compiled from text, as for a named tuple, with globals that are no
        module's."""
        graph.changeable(value)
        graph.changeable(value.__globals__)
        used = sorted(facts_of(value.__code__).loads & value.__globals__.keys())
        held = [value.__globals__[key] for key in used]
        held += [value.__defaults__, value.__kwdefaults__, *(value.__closure__ or ())]
        return (code_digest(value.__code__), used, graph.tokens(held), graph.inline(value.__dict__))

    def cls(self, graph: ObjectGraph, value: type) -> object:
        if self._classes.is_library(value, graph.own_modules):
            home = module_of(value).partition(".")[0]
            if home != "builtins":  # its functions cannot be reached from its classes
                graph.packages.add(home)
            if can_be_set_on(value):
                graph.classes[id(value)] = value
            return ("library", module_of(value), qualname(value))
        home = module_of(value)
        if home in graph.own_modules:
            graph.refer(module(home))
        own = attributes(value)
        simple = qualname(value)
        if value is not graph.root and graph.namespace.get(simple) is value:
            return _by_name(graph, simple)
        graph.changeable(value)
        graph.finalizes = graph.finalizes or "__del__" in own
        items = {str.__str__(key): item for key, item in own.items()}
        # A class that is rebuilt in another process has its special names at other places; their order doesn't
        # matter.
        body = {key: items[key] for key in sorted(items, key=_special_first) if key not in _SKIPPED}
        return (
            "class", home, simple, _name(value), graph.tokens(_bases(value)),
            graph.token(type(value)), graph.tokens(body.keys()), graph.tokens(body.values()),
            *(self._registered(graph, value) if ABSTRACT in own else ()),
        )  # fmt: skip

    def _registered(self, graph: ObjectGraph, value: type) -> Iterator[object]:
        """The classes registered with an abstract one; and, if user code decides that, the classes that it has been
        asked about, since it is not asked twice."""
        yield graph.tokens(registered_with(value))
        hooks = (attributes(each).get("__subclasshook__") for each in mro(value)[:-1])
        if any(type(hook) is classmethod and _is_of_user(graph, hook.__func__) for hook in hooks):
            known = answers_of(value)
            if any(known):
                graph.stay("it has kept which classes it was asked about")
            yield list(map(graph.tokens, known))

    def module(self, graph: ObjectGraph, value: ModuleType) -> object:
        dotted = str(ModuleType.__getattribute__(value, "__dict__").get("__name__", ""))
        if ModuleType.__getattribute__(value, "__dict__") is graph.namespace:
            graph.out_of_sight("the namespace itself")
            return ("namespace",)
        if graph.own_modules.get(dotted) is value:
            graph.refer(module(dotted))
        graph.packages.add(dotted)
        graph.tool(dotted.partition(".")[0])
        if _modules.get(dotted) is not value:
            graph.out_of_sight("a module that was not imported")
        return ("module", dotted)

    def instance(self, graph: ObjectGraph, value: object) -> object:
        """Describes an instance of a class written in Python, the user's or a library's."""
        cls = type(value)
        if is_class(value):
            return self.cls(graph, value)  # type: ignore[arg-type]
        home = module_of(cls).partition(".")[0]
        graph.packages.add(home)
        if ModuleType in type.__dict__["__mro__"].__get__(cls):
            return self.module(graph, value)  # type: ignore[arg-type]
        if home == "cenote_worker":
            return ("cenote", qualname(cls))
        if home == "matplotlib":
            return _figure(graph, value)
        if home == "warnings":
            graph.facts |= _TELLS_LINES
        if home in _UNSEEN:
            graph.changeable(value)
            graph.out_of_sight(f"a {home}.{qualname(cls)} leads further than can be seen")
            return ("unseen",)
        layout = self._layout(graph, cls)
        if layout.opaque:
            said = extension_objects.description(graph, value)
            return graph.follow(value) if said is None else (graph.token(cls), said)
        graph.changeable(value)
        held = [_slot(graph, getter, value) for _, getter in layout.slots]
        table = layout.table(value) if layout.table is not None else None
        content = _content(graph, layout.content, value) if layout.content is not None else None
        inline = graph.inline(table) if type(table) is dict else graph.token(table)
        return (graph.token(cls), content, held, inline, *mourners(graph, value))

    def instances(self, graph: ObjectGraph, values: list[Any]) -> object:
        """Describes many instances of one class of the namespace together, for less than `instance` takes for each.
        None if some of them have anything but attributes that are plain values."""
        cls = type(values[0])
        if module_of(cls) != "__main__" or ModuleType in mro(cls) or is_class(values[0]):
            return None
        layout = self._layout(graph, cls)
        if layout.opaque or layout.slots or layout.content is not None or layout.table is None:
            return None
        sample = layout.table(values[0])
        if type(sample) is not dict or not ATOMS.issuperset(map(type, sample.values())):
            return None  # most lists with other contents are found out by this one
        del sample  # `alike` counts the references to it
        identities = identities_of(values)
        if len(set(identities)) != len(values):
            return None
        graph.foresee_instances(len(values))
        tables = list(map(layout.table, values))
        if set(map(type, tables)) != {dict} or _is_any_mourned(values):
            return None
        told = graph.alike(cls, identities, tables)
        if told is not None:
            graph.packages.add("__main__")
        return told

    def _layout(self, graph: ObjectGraph, cls: type) -> InstanceLayout:
        known = graph.layouts.get(id(cls))
        if known is None:
            known = graph.layouts[id(cls)] = self._classes.layout(cls)
        return known


def _special_first(key: str) -> str:
    """A sort key that leaves the others in their order."""
    return f"_{key}" if key[:2] == "__" else "a"


def _by_name(graph: ObjectGraph, variable: str) -> object:
    """A function or class that has its own name: its holder depends on that name, and not on its body."""
    graph.refer(name(variable))
    graph.kin.add(variable)
    return ("name", variable)


def _figure(graph: ObjectGraph, value: object) -> object:
    """Figures, their axes and pyplot's state are one large heap of objects that refer to each other."""
    graph.holds[-1] = -1
    graph.unknown("figures are not looked into", quiet=True)
    graph.calling = True
    for reference in _references(value):  # matplotlib has some of its own to each figure
        called = reference.__callback__
        inner = [called, *(_inner(called) if type(called) is FunctionType else ())]
        if any(_is_of_user(graph, each) or type(each) is weakref.finalize for each in inner):
            graph.finalizes = True
    return ("figure",)


def _inner(function: FunctionType) -> Iterator[object]:
    for held in function.__closure__ or ():
        with suppress(ValueError):
            yield held.cell_contents


def _is_of_user(graph: ObjectGraph, called: object) -> bool:
    """Whether it may be user code: anything but a function of a library."""
    if type(called) is FunctionType:
        return home_of(graph, called.__globals__) is not None
    return called is not None and type(called) is MethodType


def home_of(graph: ObjectGraph, table: dict[str, object]) -> str | None:
    """The user's module that code with these globals belongs to, empty for the namespace, None for a library's, or
    NOWHERE."""
    if table is graph.namespace:
        return ""
    dotted = table.get("__name__")
    own = graph.own_modules.get(dotted) if type(dotted) is str else None
    if own is not None and vars(own) is table:
        return str(dotted)
    known = _modules.get(dotted) if type(dotted) is str else None
    return None if known is not None and vars(known) is table else NOWHERE


def _slot(graph: ObjectGraph, getter: Any, value: object) -> object:
    try:
        return (1, graph.token(getter(value)))
    except AttributeError:
        return (0,)


def _content(graph: ObjectGraph, base: type, value: Any) -> object:
    """Describes an instance of a class that is derived from a built-in one."""
    if base in (dict, OrderedDict, defaultdict):
        factory = defaultdict.__dict__["default_factory"].__get__(value) if base is defaultdict else None
        items = OrderedDict.items(value) if base is OrderedDict else dict.items(value)
        return (graph.token(factory), graph.mapping(dict(items)))
    if base in (list, tuple):
        return graph.sequence(list(base.__iter__(value)))
    if base in (set, frozenset):
        return members(graph, value, base)
    if base is deque:
        return (deque.__dict__["maxlen"].__get__(value), graph.sequence(list(deque.__iter__(value))))
    if base is bytearray:
        return graph.memory(memoryview(value), bytearray.__len__(value))
    if base is BaseException:
        return _exception(graph, value)
    if base is SimpleNamespace:
        return None
    return _PLAIN[base](value)


_PLAIN: Final[dict[type, Any]] = {
    int: int.__int__, float: float.__float__, str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    complex: lambda value: (complex.__dict__["real"].__get__(value), complex.__dict__["imag"].__get__(value)),
}  # fmt: skip


def _exception(graph: ObjectGraph, value: BaseException) -> object:
    get = {
        key: BaseException.__dict__[key].__get__
        for key in ("args", "__cause__", "__context__", "__traceback__", "__suppress_context__")
    }
    if get["__traceback__"](value) is not None:
        graph.stays = WITH_TRACEBACK
        graph.out_of_sight(WITH_TRACEBACK)
    own = [_slot(graph, getter, value) for getter in _fields(type(value))]
    told = graph.tokens((get["args"](value), get["__cause__"](value), get["__context__"](value)))
    return told, get["__suppress_context__"](value), own


def _fields(cls: type) -> Iterator[Any]:
    """What built-in exceptions have besides their arguments: the name of a file, the value of a generator."""
    for base in mro(cls):
        if base is BaseException:
            return
        for key, field in attributes(base).items():
            if type(field) in (MemberDescriptorType, GetSetDescriptorType) and key[:2] != "__":
                yield field.__get__


def cell(graph: ObjectGraph, value: CellType) -> object:
    graph.changeable(value)
    try:
        return graph.token(value.cell_contents)
    except ValueError:
        return ("empty",)


def code(graph: ObjectGraph, value: CodeType) -> object:
    """Describes a code object, of which a holder can make a function."""
    graph.code(value, "")
    return (
        code_digest(value),
        value.co_firstlineno,
        value.co_linetable,
    )  # two are equal only at the same position


def method(graph: ObjectGraph, value: MethodType) -> object:
    return (graph.token(value.__func__), graph.token(value.__self__))


def builtin(graph: ObjectGraph, value: BuiltinFunctionType) -> object:
    owner = value.__self__
    home = str(value.__module__)
    graph.tool(public_name(home).partition(".")[0], value.__qualname__)
    held = None if owner is None or type(owner) is ModuleType else graph.token(owner)
    return ("builtin", home, value.__qualname__, held)


def bound_slot(graph: ObjectGraph, value: Any) -> object:
    """A special method of a built-in class, bound to an object."""
    return (value.__name__, graph.token(value.__self__))


def weak(graph: ObjectGraph, value: weakref.ReferenceType[object]) -> object:
    """While its target is alive, that can be changed through the reference."""
    graph.weakly(_referred(value))
    return graph.tokens(held_by(value))


def finalizer(graph: ObjectGraph, value: weakref.finalize[Any, Any]) -> object:
    """Its function and target are in a table of its class."""
    graph.unknown("a weak reference")
    graph.changeable(value)
    graph.finalizes = True
    known = value.peek()
    return None if known is None else graph.tokens(known)


def mourners(graph: ObjectGraph, value: object) -> list[object]:
    """Callbacks of weak references to the object, which run when it goes."""
    found = list[object]()
    for reference in _references(value) if _is_watched(value) else ():
        called = reference.__callback__
        if called is not None:
            graph.finalizes = True
            known = called.peek() if type(called) is weakref.finalize else None
            found.append(graph.token(called) if known is None else graph.tokens(known[1:]))
    return found


def _is_any_mourned(values: list[object]) -> bool:
    if not any(map(_is_watched, values)):
        return False
    watched = [value for value in values if _is_watched(value)]
    return any(each.__callback__ is not None for value in watched for each in _references(value))


def held_by(value: object) -> list[object]:
    """What an object of the interpreter's own holds, found without running code."""
    return _referents(value)
