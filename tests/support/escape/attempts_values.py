"""Values and arguments that attack the process that takes them out of a jail. Each attempt leaves one in `trap`."""

from __future__ import annotations

import os
import sys
import time

from cenote_security.attacks.escape_attempt import Family
from cenote_security.attacks.inside_unsafe import World

VALUES = Family("hostile values")


@VALUES.attempt("a pickle that runs a command, __reduce__")
def reduce_to_a_command(world: World) -> object:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"echo changed > {world.secret}; kill -STOP {world.bystander}",)

    return Trap()


@VALUES.attempt("an exception that reduces to a command")
def reduce_an_exception(world: World) -> object:
    class Trap(Exception):
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"echo changed > {world.secret}",)

    return Trap("x")


@VALUES.attempt("a class that poses as a known one")
def pose_as_a_known_class(world: World) -> object:
    kind = type(
        "SandboxPolicy", (), {"__module__": "cenote_security.policy", "__reduce__": lambda s: (os.abort, ())}
    )
    return kind()


@VALUES.attempt("a class that says it is int, __class__")
def say_it_is_a_number(world: World) -> object:
    class Trap:
        __class__ = int

        def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
            return os.abort, ()

    return Trap()


@VALUES.attempt("a list that holds itself")
def make_a_cycle(world: World) -> object:
    trap: list[object] = []
    trap.append(trap)
    return trap


@VALUES.attempt("a list twenty thousand deep")
def make_a_deep_list(world: World) -> object:
    trap: list[object] = []
    for _ in range(20_000):
        trap = [trap]
    return trap


@VALUES.attempt("a dict twenty thousand deep")
def make_a_deep_dict(world: World) -> object:
    trap: dict[str, object] = {}
    for _ in range(20_000):
        trap = {"x": trap}
    return trap


@VALUES.attempt("a lattice: 2**60 values in sixty lists, a billion laughs")
def make_a_lattice(world: World) -> object:
    trap: list[object] = []
    for _ in range(60):
        trap = [trap, trap]
    return trap


@VALUES.attempt("a length that lies")
def lie_about_a_length(world: World) -> object:
    class Trap(list):
        def __len__(self) -> int:
            return 2**62

        def __iter__(self) -> object:
            return iter(lambda: 0, 1)

    return Trap([1])


@VALUES.attempt("a dict whose items have no end")
def lie_about_items(world: World) -> object:
    class Trap(dict):
        def items(self) -> object:
            return ((str(n), n) for n in iter(int, 1))

    return Trap(a=1)


@VALUES.attempt("a text that is not text")
def make_broken_text(world: World) -> object:
    return ["\ud800", "\x1b]0;owned\x07\x1b[2J", "\u202egnp.exe", "a\0b", "\uffff" * 10]


@VALUES.attempt("a number of a million digits")
def make_a_huge_number(world: World) -> object:
    return 10**1_000_000


@VALUES.attempt("keys that all collide, CVE-2012-1150's kind")
def make_colliding_keys(world: World) -> object:
    return {n * (2**61 - 1): n for n in range(2_000)}


@VALUES.attempt("an array of objects")
def make_an_array_of_objects(world: World) -> object:
    import numpy

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"echo changed > {world.secret}",)

    return numpy.array([Trap(), Trap()], dtype=object)


@VALUES.attempt("an array with strides that leave it")
def make_an_array_beyond_its_memory(world: World) -> object:
    import numpy

    return numpy.lib.stride_tricks.as_strided(numpy.zeros(1), shape=(1 << 20,), strides=(0,))


@VALUES.attempt("an array that claims to be vast")
def make_a_vast_array(world: World) -> object:
    import numpy

    return numpy.broadcast_to(numpy.zeros(1, dtype="u1"), (1 << 40,))


@VALUES.attempt("a data class with a loop in __post_init__")
def make_a_malicious_data_class(world: World) -> object:
    import dataclasses

    @dataclasses.dataclass
    class Trap:
        x: int

        def __post_init__(self) -> None:
            if "cenote.runtime" in sys.modules:
                while True:
                    time.sleep(1)

    return Trap(1)


@VALUES.attempt("attributes that raise SystemExit when they are looked at")
def raise_on_every_look(world: World) -> object:
    class Trap:
        def __getattribute__(self, name: str) -> object:
            raise SystemExit(name)

    return Trap()


@VALUES.attempt("a repr and a str that raise, loop and shout")
def raise_on_repr(world: World) -> object:
    class Trap:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

        __str__ = __format__ = __dir__ = __repr__

    return Trap()


@VALUES.attempt("a metaclass that lies about names")
def lie_about_a_name(world: World) -> object:
    class Meta(type):
        __name__ = property(lambda cls: "x" * (1 << 20))
        __module__ = property(lambda cls: 1 / 0)

    type.__setattr__(Meta, "__qualname__", "\x1b[2J" * 10_000)
    return Meta("\x1b[2J" * 10_000, (), {})()


@VALUES.attempt("a shape that is no shape")
def lie_about_a_shape(world: World) -> object:
    class Trap:
        shape = property(lambda self: (10**100, "x", self))
        dtype = columns = nbytes = property(lambda self: 1 / 0)

    return Trap()


@VALUES.attempt("a generator, a module, a frame, a lock, an open file")
def hand_out_live_things(world: World) -> object:
    import threading

    return [(n for n in ()), sys, sys._getframe(), threading.Lock(), open("/dev/null")]


@VALUES.attempt("code and functions")
def hand_out_code(world: World) -> object:
    return [compile(f"open({world.secret!r}, 'w')", "x", "exec"), lambda: os.abort()]


@VALUES.attempt("a date beyond the calendar")
def make_a_strange_date(world: World) -> object:
    import datetime

    class Zone(datetime.tzinfo):
        def utcoffset(self, when: object) -> datetime.timedelta:
            os.abort()
            return datetime.timedelta()

    return datetime.datetime.max.replace(tzinfo=Zone())
