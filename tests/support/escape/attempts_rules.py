"""Known ways around checkers of source text. No rules are on here: the kernel alone must hold."""

# ruff: noqa: UP030, UP032  (an attempt ends at once, and its crude ways are the point)

from __future__ import annotations

import sys

from cenote_security.attacks.escape_attempt import Family
from cenote_security.attacks.inside_unsafe import World

RULES = Family("rule bypasses")
_REFUSED = ("ENOENT", "EACCES")


@RULES.attempt("a module behind a module, smolagents CVE-2025-5120", *_REFUSED)
def reach_os_through_random(world: World) -> object:
    import random

    return open(random._os.path.join(world.secret)).read()


@RULES.attempt("subclasses of object, smolagents CVE-2025-9959", *_REFUSED)
def climb_from_a_tuple(world: World) -> object:
    for kind in ().__class__.__base__.__subclasses__():
        if kind.__name__ == "catch_warnings":
            builtins = kind()._module.__builtins__
            return builtins["open"](world.secret).read()
    raise LookupError


@RULES.attempt("the runtime's own modules, n8n CVE-2025-68668", *_REFUSED)
def go_through_the_runtime(world: World) -> object:
    return sys.modules["cenote_worker.jail.worker"].os.open(world.secret, 0)


@RULES.attempt("an exception's object, n8n CVE-2026-0863", *_REFUSED)
def take_the_object_of_an_error(world: World) -> object:
    import random

    try:
        "{0._os.nothing_of_this_name}".format(random)
    except AttributeError as error:
        return error.obj.open(world.secret, 0)
    raise LookupError


@RULES.attempt("a frame of a generator, RestrictedPython CVE-2023-37271", *_REFUSED)
def climb_from_a_generator(world: World) -> object:
    holder = []
    holder.append(holder[0].gi_frame.f_back for _ in [1])
    frame = next(holder[0])
    return frame.f_builtins["open"](world.secret).read()


@RULES.attempt("format strings, RestrictedPython CVE-2023-41039", *_REFUSED)
def read_attributes_by_format(world: World) -> object:
    import random

    said = "{0._os.environ}".format(random)
    return open(world.secret + said[:0]).read()


@RULES.attempt("string.Formatter, RestrictedPython CVE-2024-47532", *_REFUSED)
def get_a_field_by_formatter(world: World) -> object:
    import random
    import string

    module, _ = string.Formatter().get_field("0._os", (random,), {})
    return module.open(world.secret, 0)


@RULES.attempt("try/except*, RestrictedPython CVE-2025-22153", *_REFUSED)
def go_through_an_exception_group(world: World) -> object:
    found: list[object] = []
    exec(
        f"try:\n    open({world.secret!r})\nexcept* OSError as group:\n    found.append(group.exceptions[0])",
        None,
        locals(),
    )
    raise found[0]


@RULES.attempt("patterns that read attributes, match", *_REFUSED)
def read_attributes_by_pattern(world: World) -> object:
    match lambda: 0:
        case object(__globals__=names):
            return names["__builtins__"].open(world.secret).read()


@RULES.attempt("code objects put together by hand", *_REFUSED)
def assemble_a_function(world: World) -> object:
    import ast

    code = compile(ast.parse(f"ope\u006e({world.secret!r}).read()", mode="eval"), "x", "eval")
    return type(lambda: 0)(code, {})()


@RULES.attempt("a pickle as a program", *_REFUSED)
def run_a_pickle(world: World) -> object:
    import pickle

    return pickle.loads(b"cbuiltins\nopen\n(V" + world.secret.encode() + b"\ntR.").read()


@RULES.attempt("pandas.eval and query", *_REFUSED)
def evaluate_by_a_library(world: World) -> object:
    import pandas

    return pandas.read_csv(world.secret, engine="python").query("@__builtins__")


@RULES.attempt("the interpreter's C interface, past every hook", *_REFUSED)
def run_by_the_c_interface(world: World) -> object:
    import ctypes

    ctypes.pythonapi.PyRun_SimpleString(f"print(open({world.secret!r}).read())".encode())
    return open(world.secret).read()
