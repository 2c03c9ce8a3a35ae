"""What running a piece of code can affect, according to its bytecode.

Bytecode and not the symbol table: `x += 1` loads `x`, which a symbol table calls a local name that is assigned.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from opcode import hasjrel, opmap
from types import CodeType
from typing import Final

from cenote_worker.jail.tracking.code.instructions import catches, instructions
from cenote_worker.jail.tracking.code.sql_queries import METHODS, SqlAccess, ask_of, speaks_of_sequences
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_KEPT = 5_000
"""Code objects whose facts are remembered."""

_WORD: Final = re.compile(r"[^\W\d]\w*")
_OPTIMIZED = 0x1  # in functions and comprehensions: their own names are fast locals
_CALL = opmap["CALL"]
_IMPORT = opmap["IMPORT_NAME"]
_FROM = opmap["IMPORT_FROM"]
_EXTENDED: Final = opmap["EXTENDED_ARG"]
_BINDS = opmap["STORE_NAME"]
_MAKE = opmap["MAKE_FUNCTION"]
_CONST = opmap["LOAD_CONST"]


def _codes(*names: str) -> frozenset[int]:
    return frozenset(opmap[name] for name in names if name in opmap)


_LOADS = _codes("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL")
_STORES = _codes("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL")
_DELETES = _codes("DELETE_NAME", "DELETE_GLOBAL")
_OWN_NAMES = _codes("STORE_NAME", "DELETE_NAME")
_ATTRIBUTES = _codes("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_ATTRIBUTE_STORES = _codes("STORE_ATTR", "DELETE_ATTR")
_CALLS = _codes("CALL", "CALL_FUNCTION_EX", "CALL_KW")
_SUBSCRIPT_STORES = _codes("STORE_SUBSCR", "DELETE_SUBSCR")
_FORMATS = _codes("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC")
_SIMPLE = _codes("LOAD_CONST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF")
_NAMING = _LOADS | _STORES | _ATTRIBUTES | _ATTRIBUTE_STORES | {_IMPORT}
_SILENT = _codes("PUSH_NULL", "PRECALL", "SET_FUNCTION_ATTRIBUTE", "NOP", "RESUME")
_SHIFT: Final = {opmap["LOAD_GLOBAL"]: 1}
"""How many low bits of an argument are flags, not part of the name's index."""

if (
    "LOAD_METHOD" not in opmap or "LOAD_SUPER_ATTR" in opmap
):  # from 3.12 on a method is an attribute with a flag
    _SHIFT[opmap["LOAD_ATTR"]] = 1
if "LOAD_SUPER_ATTR" in opmap:
    _SHIFT[opmap["LOAD_SUPER_ATTR"]] = 2
