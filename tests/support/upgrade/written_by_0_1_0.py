"""Data of one release, as its users have it: `python written_by_0_1_0.py FOLDER`, run with that release.

It uses nothing but what 0.1.0 has. README.md says how it is run, and what becomes of the folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

SESSION: Final = (
    "import numpy as np\nimport pandas as pd\nplain = {'a': 1, 'b': [1.5, None, 'é'], 'c': (1, {2, 3})}\n"
    "alias = plain['b']",
    """
import dataclasses, enum
class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def norm(self):
        return (self.x ** 2 + self.y ** 2) ** 0.5
@dataclasses.dataclass
class Row:
    name: str
    tags: list
class Colour(enum.Enum):
    RED = 1
def scaled(factor):
    return lambda value: value * factor
point, row, colour, triple = Point(3, 4), Row('a', [1]), Colour.RED, scaled(3)
""",
    "array = np.arange(6.0).reshape(2, 3)\nframe = pd.DataFrame({'k': ['x', 'y', 'x'], 'v': [1, 2, 3]})\n"
    "totals = frame.groupby('k')['v'].sum()",
    "import os\nos.mkdir('data')\nopen('data/a.txt', 'w').write('hello')\nos.symlink('a.txt', 'data/link')\n"
    "opened = open('data/a.txt')\nopened.read(2)",
    "def count():\n    n = 0\n    while True:\n        n += 1\n        yield n\n"
    "counting = count()\nfirst = [next(counting), next(counting)]",
    "import random\nrandom.seed(5)\ndrawn = random.random()",
    "asked = fetch(base)",
    "1 / 0",
    "total = float(array.sum()) + asked + len(first)\nprint('total', total)",
)

JOB_SECONDS: Final = 120.0
"""How long the first attempt at one task takes. The platform is killed meanwhile, and later attempts are short."""


def fetch(number: int) -> int:
    """Ten times the value, from outside."""
    return number * 10


def embedded(folder: Path) -> None:
    """history.sqlite, and a store with the runtimes `analysis`, `asleep` (hibernated) and `killed` (durable)."""
    from cenote.harness import Patch
    from cenote.runtime import Function, PythonRuntime, Variable
    from cenote_security.policy import SandboxPolicy

    sandbox = SandboxPolicy(preload=("numpy", "pandas"))
    store = str(folder / "store")
    with PythonRuntime(
        sandbox=sandbox, history=str(folder / "history.sqlite"), store=store, name="analysis"
    ) as runtime:
        runtime.inject(Variable("base", 5), Function(fetch, host=True, effect="pure"))
        for code in SESSION:
            runtime.execute(code, cause="model call 17")
        runtime.checkpoint("loaded")
        runtime.snapshot("before the patch")
        asked = next(step.number for step in runtime.state.steps if "fetch" in step.code)
        runtime.state.apply(runtime.state.plan(Patch.replace_step(asked, "asked = fetch(base + 1)")))
        with runtime.fork() as branch:
            branch.execute("branched = total + 1")
        runtime.execute("later = [1, 2]")
        runtime.checkpoint()
        runtime.rollback("before the patch")
        runtime.execute("after = 'the rollback'")
    with PythonRuntime(sandbox=sandbox, store=store, name="asleep", durable=True) as runtime:
        runtime.execute("x = 20\nimport numpy as np\ny = np.full(3, x)")
        runtime.execute("g = (i * i for i in range(10))\nnext(g), next(g)")
        runtime.hibernate()
    if not (child := os.fork()):
        runtime = PythonRuntime(
            sandbox=sandbox, store=store, name="killed", durable=True, history=str(folder / "killed.sqlite")
        )
        runtime.execute("x = 1")
        runtime.execute("x += 1\nopen('f', 'w').write('kept')")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cenote.cli.main", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def platform(folder: Path) -> None:
    """The folders of a platform, killed while a runtime was awake and a job was worked on, and two tokens."""
    import cenote
    from cenote.jobs import ModelSpec
    from cenote.runtime import PythonRuntime
    from cenote_security.policy import SandboxPolicy

    for name in ("state", "config"):
        os.environ[f"XDG_{name.upper()}_HOME"] = str(folder / name)
    address = json.loads(command("up", "--without-ray", "--port", "0", "--json"))["address"]
    os.environ["CENOTE_ADDRESS"] = address
    command("tenant", "create", "acme")
    command("tenant", "limit", "acme", "runtimes", "4")
    token, revoked = (command("token", "create", "acme").split()[-1] for _ in range(2))
    command("token", "revoke", "acme", revoked.split("_")[1])
    (folder / "token").write_text(token)
    (folder / "revoked").write_text(revoked)
    sandbox = SandboxPolicy(memory=2**28)
    given: dict[str, Any] = {"address": address, "token": token, "sandbox": sandbox}
    with PythonRuntime(**given, name="ledger", durable=True) as runtime:
        runtime.execute(
            "import numpy as np\nclass Entry:\n    def __init__(self, n):\n        self.n = n\n"
            "entries, values = [Entry(1), Entry(2)], np.arange(4)\nopen('f.txt', 'w').write('kept')"
        )
        runtime.execute("1 / 0")
        runtime.checkpoint("loaded")
        runtime.execute("entries.append(Entry(3))")
        runtime.hibernate()
    with PythonRuntime(**given, name="awake", durable=True) as runtime:
        runtime.execute("x = 41")
        runtime.execute("x += 1")
    command("runtime", "create", "passing")
    command("runtime", "exec", "passing", "-c", "y = 1")
    client = cenote.connect(address, token=token)
    finished = client.jobs.submit(
        [
            {"id": "good", "code": "total = sum(rows)", "variables": {"rows": [12, 30]}},
            {"id": "bad", "code": "1 / 0"},
        ],
        name="finished",
        result="total",
        attempts=1,
        sandbox=sandbox,
    )
    finished.wait(timeout=JOB_SECONDS)
    team = client.team("pair", sandbox=sandbox)
    team.add("lead", model=ModelSpec(name="scripted", script=["```python\nprint(6 * 7)\n```", "It is 42."]))
    asyncio.run(team.run("What is six times seven?"))
    until = time.time() + JOB_SECONDS
    slow = f"import time\nwhile time.time() < {until}:\n    time.sleep(0.1)\ntotal = 2"
    tasks = [
        {"id": "first", "code": "total = 1"},
        {"id": "slow", "code": slow},
        {"id": "last", "code": "total = 3"},
    ]
    interrupted = client.jobs.submit(
        tasks, name="interrupted", result="total", concurrency=1, sandbox=sandbox
    )
    while (status := interrupted.status()).succeeded == 0 or status.running == 0:
        time.sleep(0.2)
    for lock in ("watch.lock", "daemon.lock"):
        running = folder / "state" / "cenote" / lock
        os.kill(json.loads(running.read_text())["pid"], signal.SIGKILL)
        running.unlink()
    for log in (folder / "state").rglob("*.log"):
        log.unlink()


def main() -> None:
    folder = Path(sys.argv[1])
    for write in (embedded, platform):
        (folder / write.__name__).mkdir()
        write(folder / write.__name__)


if __name__ == "__main__":
    main()
