"""Random programs and patches: made from choices, so that Hypothesis or a seeded generator can make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cenote.harness.artifacts.arrangement import Rearrange
from cenote.harness.patching.patch import Patch

Choose = Callable[[int], int]
"""A number below the given one."""

PRELUDE = """
a, i, j = 1, 2, 0
b, l, m = [1, 2], [], [[0]]
c, d = {'k': [3]}, 'text'
def f(): return len(b)
def g(v=[]):
    v.append(1)
    return len(v)
class K:
    items = []
    def add(self, value): self.items.append(value)
    def size(self): return len(self.items) + len(l)
class P:
    def __init__(self): self.q = []
    def put(self, value): self.q.append(value)
o, p = K(), P()
"""

# i: a name of a number, l: of a list, x, y, z: any name; n, m: numbers.
STATEMENTS = (
    *("{i} = {n}", "{i} = {n}", "{i} = {i2} + {n}", "{i} = len({l})", "{i} += 1"),
    *("{l} = [{n}, {m}]", "{l} = [{i}, {n}]", "{l} = list({l2})", "{l}.append({i})", "{l}.append({n})"),
    *("{l} += [{n}]", "{l} = {l2}", "{l}.append({l2})", "{l} = [{l2}, {l2}]", "{l}[0] = {n}"),
    *("{i} = len({l}) + len({l2})", "show({i})", "show({l})", "if {i} == {n}: {i2} = {m}"),
    *("{x} = {n}", "{x} = {y}", "{x} = [{y}, {z}]", "{x} = list({y})", "{x}.append({y})", "{x}[0] = {y}"),
    *("c['k'] = {y}", "{x} = {{'k': {y}}}", "{x} = {y}[0]", "{x} = {x}", "{x} = len({y})", "del {x}"),
    *("{x} = str({y} == {n})", "show({x})", "show([{x}, {y}])", "show({x} is {y})"),
    *("def f(): return {y}", "def f(): return len({l}) + {n}", "def f(): {l}.append({n})"),
    *("def f():\n    global {y}\n    {y} = {n}", "def f(v={y}):\n    v.append({n})\n    return v"),
    *("{x} = f()", "f()", "{i} = g()", "f({y})", "{x} = f"),
    "def make():\n    n = [{n}]\n    def up():\n        n[0] += 1\n        return n[0]\n    return up\ng = make()",
    "def make(n={n}):\n    def get(): return n\n    def put(v):\n        nonlocal n\n        n = v\n"
    "    return get, put\ng, f = make()",
    "class K:\n    items = {l}\n    def add(self, value): self.items.append(value)\n    def size(self): return {n}",
    *(
        "o = K()",
        "o.add({y})",
        "o.q = {y}",
        "{x} = o.q",
        "K.items = {l}",
        "{i} = o.size()",
        "{x} = o.size",
        "{x} = o",
    ),
    *("p = P()", "p.put({i})", "{l} = p.q", "p.q = {l}", "{l} = list(p.q)"),
    *("write('p', {i})", "write('q', {n})", "{i} = len(read('p'))", "{x} = read('q')", "remove('p')"),
    *(
        "{i} = rand()",
        "{i} = rand()",
        "seed({n})",
        "{i} = pure({n})",
        "{x} = external({n})",
        "{x} = external({i})",
    ),
    *("raise ValueError({n})", "{x} = stream()", "{x} = take({y})", "anything('{x} = {n}')", "{x} = clock()"),
)

NUMBERS = ("a", "i", "j")
LISTS = ("b", "l", "m")
NAMES = (*NUMBERS, *LISTS, "c", "d", "e")


def statement(choose: Choose) -> str:
    template = STATEMENTS[choose(len(STATEMENTS))]
    x, y, z = (NAMES[choose(len(NAMES))] for _ in range(3))
    i, i2 = (NUMBERS[choose(len(NUMBERS))] for _ in range(2))
    l, l2 = (LISTS[choose(len(LISTS))] for _ in range(2))  # noqa: E741  (as in the templates)
    return template.format(x=x, y=y, z=z, i=i, i2=i2, l=l, l2=l2, n=choose(3), m=choose(3))


def step(choose: Choose) -> str:
    return "\n".join(statement(choose) for _ in range(1 + choose(3)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A step without code: a client writes a file. kept: the record has its content."""

    path: str
    text: str
    kept: bool


def with_uploads(choose: Choose, codes: Sequence[str]) -> list[str | Upload]:
    """The same steps, with uploads after the first; all of them kept, or sometimes none."""
    steps: list[str | Upload] = [*codes]
    kept = choose(5) > 0
    for _ in range(choose(4)):
        new = Upload(path=("p", "q")[choose(2)], text=str(choose(3)), kept=kept)
        steps.insert(1 + choose(len(steps)), new)
    return steps


def program(choose: Choose) -> list[str]:
    return [PRELUDE, *(step(choose) for _ in range(2 + choose(7)))]


def patch(choose: Choose, codes: Sequence[str | Upload]) -> Patch:
    number = 1 + choose(len(codes))
    code = codes[number - 1]
    if isinstance(code, Upload):
        return patch_of_upload(choose, number)
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


def patch_of_upload(choose: Choose, number: int) -> Patch:
    """An upload has no code to replace: it is removed, or moved to an earlier place."""
    if choose(2):
        return Patch.remove_step(number)
    moved = number, 1 + choose(number - 1), "the patch puts it there"
    return Patch(changes=(Rearrange(moved=(moved,)),))