_FORWARD = frozenset(hasjrel) - {code for name, code in opmap.items() if "BACKWARD" in name}
_NEVER = 1 << 62
_STAR = opmap.get("IMPORT_STAR", -1)
_BY_TEXT: Final = frozenset(
    ("getattr", "hasattr", "attrgetter", "methodcaller", "__getattribute__", "__getattr__")
)
"""Functions that are given the name of an attribute as a text."""
_INTRINSIC = opmap.get("CALL_INTRINSIC_1", -1)
_INTRINSIC_STAR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about code and all code defined in it that may run with it; `|` combines two pieces in order.

    loads, stores: global names; a deletion is both. deletes: those deleted. attributes: names of attributes read.
    sets: those set or deleted. chains: dotted names that begin with a global one, such as `np.random.rand`; with `()`
    when called without arguments, `=` when set or deleted. imports: modules. star: there is a `from m import *`.
    first: names bound before they are read. within: global names read by functions and classes defined in it.
    on_results: it sets something on, or in, the result of a call. submodules: imports from packages, by dotted names,
    some of which may be no modules. texts: those of the attributes that occur in strings. asks: places that may query
    a database. sequences: a string mentions sequences of a database.
    """

    loads: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()
    chains: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    star: bool = False
    first: frozenset[str] = frozenset()
    within: frozenset[str] = frozenset()
    on_results: bool = False
    submodules: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    asks: frozenset[SqlAccess] = frozenset()
    sequences: bool = False
    deletes: frozenset[str] = frozenset()

    def __or__(self, other: Facts) -> Facts:
        if other is NOTHING or self is NOTHING:  # most values have none: this is the usual case
            return self if other is NOTHING else other
        return Facts(
            loads=self.loads | other.loads,
            stores=self.stores | other.stores,
            attributes=self.attributes | other.attributes,
            sets=self.sets | other.sets,
            chains=self.chains | other.chains,
            imports=self.imports | other.imports,
            star=self.star or other.star,
            within=self.within | other.within,
            on_results=self.on_results or other.on_results,
            submodules=self.submodules | other.submodules,
            texts=self.texts | other.texts,
            asks=self.asks | other.asks,
            sequences=self.sequences or other.sequences,
            deletes=self.deletes | other.deletes,
            first=(self.first | (other.first - self.loads)) - (other.loads - other.first - self.first),
        )


NOTHING: Final = Facts()
"""Facts about an object that runs no code."""

_Steps = list[tuple[int, int, int]]


@dataclass(slots=True)
class _Scan:
    """Facts about one code object. deferred: what is defined under a name and runs only if that name is used.

    met: names that inner code has read so far.
    """

    loads: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    sets: set[str] = field(default_factory=set)
    chains: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    star: bool = False
    on_results: bool = False
    submodules: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    asks: set[SqlAccess] = field(default_factory=set)
    sequences: bool = False
    deletes: set[str] = field(default_factory=set)
    first: set[str] = field(default_factory=set)
    within: set[str] = field(default_factory=set)
    met: set[str] = field(default_factory=set)
    inner: list[Facts] = field(default_factory=list)
    deferred: dict[str, Facts] = field(default_factory=dict)

    def own(self) -> Facts:
        """What runs with it: inner code is included, but binds nothing first."""
        for inner in self.inner:
            self._include(inner)
        return Facts(
            loads=frozenset(self.loads), stores=frozenset(self.stores), attributes=frozenset(self.attributes),
            sets=frozenset(self.sets), chains=frozenset(self.chains), imports=frozenset(self.imports), star=self.star,
            within=frozenset(self.within), on_results=self.on_results,
            submodules=frozenset(self.submodules), texts=frozenset(self.texts), first=frozenset(self.first),
            asks=frozenset(self.asks), sequences=self.sequences,
            deletes=frozenset(self.deletes),
        )  # fmt: skip

    def _include(self, inner: Facts) -> None:
        self.loads |= inner.loads
        self.stores |= inner.stores
        self.attributes |= inner.attributes
        self.sets |= inner.sets
        self.chains |= inner.chains
        self.imports |= inner.imports
        self.star = self.star or inner.star
        self.within |= inner.within
        self.on_results = self.on_results or inner.on_results
        self.submodules |= inner.submodules
        self.texts |= inner.texts
        self.asks |= inner.asks
        self.sequences = self.sequences or inner.sequences
        self.deletes |= inner.deletes


_known: OrderedDict[int, tuple[CodeType, Facts]] = OrderedDict()


def facts_of(code: CodeType) -> Facts:
    """Facts about a function's code: all that calling it can run, nested functions included."""
    known = _known.get(id(code))
    if known is not None and known[0] is code:
        return known[1]
    scan = _scan(code, in_class=False)
    facts = scan.own()
    for inner in scan.deferred.values():
        facts |= inner
    _known[id(code)] = code, facts
    if len(_known) > _KEPT:
        _known.popitem(last=False)
    return facts


def looked_up(code: CodeType) -> frozenset[str]:
    """Equal to `facts_of(code).loads`, in a fraction of the time: for code that runs once, such as a text that a
    library has made."""
    every = list(_with_inner(code))
    if any("__annotations__" in each.co_names for each in every):
        return facts_of(code).loads  # code that makes a class may look up the names in texts
    return frozenset().union(*map(_own_loads, every))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _with_inner(constant)


def _own_loads(code: CodeType) -> Iterator[str]:
    raw = code.co_code if code.co_names else b""
    operations = raw[::2]
    if _EXTENDED in operations:
        yield from (
            code.co_names[argument >> _SHIFT.get(operation, 0)]
            for operation, argument, _ in instructions(code)
            if operation in _LOADS
        )
        return
    for operation in _LOADS:
        place = operations.find(operation)
        while place >= 0:
            yield code.co_names[raw[2 * place + 1] >> _SHIFT.get(operation, 0)]
            place = operations.find(operation, place + 1)


