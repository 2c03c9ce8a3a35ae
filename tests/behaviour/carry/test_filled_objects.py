"""Objects of classes whose own code must not run while they are rebuilt: a patch carries them over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.harness import Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

MADE = {
    "a mock that was called": (
        "from unittest.mock import Mock\nv = Mock(return_value=3); v(1)",
        "v.call_args.args, v(2)",
    ),
    "a mock with magic methods": (
        "from unittest.mock import MagicMock\nv = MagicMock(); v.__len__.return_value = 5; v.a.b(2)",
        "len(v), v.a.b.call_count",
    ),
    "an exception with an argument by name": (
        "class E(Exception):\n    def __init__(self, *, code): super().__init__(f'c {code}'); self.code = code\n"
        "v = E(code=3)",
        "v.code, v.args",
    ),
    "an exception that passes nothing on": (
        "class E(KeyError):\n    def __init__(self, code): self.code = code; super().__init__()\nv = E(3)",
        "v.code, v.args",
    ),
    "a list that notes what is appended": (
        "class L(list):\n    def __init__(self): self.log = []\n"
        "    def append(self, x): self.log.append(x); super().append(x)\n"
        "    def extend(self, xs): [self.append(x) for x in xs]\nv = L(); v.append(1)",
        "v.log, list(v)",
    ),
    "a dictionary that notes its keys": (
        "class D(dict):\n    log = []\n"
        "    def __setitem__(self, k, x): D.log.append(k); super().__setitem__(k, x)\nv = D(); v['a'] = 1",
        "v.log, dict(v)",
    ),
    "one that asks another for its attributes": (
        "class P:\n    def __init__(self, inner): self.inner = inner\n"
        "    def __getattr__(self, key): return getattr(self.inner, key)\nv = P([1, 2])",
        "v.inner, v.count(1)",
    ),
    "one that is made with arguments": (
        "class N:\n    def __new__(cls, x): self = super().__new__(cls); self.x = x; return self\nv = N(7)",
        "v.x",
    ),
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        yield runtime


@pytest.mark.sweep
@pytest.mark.parametrize("what", MADE)
def test_it_comes_over_as_it_was(what: str, runtime: PythonRuntime) -> None:
    """The step that made it is not run again."""
    source, look = MADE[what]
    runtime.reset()
    first, made = runtime.execute("k = 1").step, runtime.execute(source).step
    wanted = runtime.execute(f"looked = repr(({look}))\nlooked").value
    runtime.execute("v.touched = k")
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(first, "k = 2")))
    assert ("applied", wanted) == (result.status, runtime.execute("looked").value)
    assert made not in result.steps_rerun
    assert "2" == runtime.execute("v.touched").value
