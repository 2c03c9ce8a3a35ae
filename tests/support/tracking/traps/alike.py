"""Changes of one of many instances that are described together, and what makes them differ from each other."""

_MANY = """
class N:
    kind = 1
    def __init__(self, i):
        self.i, self.text, self.zero, self.yes = i, f"n{i}", 0.0, 1
many = [N(i) for i in range(40)]
"""
_NAMED = _MANY + "one = many[30]\n"
_EQUAL = _NAMED + "many[31].__init__(30)\n"
_KEPT = _MANY + "kept = vars(many[30])\n"
_BYTES = _MANY + "for each in many: each.text = each.text.encode()\ndel each\n"
_KEYED = _MANY + "table = {i: each for i, each in enumerate(many)}\ndel many\n"
_MADE = _MANY + "def make(n):\n    def f():\n        n.i += 1\n    return f\nbump = make(many[7])\n"
_DERIVED = (
    _MANY
    + """
class D(dict):
    def values(self):
        calls.append(1)
        return []
calls = []
for each in many:
    each.__dict__ = D(vars(each))
del each
"""
)
_KEEPING = """
class Keeping:
    def __init__(self):
        self.values = {}
    def __set__(self, owner, value):
        self.values[owner.i] = value
class M:
    p = Keeping()
    def __init__(self, i):
        self.i = i
many = [M(i) for i in range(40)]
"""


def _one(
    rule: str, act: str, setup: str = _MANY, writes: str = "many"
) -> tuple[str, str, str, str, str, str]:
    return rule, setup, act, writes, "", ""


TRAPS = [
    _one("attribute of one of many", "many[30].i = -1"),
    _one("attribute of the last of many", "many[-1].i = -1"),
    _one("new attribute of one of many", "many[30].j = 1"),
    _one("attribute of one of many deleted", "del many[30].i"),
    _one("attributes of one of many in another order", "v = many[30].i\ndel many[30].i\nmany[30].i = v"),
    _one("one of many through another name", "one.i = -1", _NAMED, "many one"),
    _one("one of many replaced by an equal one", "many[30] = N(30)", _NAMED, "one"),
    _one("two of many exchanged", "many[30], many[31] = many[31], many[30]", _NAMED),
    _one("equal ones exchanged", "many[30], many[31] = many[31], many[30]", _EQUAL, "one"),
    _one("one of many twice", "many[31] = many[30]"),
    _one("text of one of many made longer", "many[30].text += 'x'"),
    _one("equal number of another type", "many[30].i = 30.0"),
    _one("true for one", "many[30].yes = True"),
    _one("a negative zero", "many[30].zero = -0.0"),
    _one("no number", "many[30].zero = float('nan')"),
    _one("a list for a number", "many[30].i = []"),
    _one("another of many for a number", "many[30].i = many[31]"),
    _one("itself for a number", "many[30].i = many[30]"),
    _one("item of the attributes of one of many", "many[30].__dict__['i'] = -1"),
    _one("kept attributes of one of many", "kept['i'] = -1", _MANY + "kept = vars(many[30])\n", "many kept"),
    _one("attributes of one of many cleared", "vars(many[30]).clear()"),
    _one("key of attributes that is no text", "vars(many[30])[1] = 1"),
    _one("attributes of one of many replaced", "many[30].__dict__ = {**vars(many[30]), 'i': -1}"),
    _one("attributes of two of many made the same", "many[30].__dict__ = many[31].__dict__"),
    _one("one of many in a closure", "bump()", _MADE, "many bump"),
    _one("one of many through object.__setattr__", "object.__setattr__(many[30], 'i', -1)"),
    _one("class of one of many", "many[30].__class__ = O", _MANY + "class O(N): pass\n"),
    _one("class of all of many", "for each in many: each.__class__ = O", _MANY + "class O(N): pass\n"),
    _one("many sorted", "many.sort(key=lambda each: -each.i)"),
    _one("many reversed", "many.reverse()"),
    _one("many shortened", "many.pop()"),
    _one("many doubled in place", "many *= 2"),
    _one("many with a stranger", "many[30] = [1]"),
    _one("callback of a weak reference", "import weakref\nr = weakref.ref(many[30], print)", writes="many r"),
    _one("descriptor with state", "many[30].p = 5", _KEEPING, "M"),
    _one("value of many values", "table[30].i = -1", _KEYED, "table"),
    _one("key of many values", "table[50] = table.pop(39)", _KEYED, "table"),
    _one("order of many values", "table[30] = table.pop(30)", _KEYED, "table"),
    _one("an equal buffer for bytes", "many[30].text = bytearray(b'n30')", _BYTES),
    _one("an equal array for bytes", "import array\nmany[30].text = array.array('B', b'n30')", _BYTES),
    _one("bytes for text", "many[30].text = b'n30'"),
    _one("an equal number of the user's kind", "many[30].i = I(30)", _MANY + "class I(int): pass\n"),
    _one("an equal text of the user's kind", "many[30].text = S('n30')", _MANY + "class S(str): pass\n"),
    _one("attributes set by an item", "import operator\noperator.setitem(vars(many[30]), 'i', -1)"),
    _one("attributes replaced by equal ones", "many[30].__dict__ = dict(kept)", _KEPT, "kept"),
    _one("all of many replaced by equal ones", "many[:] = map(N, range(40))", _NAMED, "one"),
    _one("one of many set by the list's own method", "list.__setitem__(many, 30, N(30))", _NAMED, "one"),
    _one(
        "attributes emptied and filled again",
        "v = dict(kept)\nkept.clear()\nkept.update(v, i=-1)",
        _KEPT,
        "many kept",
    ),
    ("attributes in a dictionary with methods", _DERIVED, "many[0].i = -1", "many", "many", "calls"),
    ("many that are only counted", _MANY, "t = len(many)", "t", "many", "many N"),
    ("one of many that is only read", _MANY, "t = many[30].i", "t", "many", "many N"),
    ("a value set to what it is", _MANY, "many[30].i = 30", "", "many", "many N"),
    ("a weak reference alone", _MANY, "import weakref\nr = weakref.ref(many[30])", "r", "many", ""),
]
