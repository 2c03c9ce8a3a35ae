"""The measured cells, each with its setup."""

from __future__ import annotations

from typing import Final

CELLS: Final = {
    "bind a name": ("", "x = 1"),
    "call two of 60 functions": (
        "for i in range(60):\n    exec(f'v{i} = [{i}]\\ndef f{i}(x): return x + v{i}[0]')",
        "y = f3(2) + f4(1)",
    ),
    "look at a small frame": ("import pandas as pd\ndf = pd.DataFrame({'a': range(100)})", "s = df.a.sum()"),
    "one key of 100,000": ("d = {i: i for i in range(100_000)}", "d[5] = 6"),
    "beside a frame of 500 MB": (
        "import numpy as np, pandas as pd\nbig = pd.DataFrame(np.random.rand(6_250_000, 10))",
        "x = 2",
    ),
    "read a frame of 500 MB": (
        "import numpy as np, pandas as pd\nbig = pd.DataFrame(np.random.rand(6_250_000, 10))",
        "n = len(big)",
    ),
    "a loop of 3,000,000": ("", "t = 0\nfor i in range(3_000_000):\n    t += i"),
    "1,000,000 calls": ("def f(x):\n    return x + 1", "for i in range(1_000_000):\n    f(i)"),
    "2 s of arithmetic": (
        "import numpy as np\na = np.random.rand(2_000_000)",
        "for _ in range(60):\n    b = np.sort(a[:500_000])",
    ),
}
