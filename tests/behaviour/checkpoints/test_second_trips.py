"""Values copied once are copied again, any number of times: classes, and everything that their instances hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.checkpoints.test_state_pickles import names_of, ran, refilled

from cenote.runtime import PythonRuntime, Variable
from cenote_worker.jail.state.variable_groups import grouped

CLASSES = {
    "planet": (
        (
            "import enum\n"
            "class P(enum.Enum):\n"
            "  E=(1.0,2.0)\n"
            "  M=(3.0,4.0)\n"
            "  EARTH=(1.0,2.0)\n"
            "  def __init__(self,m,r): self.mass=m; self.r=r\n"
            "  @property\n"
            "  def g(self): return self.mass/self.r"
        ),
        "",
        ("P.E.mass, P.M.g, P.EARTH is P.E, list(P.__members__), P((3.0,4.0)) is P.M, P['M'].name"),
        "(1.0, 0.75, True, ['E', 'M', 'EARTH'], True, 'M')",
    ),
    "labelled": (
        (
            "import enum\n"
            "class P(str, enum.Enum):\n"
            "  def __new__(cls, v, label):\n"
            "    o=str.__new__(cls, v); o._value_=v; o.label=label; return o\n"
            "  A='a','Alpha'\n"
            "  B='b','Beta'"
        ),
        "",
        ("P.A.label, P('b').label, P.A=='a', P.A.upper(), repr(P.A), isinstance(P.A, P)"),
        "('Alpha', 'Beta', True, 'A', \"<P.A: 'a'>\", True)",
    ),
    "baseenum": (
        (
            "import enum\n"
            "class B(enum.Enum):\n"
            "  def __new__(cls, v, label):\n"
            "    o=object.__new__(cls); o._value_=v; o.label=label; return o\n"
            "  def both(self): return self.value, self.label\n"
            "class P(B):\n"
            "  X=1,'one'\n"
            "  Y=2,'two'"
        ),
        "",
        "P.X.both(), P(2).both(), len(P)",
        "((1, 'one'), (2, 'two'), 2)",
    ),
    "flag": (
        (
            "import enum\n"
            "class F(enum.Flag):\n"
            "  A=1\n"
            "  B=2\n"
            "  AB=3\n"
            "  C=enum.auto()\n"
            "class I(enum.IntFlag, boundary=enum.KEEP):\n"
            "  R=4\n"
            "  W=2\n"
            "x=F.A|F.C\n"
            "y=I.R|64"
        ),
        "",
        ("F.A|F.B is F.AB, x, F(5) is x, list(F), y, int(y), I.R in y, list(F.__members__), repr(F.AB)"),
        (
            "(True, <F.A|C: 5>, True, [<F.A: 1>, <F.B: 2>, <F.C: 4>], <I.R|64: 68>, 68, True, ['A', 'B', "
            "'AB', 'C'], '<F.AB: 3>')"
        ),
    ),
    "intenum": (
        ("import enum\nclass E(enum.IntEnum):\n  A=enum.auto()\n  B=enum.auto()\nd={E.A: 1}"),
        "",
        "E.A+1, d[1], d[E.A], E(2), hash(E.B)==hash(2)",
        "(2, 1, 1, <E.B: 2>, True)",
    ),
    "strenum": (
        ("import enum\nclass E(enum.StrEnum):\n  Red=enum.auto()\n  B='b'"),
        "",
        "E.Red, E('b').name, f'{E.B}'",
        "(<E.Red: 'red'>, 'B', 'b')",
    ),
    "metaenum": (
        (
            "import enum\n"
            "class M(enum.EnumMeta):\n"
            "  def __contains__(cls, x): return x in [m.value for m in cls]\n"
            "class E(enum.Enum, metaclass=M):\n"
            "  A=7"
        ),
        "",
        "7 in E, type(E).__name__, E.A.value",
        "(True, 'M', 7)",
    ),
    "floatenum": (
        ("import enum\nclass E(float, enum.Enum):\n  A=1.5"),
        "",
        "E.A*2, E(1.5) is E.A",
        "(3.0, True)",
    ),
    "dcenum": (
        (
            "import enum, dataclasses\n"
            "@dataclasses.dataclass\n"
            "class C:\n"
            "  a: int\n"
            "  b: int\n"
            "class E(C, enum.Enum):\n"
            "  X=(1,2)"
        ),
        "",
        "E.X.a, E.X.b, E.X.value, E.X.name",
        "(1, 2, C(a=1, b=2), 'X')",
    ),
    "privslots": (
        (
            "class S:\n"
            "  __slots__=('__x','y')\n"
            "  def __init__(s): s.__x=1; s.y=[2]\n"
            "  def get(s): return s.__x\n"
            "s=S()"
        ),
        "",
        "s.get(), s.y, S.__slots__, hasattr(s,'__dict__')",
        "(1, [2], ('__x', 'y'), False)",
    ),
    "itslots": (
        ("class S:\n  __slots__=iter(('a','b'))\ns=S(); s.a=1"),
        "",
        "s.a, hasattr(s,'b'), hasattr(s,'__dict__')",
        "(1, False, False)",
    ),
    "dictslots": (
        (
            "class S:\n"
            "  __slots__=('a','__dict__','__weakref__')\n"
            "s=S(); s.a=1; s.q=2\n"
            "import weakref\n"
            "r=weakref.ref(s)"
        ),
        "",
        "s.a, s.q, r() is s",
        "(1, 2, True)",
    ),
    "strslots": (
        ("class S:\n  __slots__='a'\ns=S(); s.a=1"),
        "",
        "s.a, S.__slots__, hasattr(s,'__dict__')",
        "(1, 'a', False)",
    ),
    "metakw": (
        (
            "class M(type):\n"
            "  def __new__(m, n, b, ns, *, tag):\n"
            "    c=super().__new__(m,n,b,ns); c.tag=tag; return c\n"
            "  def __init__(c,n,b,ns,*,tag): super().__init__(n,b,ns)\n"
            "class A(metaclass=M, tag='x'): pass\n"
            "a=A()"
        ),
        "",
        "A.tag, type(A) is M, type(a) is A",
        "('x', True, True)",
    ),
    "frozenmeta": (
        (
            "class M(type):\n"
            "  def __setattr__(c,k,v): raise AttributeError('frozen')\n"
            "class A(metaclass=M):\n"
            "  x=1\n"
            "a=A()"
        ),
        "",
        "A.x, type(A).__name__",
        "(1, 'M')",
    ),
    "registry": (
        (
            "class Base:\n"
            "  plugins=[]\n"
            "  def __init_subclass__(cls, *, tag, **k):\n"
            "    super().__init_subclass__(**k); cls.tag=tag; Base.plugins.append(cls)\n"
            "class A(Base, tag='a'): pass\n"
            "class B(Base, tag='b'): pass"
        ),
        "",
        "[p.__name__ for p in Base.plugins], A.tag, Base.plugins[0] is A",
        "(['A', 'B'], 'a', True)",
    ),
    "metaregistry": (
        (
            "class M(type):\n"
            "  reg={}\n"
            "  def __new__(m,n,b,ns):\n"
            "    c=super().__new__(m,n,b,ns); m.reg[n]=c; return c\n"
            "class A(metaclass=M): pass\n"
            "class B(A): pass\n"
            "b=B()"
        ),
        "",
        "list(M.reg), M.reg['B'] is B",
        "(['A', 'B'], True)",
    ),
    "nested": (
        ("class A:\n  class B:\n    v=1\nb=A.B()"),
        "",
        "A.B.__qualname__, type(b) is A.B",
        "('A.B', True)",
    ),
    "newneeds": (
        ("class A:\n  def __new__(cls, x):\n    o=super().__new__(cls); o.x=x; return o\na=A(3)"),
        "",
        "a.x",
        "3",
    ),
    "newneedsslots": (
        (
            "class A:\n"
            "  __slots__=('x',)\n"
            "  def __new__(cls, x):\n"
            "    o=super().__new__(cls); o.x=x; return o\n"
            "a=A(3)"
        ),
        "",
        "a.x",
        "3",
    ),
    "reduceargs": (
        (
            "class A:\n"
            "  def __init__(self, x, y): self.x=x; self.y=y; self.log=[1]\n"
            "  def __reduce__(self): return (A, (self.x,))\n"
            "a=A(1,2)"
        ),
        "",
        "a.x, a.y, a.log",
        "(1, 2, [1])",
    ),
    "kwexc": (
        (
            "class E(Exception):\n"
            "  def __init__(self, code, *, detail): super().__init__(f'c{code}'); self.code=code; "
            "self.detail=detail\n"
            "e=E(1, detail='d')"
        ),
        "",
        "e.code, e.detail, e.args",
        "(1, 'd', ('c1',))",
    ),
    "twoexc": (
        (
            "class E(ValueError):\n"
            "  def __init__(self, a, b): super().__init__(f'{a}-{b}'); self.a=a\n"
            "e=E(1,2)"
        ),
        "",
        "e.a, e.args, str(e)",
        "(1, ('1-2',), '1-2')",
    ),
    "osexc": (
        (
            "class E(OSError):\n"
            "  def __init__(self, no, what, *, extra): super().__init__(no, what, 'file'); "
            "self.extra=extra\n"
            "e=E(2,'no',extra=5)"
        ),
        "",
        "e.errno, e.strerror, e.filename, e.extra, e.args, str(e)",
        "(2, 'no', 'file', 5, (2, 'no'), \"[Errno 2] no: 'file'\")",
    ),
    "abc": (
        (
            "import abc\n"
            "class A(abc.ABC):\n"
            "  @abc.abstractmethod\n"
            "  def f(self): ...\n"
            "class C(A):\n"
            "  __slots__=('z',)\n"
            "  def f(self): return self.z\n"
            "class V: pass\n"
            "A.register(V)\n"
            "c=C(); c.z=3"
        ),
        "",
        "c.f(), isinstance(V(), A), issubclass(C, A), A.__abstractmethods__",
        "(3, True, True, frozenset({'f'}))",
    ),
    "namedtuple": (
        (
            "import collections, typing\n"
            "P=collections.namedtuple('P','a b')\n"
            "class Q(typing.NamedTuple):\n"
            "  a: int\n"
            "  b: int = 2\n"
            "class R(Q):\n"
            "  def s(self): return self.a+self.b\n"
            "p,q,r=P(1,2),Q(1),R(3)"
        ),
        "",
        "p.a, q.b, r.s(), p._fields, isinstance(q, Q)",
        "(1, 2, 5, ('a', 'b'), True)",
    ),
    "typeddict": (
        (
            "import typing\n"
            "class T(typing.TypedDict, total=False):\n"
            "  a: int\n"
            "class U(T):\n"
            "  b: str\n"
            "class Pr(typing.Protocol):\n"
            "  def f(self): ...\n"
            "@typing.runtime_checkable\n"
            "class Ru(typing.Protocol):\n"
            "  def f(self): ...\n"
            "class G(typing.Generic[typing.TypeVar('X')]): pass\n"
            "class H:\n"
            "  def f(self): pass"
        ),
        "",
        ("T.__optional_keys__, sorted(U.__annotations__), isinstance(H(), Ru), G.__parameters__ != ()"),
        "(frozenset({'a'}), ['a', 'b'], True, True)",
    ),
    "frozen dc": (
        (
            "import dataclasses\n"
            "@dataclasses.dataclass(frozen=True, slots=True)\n"
            "class D:\n"
            "  a: int\n"
            "  b: list = dataclasses.field(default_factory=list)\n"
            "class D2(D): pass\n"
            "d=D(1); d2=D2(2)"
        ),
        "",
        ("d, d2, dataclasses.replace(d, a=2), [f.name for f in dataclasses.fields(D)]"),
        "(D(a=1, b=[]), D2(a=2, b=[]), D(a=2, b=[]), ['a', 'b'])",
    ),
    "kwonly newargs": (
        (
            "class A:\n"
            "  def __new__(cls, *, x): o=object.__new__(cls); o.x=x; return o\n"
            "  def __getnewargs_ex__(self): return (), {'x': self.x}\n"
            "a=A(x=1)"
        ),
        "",
        "a.x",
        "1",
    ),
    "intsub": (
        (
            "class I(int):\n"
            "  def __new__(cls, v, unit): o=int.__new__(cls, v); o.unit=unit; return o\n"
            "i=I(3,'m')"
        ),
        "",
        "i+1, i.unit, type(i).__name__",
        "(4, 'm', 'I')",
    ),
    "strsub": (
        (
            "class I(str):\n"
            "  def __new__(cls, v, unit): o=str.__new__(cls, v); o.unit=unit; return o\n"
            "  def __reduce__(self): return I, (str(self), self.unit)\n"
            "i=I('a','m')"
        ),
        "",
        "i+'b', i.unit",
        "('ab', 'm')",
    ),
    "tuplesub": (
        ("class I(tuple):\n  def __new__(cls, a, b): return tuple.__new__(cls, (a,b))\ni=I(3,'m')"),
        "",
        "i, type(i).__name__",
        "((3, 'm'), 'I')",
    ),
    "dictsub": (
        ("class D(dict):\n  def __init__(self, *, default): self.default=default\nd=D(default=4); d['a']=1"),
        "",
        "d, d.default",
        "({'a': 1}, 4)",
    ),
    "listsub": (
        (
            "class L(list):\n"
            "  def __init__(self, *a): super().__init__(a); self.log=[]\n"
            "  def append(self, v): self.log.append(v); super().append(v)\n"
            "l=L(1); l.append(2)"
        ),
        "",
        "l, l.log",
        "([1, 2], [2])",
    ),
}
VALUES = {
    "complex nan": ("k = complex('nan'); d = {k: 1}", "", "d.get(k)", "1"),
    "decimal nan": (
        "import decimal; k = decimal.Decimal('nan'); d = {k: 1}; l=[k]",
        "",
        "d.get(k), d.get(l[0])",
        "(1, 1)",
    ),
    "np.float64 nan": ("k = np.float64('nan'); d = {k: 1}", "", "d.get(k)", "1"),
    "tuple key": ("k = float('nan'); d = {(k, 1): 1}; t = (k, 1)", "", "d.get(t), d.get((k,1))", "(1, 1)"),
    "neg nan": (
        ("k = -float('nan'); d = {k: 1}; m = {float('nan')}; m2 = [next(iter(m))]"),
        "",
        "d.get(k), m2[0] in m, m2[0] is k",
        "(1, True, False)",
    ),
    "math": (
        "import math; d = {math.nan: 1}; s = [math.inf, -math.inf]",
        "",
        "d.get(math.nan), s, math.nan is np.nan",
        "(1, [inf, -inf], False)",
    ),
    "object col": (
        (
            "import pandas as pd; s = pd.Series(['a', np.nan], dtype=object); u = s.map({np.nan: 'x', "
            "'a': 'y'})"
        ),
        "",
        "s[1] is np.nan, u.tolist()",
        "(True, ['y', 'x'])",
    ),
    "attr": (("class A: pass\na = A(); a.nan = float('nan'); a.d = {a.nan: 5}"), "", "a.d[a.nan]", "5"),
    "default": (
        (
            "import collections; n = float('nan'); d = collections.defaultdict(list); d[n].append(1); c "
            "= collections.Counter([n, n]); o = collections.OrderedDict({n: 1})"
        ),
        "d[n].append(2)",
        "d[n], c[n], o[n]",
        "([1, 2], 2, 1)",
    ),
    "func default": (("n = float('nan')\ndef f(x=n, d={n: 3}): return d.get(x)"), "", "f(), f(n)", "(3, 3)"),
    "stale counter": (
        (
            "import collections\n"
            "class K:\n"
            "  def __init__(self, v): self.v = v\n"
            "  def __hash__(self): return hash(self.v)\n"
            "  def __eq__(self, o): return self.v == o.v\n"
            "k = K(1); c = collections.Counter([k]); dd = collections.defaultdict(int); dd[k] = 4\n"
            "k.v = 2"
        ),
        "",
        "c[k], len(c), k in dd, list(c.values())",
        "(0, 1, False, [1])",
    ),
    "stale tuple": (
        (
            "class K:\n"
            "  def __init__(self, v): self.v = v\n"
            "  def __hash__(self): return hash(self.v)\n"
            "  def __eq__(self, o): return self.v == o.v\n"
            "k = K(1); d = {(k, 1): 1}\n"
            "k.v = 2"
        ),
        "",
        "d.get((k, 1)), len(d), d.get((K(1),1))",
        "(None, 1, None)",
    ),
    "stale own dict": (
        (
            "class D(dict):\n"
            "  pass\n"
            "class K:\n"
            "  def __init__(self, v): self.v = v\n"
            "  def __hash__(self): return hash(self.v)\n"
            "  def __eq__(self, o): return self.v == o.v\n"
            "k = K(1); d = D({k: 1}); d.x = 5\n"
            "k.v = 2"
        ),
        "",
        "d.get(k), len(d), d.x, type(d).__name__",
        "(None, 1, 5, 'D')",
    ),
    "stale set sub": (
        (
            "class D(set):\n"
            "  pass\n"
            "class K:\n"
            "  def __init__(self, v): self.v = v\n"
            "  def __hash__(self): return hash(self.v)\n"
            "  def __eq__(self, o): return self.v == o.v\n"
            "k = K(1); d = D([k]); d.x = 5\n"
            "k.v = 2"
        ),
        "d.add(k)",
        "len(d), d.x",
        "(2, 5)",
    ),
    "stale nested": (
        (
            "class K:\n"
            "  def __init__(self, v): self.v = v\n"
            "  def __hash__(self): return hash(self.v)\n"
            "  def __eq__(self, o): return self.v == o.v\n"
            "class H: pass\n"
            "h = H(); h.k = K(1); h.d = {'x': {h.k: [1]}}\n"
            "h.k.v = 2"
        ),
        "",
        ("h.d['x'].get(h.k), list(h.d['x'].values()), next(iter(h.d['x'])) is h.k"),
        "(None, [[1]], True)",
    ),
    "stale dataclass": (
        (
            "import dataclasses\n"
            "@dataclasses.dataclass(unsafe_hash=True)\n"
            "class P:\n"
            "  x: int\n"
            "p = P(1); s = {p: 'a'}\n"
            "p.x = 2"
        ),
        "",
        "s.get(p), len(s)",
        "(None, 1)",
    ),
    "mask shared": (
        "a = np.ma.arange(4.); a[0] = np.ma.masked; v = a[:2]; m = a.mask",
        "",
        "v.mask.tolist(), a._sharedmask, v._sharedmask, a.fill_value, a.dtype",
        "([True, False], False, True, np.float64(1e+20), dtype('float64'))",
    ),
    "structured": (
        ("t = np.zeros(3, dtype=[('x', 'i4'), ('y', 'f8')]); x = t['x']; r = t[1:][0]"),
        "x[1] = 5; r['y'] = 2",
        "t.tolist()",
        "[(0, 0.0), (5, 2.0), (0, 0.0)]",
    ),
    "char": (
        "c = np.char.array(['a', 'b']); v = c[1:]",
        "v[0] = 'z'",
        "c.tolist(), type(v).__name__",
        "(['a', 'z'], 'chararray')",
    ),
    "owning": (
        ("class U(np.ndarray): pass\nu = np.arange(4.).view(U) * 2; u.unit = 'm'; v = u[1:]"),
        "v[0] = 9",
        "u.tolist(), type(u).__name__, u.unit, hasattr(v, 'unit')",
        "([0.0, 9.0, 4.0, 6.0], 'U', 'm', False)",
    ),
    "big owning": (
        ("class U(np.ndarray): pass\nu = np.arange(40000.).view(U) * 2; v = u[1:]; w = np.asarray(u)[5:]"),
        "v[0] = 9; w[0] = 7",
        "u[1], u[5], type(u).__name__",
        "(np.float64(9.0), np.float64(7.0), 'U')",
    ),
    "object sub": (
        ("class U(np.ndarray): pass\nu = np.array([[1], 2, 3], object).view(U); v = u[1:]"),
        "v[0] = 9",
        "u.tolist()",
        "[[1], 9, 3]",
    ),
    "object sub owning": (
        ("class U(np.ndarray): pass\nu = np.array([[1], 2, 3], object).view(U).copy(); v = u[1:]"),
        "v[0] = 9",
        "u.tolist(), type(u).__name__",
        "([[1], 9, 3], 'U')",
    ),
    "matrix t": (
        "m = np.matrix([[1., 2.], [3., 4.]]); t = m.T; f = m.A",
        "t[0, 1] = 9; f[0, 0] = 8",
        "m.tolist()",
        "[[8.0, 2.0], [9.0, 4.0]]",
    ),
    "rec rec": (
        ("t = np.rec.array([(1, 2.0), (3, 4.0)], dtype=[('x', 'i4'), ('y', 'f8')]); r = t[1]"),
        "r.x = 7",
        "t.x.tolist(), type(r).__name__",
        "([1, 7], 'record')",
    ),
    "nested rec": (
        "t = np.zeros(2, dtype=[('p', [('x', 'i4')])]); r = t[0]['p']",
        "r['x'] = 4",
        "t.tolist()",
        "[((4,),), ((0,),)]",
    ),
    "ct array": (
        ("import ctypes, array\na = array.array('i', [1,2]); c = (ctypes.c_int * 2).from_buffer(a)"),
        "c[0] = 5",
        "a[0]",
        "5",
    ),
    "hard": (
        ("x = np.ma.array([1., 2.], mask=[1, 0], fill_value=7); x.harden_mask(); y = x.copy()"),
        "x[0] = 5",
        "x.mask.tolist(), y.hardmask, x.fill_value",
        "([True, False], True, np.float64(7.0))",
    ),
    "no write": (
        ("class U(np.ndarray): pass\nu = np.arange(3.).view(U); u.flags.writeable = False"),
        "",
        "u.flags.writeable",
        "False",
    ),
    "empty sub": (
        ("class U(np.ndarray): pass\nu = np.zeros((0, 3)).view(U); z = np.zeros(()).view(U)"),
        "",
        "u.shape, z.shape, type(z).__name__",
        "((0, 3), (), 'U')",
    ),
    "finalize raises": (
        (
            "class U(np.ndarray):\n"
            "  def __new__(cls, a, *, unit): o = np.asarray(a).view(cls); o.unit = unit; return o\n"
            "  def __array_finalize__(self, o): self.unit = getattr(o, 'unit', None)\n"
            "  def __reduce__(self): return U, (np.asarray(self), self.unit)\n"
            "u = U([1.], unit='m')"
        ),
        "",
        "u.unit, u.tolist()",
        "('m', [1.0])",
    ),
    "weakref": (
        ("import weakref\nclass A: x = 1\na = A(); r = weakref.ref(a); p = weakref.proxy(a)"),
        "a.x = 2",
        "r() is a, p.x",
        "(True, 2)",
    ),
    "weak dicts": (
        (
            "import weakref\n"
            "class A: pass\n"
            "a = A(); w = weakref.WeakValueDictionary({'a': a}); k = weakref.WeakKeyDictionary({a: 1}); "
            "s = weakref.WeakSet([a])"
        ),
        "",
        "w['a'] is a, k[a], a in s",
        "(True, 1, True)",
    ),
    "session": (
        ("import requests\ns = requests.Session(); s.base_url = 'x'; s.headers['a'] = 'b'"),
        "",
        "s.base_url, s.headers['a'], s.adapters['https://'].max_retries.total",
        "('x', 'b', 0)",
    ),
    "lock and cache": (
        (
            "import threading\n"
            "class M:\n"
            "  def __init__(self): self.n = 0; self.cache = {}; self.l = threading.Lock()\n"
            "  def __getstate__(self): return {'n': self.n}\n"
            "  def __setstate__(self, s): self.__dict__.update(s, cache={}, l=threading.Lock())\n"
            "m = M(); m.cache['a'] = 1"
        ),
        "m.l.acquire()",
        "m.cache, m.l.locked()",
        "({'a': 1}, True)",
    ),
    "borg": (
        ("class B:\n  s = {}\n  def __init__(self): self.__dict__ = self.s\na, b = B(), B(); a.x = 1"),
        "a.y = 2",
        "b.x, b.y, B.s",
        "(1, 2, {'x': 1, 'y': 2})",
    ),
    "date": (
        (
            "import datetime\n"
            "class D(datetime.date): pass\n"
            "d = D(2020,1,1); d.n = [1]\n"
            "class T(datetime.timedelta):\n"
            "  def __new__(cls, *a, note): o = super().__new__(cls, *a); o.note = note; return o\n"
        ),
        "",
        "d.n, d",
        "([1], D(2020, 1, 1))",
    ),
    "path": (
        ("import pathlib\nclass P(type(pathlib.Path())): pass\np = P('/a'); q = pathlib.PurePath('x')"),
        "",
        "str(p), type(p).__name__",
        "('/a', 'P')",
    ),
    "fraction": (
        (
            "import fractions, decimal\n"
            "class F(fractions.Fraction): pass\n"
            "f = F(1, 3); f2 = fractions.Fraction(2, 3)"
        ),
        "",
        "f + 1, f2, type(f).__name__",
        "(Fraction(4, 3), Fraction(2, 3), 'F')",
    ),
    "counter attr": (
        (
            "import collections\n"
            "class C(collections.Counter): pass\n"
            "c = C('aab'); c.note = 'x'\n"
            "class O(collections.OrderedDict): pass\n"
            "o = O(a=1); o.note = 'y'"
        ),
        "",
        "c, c.note, o.note, list(o.items())",
        "(C({'a': 2, 'b': 1}), 'x', 'y', [('a', 1)])",
    ),
    "userdict": (
        (
            "import collections\n"
            "class U(collections.UserDict): pass\n"
            "u = U(a=1); u.note = 2\n"
            "class L(collections.UserList):\n"
            "  def __init__(self, x, *, k): super().__init__(x); self.k = k\n"
            "l = L([1], k=3)"
        ),
        "",
        "u.note, dict(u), l.k, list(l)",
        "(2, {'a': 1}, 3, [1])",
    ),
    "partial sub": (
        ("import functools\nclass P(functools.partial): pass\np = P(int, base=2); p.note = 1"),
        "",
        "p('10'), p.note",
        "(2, 1)",
    ),
    "simplens": (
        ("import types\nclass N(types.SimpleNamespace): pass\nn = N(a=1); n.b = [2]"),
        "",
        "n.a, n.b",
        "(1, [2])",
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("case", CLASSES | VALUES)
def test_it_is_the_same_after_two_trips(case: str) -> None:
    """The second code runs in the filled namespace, with the same effects as in the first one."""
    before, after, question, answer = (CLASSES | VALUES)[case]
    namespace = ran(f"import numpy as np\n{before}")
    assert {} == grouped(names_of(namespace), namespace, {}).refused
    filled = refilled(refilled(namespace))
    exec(after, filled)
    assert answer == repr(eval(question, filled))


def test_keys_that_cannot_be_put_where_they_were_are_named() -> None:
    code = "class K:\n  same = 0\n  def __init__(s, v): s.v = v\n  def __hash__(s): return 1\n"
    code += "  def __eq__(s, o): return s.v == o.v\na, b = K(1), K(2)\nd = {a: 1, b: 2}\nb.v = 1"
    namespace = ran(code)
    assert "changed since" in grouped(names_of(namespace), namespace, {}).refused["d"]


def test_two_values_that_share_a_nan_are_stored_together() -> None:
    namespace = ran("n = float('nan')\nd = {n: 1}\nother = float('nan')\nx = 1.5")
    groups = [frozenset(group.names) for group in grouped(names_of(namespace), namespace, {}).groups]
    assert {frozenset({"n", "d"}), frozenset({"other"}), frozenset({"x"})} == set(groups)


_MODULE = """
import abc, dataclasses, enum
class Slots:
    __slots__ = ("a", "__b")
    def __init__(self, a): self.a, self.__b = a, [a]
    def both(self): return self.a, self.__b