def facts_of_cell(*parts: CodeType | None) -> Facts:
    """Facts about the parts of a cell, run in order: a function counts only if the cell names it."""
    facts, deferred = NOTHING, dict[str, Facts]()
    for part in parts:
        if part is not None:
            scan = _scan(part, in_class=False)
            facts |= scan.own()
            for name, inner in scan.deferred.items():
                deferred[name] = deferred[name] | inner if name in deferred else inner
    while used := deferred.keys() & facts.loads:
        for name in used:
            inner = deferred.pop(name)
            facts = replace(facts | inner, first=facts.first - inner.loads)
    return facts


def _scan(code: CodeType, *, in_class: bool) -> _Scan:
    scan = _Scan(sequences=any(type(each) is str and speaks_of_sequences(each) for each in code.co_consts))
    steps = list(instructions(code))
    unsure = in_class or code.co_flags & _OPTIMIZED or (code.co_exceptiontable and catches(code, steps))
    chain, package, sure_from = "", "", _NEVER if unsure else 0
    for index, (operation, argument, offset) in enumerate(steps):
        if operation in _FORWARD:
            sure_from = max(sure_from, steps[index + 1][2] + 2 * argument)
        elif operation in _NAMING:
            name = code.co_names[argument >> _SHIFT.get(operation, 0)]
            if (
                operation == _BINDS
                and offset >= sure_from
                and name not in scan.loads
                and name not in scan.met
            ):
                scan.first.add(name)
            _note(scan, operation, name, in_class)
            if operation == _IMPORT:
                package = name
                scan.submodules.update((name,) if "." in name else ())
            elif operation == _FROM:
                scan.submodules.add(f"{package}.{name}")
            elif name in METHODS and (ask := ask_of(code, steps, index, name)):
                scan.asks.add(ask)
            chain = _extended(scan, chain, operation, name)
        elif operation == _CONST and type(code.co_consts[argument]) is CodeType:
            _note_inner(scan, code, code.co_consts[argument], steps[index + 1 : index + 9])
        elif operation == _CONST and in_class and _annotates(code, steps[index + 1]):
            scan.loads.update(_WORD.findall(str(code.co_consts[argument])))
        elif operation in _CALLS:
            scan.on_results = scan.on_results or _is_set_on(steps[index + 1 : index + 5])
            if operation == _CALL and argument == 0 and chain:
                scan.chains.add(f"{chain}()")
        elif operation == _STAR or (operation == _INTRINSIC and argument == _INTRINSIC_STAR):
            scan.star = True
        if operation not in _SILENT and operation not in _NAMING:
            chain = ""
    if code.co_flags & _OPTIMIZED:
        scan.chains -= {"locals()", "vars()"}  # they are a function's own names
    if _speaks_of_main(code) or _imports_any(code, steps):
        scan.imports.add("__main__")
    if not _BY_TEXT.isdisjoint(code.co_names):
        scan.texts.update(_texts(code.co_consts))
        scan.attributes |= scan.texts
    return scan


def _texts(constants: tuple[object, ...]) -> Iterator[str]:
    """Parts of strings that may be names of attributes, also of strings in tuples."""
    for constant in constants:
        if type(constant) is str:
            yield from filter(str.isidentifier, constant.split("."))
        elif isinstance(constant, tuple | frozenset):
            yield from _texts(tuple(constant))


def _is_set_on(following: _Steps) -> bool:
    """Whether an attribute or item is set on the value just before, or on an attribute of it."""
    rest = [step[0] for step in following]
    while rest and rest[0] in _ATTRIBUTES:
        rest.pop(0)
    return rest[:1] != [] and (
        rest[0] in _ATTRIBUTE_STORES or (rest[0] in _SIMPLE and not _SUBSCRIPT_STORES.isdisjoint(rest[1:2]))
    )


