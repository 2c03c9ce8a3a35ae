"""Working directory, environment, import path, context: each author finds them as they left them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cenote.harness import Patch
from cenote.runtime import AsyncPythonRuntime, PythonRuntime

SCOPES = ["shared", "private"]


@pytest.fixture(params=SCOPES)
def pair(request: pytest.FixtureRequest, runtime: PythonRuntime) -> tuple[PythonRuntime, PythonRuntime]:
    """Two authors of one scope."""
    return runtime.attach("ana", scope=request.param), runtime.attach("ben", scope=request.param)


CASES = [
    ("import os\nos.makedirs('sub')\nos.chdir('sub')", "import os\nos.getcwd()"),
    ("!mkdir -p other\n%cd other", "import os\nos.getcwd()"),
    ("import os\nos.environ['COLOUR'] = 'red'", "import os\nos.environ.get('COLOUR')"),
    ("import os\ndel os.environ['HOME']", "import os\n'HOME' in os.environ"),
    ("import os\nos.environ = {'HOME': 'elsewhere'}", "import os\nos.environ['HOME']"),
    ("import os\nos.environ['COLOUR'] = 'red'", "import subprocess\nsubprocess.getoutput('echo $COLOUR')"),
    ("import sys\nsys.path.append('/lib')", "import sys\nsys.path[-1]"),
    ("import sys\nsys.path = []", "import sys\nlen(sys.path)"),
    ("import decimal\ndecimal.getcontext().prec = 5", "import decimal\ndecimal.getcontext().prec"),
    ("from __future__ import annotations", "def f(x: 1): pass\nf.__annotations__"),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("change", "look"), CASES, ids=lambda text: text.partition("\n")[2] or text)
def test_what_one_author_changes_is_their_own(
    pair: tuple[PythonRuntime, PythonRuntime], good: Callable, change: str, look: str
) -> None:
    """It is there again in their next cell, and never in another author's, which starts with the initial one."""
    ana, ben = pair
    untouched = good(ben, look).value
    good(ana, change)
    changed = good(ana, look).value
    assert changed != untouched
    assert untouched == good(ben, look).value
    assert changed == good(ana, look).value


@pytest.mark.slow
def test_each_author_has_what_a_cell_of_the_owner_has(
    runtime: PythonRuntime, pair: tuple[PythonRuntime, PythonRuntime], good: Callable
) -> None:
    """From the first cell on: modules in the working directory, and figures where `plt.show()` stands."""
    good(runtime, "open('mine.py', 'w').write('value = 5')")
    show = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\ndisplay('after')"
    for author in pair:
        assert "5" == good(author, "import mine\nmine.value").value
        shown = [sorted(bundle) for bundle in good(author, show).outputs]
        assert [["image/png", "text/plain"], ["text/plain"]] == shown


def test_the_owners_are_the_owners_own(runtime: PythonRuntime, good: Callable) -> None:
    """All begin in the same place, whatever the owner did before they attached."""
    home = good(runtime, "import os\nprint(os.getcwd())").stdout
    good(runtime, "os.mkdir('sub')\nos.chdir('sub')\nos.environ['COLOUR'] = 'red'")
    ana = runtime.attach("ana")
    look = "print(os.getcwd())\nos.environ.get('COLOUR')"
    at_first, later = good(ana, look), good(runtime, look)
    assert (home, None) == (at_first.stdout, at_first.value)
    assert (f"{home.strip()}/sub\n", "'red'") == (later.stdout, later.value)


def test_a_directory_that_is_gone(runtime: PythonRuntime, good: Callable) -> None:
    """The author gets a message, and is in the initial directory."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(ana, "import os\nos.makedirs('sub')\nos.chdir('sub')\nhome = os.path.dirname(os.getcwd())")
    good(ben, "os.rmdir('sub')")
    result = good(ana, "os.getcwd() == home")
    assert "True" == result.value
    assert "is gone; this is" in result.stderr
    assert "" == good(ana, "1").stderr


RUIN = [
    "import os\nos.environ._data[b'a=b'] = b'c'\nos.environ._data[5] = None",
    "import os\nos.getcwd = os.chdir = os.environ = None",
    "import os\nos._Environ.__iter__ = os._Environ.__setitem__ = None",
    "import sys\ndel sys.path",
    "import os, shutil\nhome = os.getcwd()\nos.chdir('/')\nshutil.rmtree(home, ignore_errors=True)",
]


@pytest.mark.parametrize("ruin", RUIN)
def test_a_ruined_module_harms_nobody_else(runtime: PythonRuntime, good: Callable, ruin: str) -> None:
    """The others find their own unchanged."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    home = good(ben, "import os as system\nsystem.environ['COLOUR'] = 'red'\nprint(system.getcwd())").stdout
    good(ana, f"import os, sys\nos.environ['COLOUR'] = 'blue'\n{ruin}")
    result = good(ben, "!pwd; echo $COLOUR")
    assert (f"{home}red\n", "") == (result.stdout, result.stderr)


async def test_one_event_loop_for_all() -> None:
    """Background tasks of one author can be awaited by another; context variables stay separate."""
    async with AsyncPythonRuntime() as runtime:
        ana, ben = await runtime.attach("ana"), await runtime.attach("ben")
        await ana.execute("import asyncio, contextvars\nv = contextvars.ContextVar('v', default=0)\nv.set(1)")
        await ana.execute("async def work():\n    return v.get()\ntask = asyncio.create_task(work())")
        assert "(1, 0)" == (await ben.execute("await task, v.get()")).value
        assert "1" == (await ana.execute("v.get()")).value


def test_a_patch_reuses_the_steps_of_an_attached_author(runtime: PythonRuntime) -> None:
    """Each author has an environment and an import path; a step's view is compared with its own author's."""
    ana = runtime.attach("ana")
    ana.execute("import os, sys\nos.environ['COLOUR'] = 'red'\nsys.path.append('/lib')")
    for code in ("a = 1", "b = a + 1", "print('apart')"):
        ana.execute(code)
    state = runtime.state
    plan = state.plan(Patch.replace_step(2, "a = 2"))
    result = state.apply(plan)
    assert ((2, 3), (4,)) == (result.steps_rerun, result.steps_reused)
    assert [step.number for step in plan.rerun] == [2, 3]
    assert runtime.retrieve("b") == 3