@dataclasses.dataclass(slots=True)
class Row:
    a: int
    b: list = dataclasses.field(default_factory=list)
class Meta(type):
    made = []
    def __new__(meta, name, bases, table, *, tag):
        cls = super().__new__(meta, name, bases, table)
        cls.tag = tag
        meta.made.append(name)
        return cls
    def __init__(cls, name, bases, table, *, tag): super().__init__(name, bases, table)
class Tagged(metaclass=Meta, tag="x"):
    pass
class Pair:
    def __init__(self, x, y): self.x, self.y, self.seen = x, y, []
    def __reduce__(self): return Pair, (self.x, self.y)
class Planet(enum.Enum):
    EARTH = (1.0, 2.0)
    MARS = (3.0, 4.0)
    def __init__(self, mass, radius): self.mass, self.seen = mass, []
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
class Square(Shape):
    __slots__ = ("side",)
    def area(self): return self.side ** 2
"""

_QUESTION = (
    "slots.both(), hasattr(slots, '__dict__'), row, tagged.tag, type(tagged).made, pair.seen, planet.mass, "
    "planet.seen, "
    "type(planet).MARS.mass, type(planet)((1.0, 2.0)) is planet, square.area()"
)
_ANSWER = "((1, [1]), False, Row(a=2, b=[3]), 'x', ['Tagged'], [], 1.0, [8], 3.0, True, 9)"


@pytest.mark.slow
def test_a_clients_own_classes_go_on_from_jail_to_jail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They came by value from a module that no jail can import; a fork of a fork has them, and a reopened runtime."""
    (tmp_path / "clients_classes.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import clients_classes as own  # type: ignore[import-not-found]

    square, planet, pair = own.Square(), own.Planet.EARTH, own.Pair(1, 2)
    square.side = 3
    planet.seen.append(8)
    values = {
        "slots": own.Slots(1),
        "row": own.Row(2, [3]),
        "tagged": own.Tagged,
        "pair": pair,
        "planet": planet,
    }
    variables = [Variable(key, value) for key, value in (values | {"square": square}).items()]
    with PythonRuntime(variables=variables, store=str(tmp_path / "store"), name="a") as runtime:
        assert _ANSWER == runtime.execute(_QUESTION).value
        with runtime.fork() as branch, branch.fork() as second:
            assert [_ANSWER] * 2 == [each.execute(_QUESTION).value for each in (branch, second)]
        runtime.checkpoint("here")
    with PythonRuntime.restore(str(tmp_path / "store"), "a", "here") as runtime:
        assert _ANSWER == runtime.execute(_QUESTION).value
