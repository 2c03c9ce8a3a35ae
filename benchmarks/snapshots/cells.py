"""Named cells that do little work."""

from __future__ import annotations

from typing import Final

CELLS: Final = (
    ("nothing", "x = 1"),
    ("a file written", "open('a', 'w').write('b' * 1000)"),
    ("an object bound", "o = object()"),
    ("1e6 calls", "for _ in range(10**6): len(())"),
)

ARRAY: Final = "import numpy as np\na = np.ones(2**26)"
ROWS: Final = "import numpy as np\na = np.ones((2**13, 2**13))"
RANDOM: Final = "import numpy as np\na = np.random.default_rng(0).random(2**26)"
PLACES: Final = f"{ARRAY}\nplaces = np.random.default_rng(0).permutation(a.size)[: 2**22]"
MASK: Final = f"{ARRAY}\nmask = np.zeros(a.size, bool)\nmask[::2] = True"
FRAME: Final = """import numpy as np, pandas as pd
df = pd.DataFrame(np.random.default_rng(0).standard_normal((2**23, 8)), columns=list("abcdefgh"))"""
NUMBERS: Final = "l = list(range(10**7))"
TEXTS: Final = "l = [f'text {n}' for n in range(2 * 10**6)]"
RECORDS: Final = "l = [{'n': n, 'name': f'name {n}'} for n in range(10**6)]"

WRITING: Final = (
    (ARRAY, "a += 1"),
    (ARRAY, "a[1:] += 1"),
    (ARRAY, "a[::2] = 0"),
    (ARRAY, "v = a[::-1]\nv *= 2"),
    (ARRAY, "a.byteswap(inplace=True)"),
    (ARRAY, "a.sort()"),
    (RANDOM, "a.sort()"),
    (RANDOM, "a[a > 0.5] = 0"),
    (RANDOM, "np.clip(a, 0.2, 0.8, out=a)"),
    (PLACES, "a[places] = 0"),
    (PLACES, "np.put(a, places, 3)"),
    (MASK, "a[mask] = 0"),
    (ROWS, "a /= a.sum(axis=0)"),
    (ROWS, "for i in range(2**13):\n    a[i] = i"),
    (FRAME, "df.loc[:] = 0.0"),
    (FRAME, "df.loc[:, 'a'] *= 2"),
    (FRAME, "df.loc[df['a'] > 0, 'b'] = 0.0"),
    (FRAME, "df *= 2"),
    (ROWS, "np.einsum('ij,ij->ij', a, a, out=a)"),
    ("b = bytearray(b'x' * 2**29)", "memoryview(b)[:] = bytes(2**29)"),
    (NUMBERS, "total = sum(l)"),
    (NUMBERS, "for i in range(10**7):\n    l[i] += 1"),
    (TEXTS, "m = sorted(l)"),
    (RECORDS, "total = sum(each['n'] for each in l)"),
)
"""Cells that make half a gigabyte or objects of some hundred megabytes, and cells that write to them in place.
Reading an object also writes to its reference count.
"""
