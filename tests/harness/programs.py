"""Random programs and patches: made of choices, so that Hypothesis or a seeded generator can make them."""

from __future__ import annotations

from collections.abc import Callable

from cenote.harness.patch import Patch

Choose = Callable[[int], int]
"""A number below the one given."""

PRELUDE = """
a, b, c, d = 1, [1, 2], {'k': [3]}, 'text'
def f(): return len(b)
def g(v=[]):
    v.append(1)
    return len(v)
class K:
    items = []
    def add(self, value): self.items.append(value)
    def size(self): return len(self.items) + len(b)
o = K()
"""

STATEMENTS = (
    "{x} = {n}",
    "{x} = {n}",
    "{x} = [{n}, {m}]",
    "{x} = {y}",
    "{x} = [{y}, {z}]",
    "{x} = list({y})",
    "{x}.append({y})",
    "{x}.append({n})",
    "{x}[0] = {y}",
    "{x}['k'] = {y}",
    "{x} = {{'k': {y}}}",
    "{x} = {y}[0]",
    "{x} += [{n}]",
    "{x} = {x}",
    "{x} = len({y})",
    "{x} = str({y} == {n})",
    "del {x}",
    "show({x})",
    "show([{x}, {y}])",
    "show({x} is {y})",
    "if {x} == {n}: {y} = {m}",
    "def f(): return {y}",
    "def f(): return len({y}) + {n}",
    "def f(): {y}.append({n})",
    "def f():\n    global {y}\n    {y} = {n}",
    "def f(v={y}):\n    v.append({n})\n    return v",
    "{x} = f()",
    "f()",
    "{x} = g()",
    "def make():\n    n = [{n}]\n    def up():\n        n[0] += 1\n        return n[0]\n    return up\ng = make()",
    "def make(n={n}):\n    def get(): return n\n    def put(v):\n        nonlocal n\n        n = v\n    return get, put\n"
    "g, f = make()",
    "f({y})",
    "{x} = f",
    "class K:\n    items = {y}\n    def add(self, value): self.items.append(value)\n    def size(self): return {n}",
    "o = K()",
    "o.add({y})",
    "o.q = {y}",
    "{x} = o.q",
    "K.items = {y}",
    "{x} = o.size()",
    "{x} = o.size",
    "{x} = o",
    "write('p', {y})",
    "write('q', {n})",
    "{x} = read('p')",
    "{x} = read('q')",
    "remove('p')",
    "{x} = rand()",
    "seed({n})",
    "{x} = pure({n})",
    "{x} = external({n})",
    "{x} = external({y})",
    "raise ValueError(len({y}))",
    "{x} = stream()",
    "{x} = take({y})",
    "anything('{x} = {n}')",
    "{x} = clock()",
)

NAMES = ("a", "b", "c", "d", "e")


def statement(choose: Choose) -> str:
    template = STATEMENTS[choose(len(STATEMENTS))]
    x, y, z = (NAMES[choose(len(NAMES))] for _ in range(3))
    return template.format(x=x, y=y, z=z, n=choose(3), m=choose(3))


def step(choose: Choose) -> str:
    return "\n".join(statement(choose) for _ in range(1 + choose(3)))


def program(choose: Choose) -> list[str]:
    return [PRELUDE, *(step(choose) for _ in range(2 + choose(7)))]


def patch(choose: Choose, codes: list[str]) -> Patch:
    number = 1 + choose(len(codes))
    code = codes[number - 1]
    kind = choose(6)
    if kind == 0:
        return Patch.insert_step(number, step(choose))
    if kind == 1:
        return Patch.remove_step(number)
    if kind == 2:
        return Patch.replace_step(number, step(choose))
    if kind == 3:
        return Patch.replace_step(number, f"{code}\n{statement(choose)}")
    if kind == 4:
        return Patch.replace_step(number, f"{code}  # the same")
    return Patch.replace_step(number, code.replace(str(choose(3)), str(choose(3))))