def _annotates(code: CodeType, following: tuple[int, int, int]) -> bool:
    """Whether a constant is stored as an annotation: code that makes the class may look up the names in the text."""
    return following[0] in _LOADS and code.co_names[following[1]] == "__annotations__"


def _speaks_of_main(code: CodeType) -> bool:
    """Whether it mentions `__main__` in a string, to something that imports it or looks a name up there. `"__main__"`
    alone is what `__name__` is compared with."""
    if "import_module" in code.co_names and ("__main__" in code.co_consts or "__name__" in code.co_names):
        return True
    texts = (constant for constant in code.co_consts if type(constant) is str)
    return any("__main__" in text and text != "__main__" for text in texts)


def _imports_any(code: CodeType, steps: _Steps) -> bool:
    """Whether it imports a module by a name that is not in the code, nor its beginning."""
    if "import_module" not in code.co_names:
        return False
    return any(
        code.co_names[argument >> _SHIFT.get(operation, 0)] == "import_module"
        and not _begins_there(code, [step for step in steps[index + 1 : index + 9] if step[0] not in _SILENT])
        for index, (operation, argument, _) in enumerate(steps)
        if operation in _LOADS | _ATTRIBUTES and operation != _FROM
    )


def _begins_there(code: CodeType, following: _Steps) -> bool:
    """Whether the next call's argument is a constant string, or a string that begins with a constant."""
    text = code.co_consts[following[0][1]] if following[0][0] == _CONST else None
    if type(text) is not str:
        return False
    formats = following[1][0] in _SIMPLE and following[2][0] in _FORMATS
    return following[1][0] in _CALLS or (formats and not "__main__".startswith(text))


def _note(scan: _Scan, operation: int, name: str, in_class: bool) -> None:
    if operation in _LOADS:
        scan.loads.add(name)
    if operation in _DELETES:
        scan.deletes.add(name)
    if operation in _STORES and not (in_class and operation in _OWN_NAMES):
        scan.stores.add(name)
    elif operation in _ATTRIBUTES:
        scan.attributes.add(name)
    elif operation in _ATTRIBUTE_STORES:
        scan.sets.add(name)
    elif operation == _IMPORT:
        scan.imports.add(name)


def _extended(scan: _Scan, chain: str, operation: int, name: str) -> str:
    if operation in _LOADS:
        chain = name
    elif operation in _ATTRIBUTES and chain:
        chain = f"{chain}.{name}"
    elif operation in _ATTRIBUTE_STORES and chain:
        scan.chains.add(f"{chain}.{name}=")
        return ""
    else:
        return ""
    scan.chains.add(chain)
    return chain


def _note_inner(scan: _Scan, outer: CodeType, code: CodeType, following: _Steps) -> None:
    """Records a nested code object. following: the instructions after the one that loads it."""
    scan.within |= facts_of(code).loads
    after = [step for step in following if step[0] not in _SILENT]
    target = _stored(outer, after[1:2])
    if outer.co_flags & _OPTIMIZED:
        scan.inner.append(facts_of(code))
    elif after[:1] and after[0][0] == _MAKE and target and code.co_flags & _OPTIMIZED:
        scan.deferred[target] = scan.deferred.get(target, NOTHING) | facts_of(code)
    elif not code.co_flags & _OPTIMIZED:
        body = _scan(code, in_class=True)
        _run(scan, body.own())
        _note_methods(scan, body, _class_name(outer, after))
    else:
        _run(scan, facts_of(code))


def _run(scan: _Scan, inner: Facts) -> None:
    scan.inner.append(inner)
    scan.met |= inner.loads


def _note_methods(scan: _Scan, body: _Scan, name: str) -> None:
    for methods in body.deferred.values():
        if name:
            scan.deferred[name] = scan.deferred.get(name, NOTHING) | methods
        else:
            _run(scan, methods)


def _class_name(outer: CodeType, after: _Steps) -> str:
    """The name of a class without bases, keywords and decorators, whose creation runs none of its methods."""
    if [step[0] for step in after[:3]] == [_MAKE, _CONST, _CALL] and after[2][1] == 2:
        return _stored(outer, after[3:4])
    return ""


def _stored(code: CodeType, steps: _Steps) -> str:
    return code.co_names[steps[0][1]] if steps and steps[0][0] in _STORES else ""
