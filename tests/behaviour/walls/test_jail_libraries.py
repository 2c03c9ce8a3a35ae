"""Usual operations of data work succeed behind the walls."""

from __future__ import annotations

import pytest
from tests.support.walls.fixtures import StartJail
from tests.support.walls.jails import Jail

AT_EVERY_LEVEL = {
    "numpy": "import numpy as np; a = np.random.rand(300, 300); result = (a @ a).shape[0] == 300",
    "pandas": "import pandas as pd, io; result = int(pd.read_csv(io.StringIO('a,b\\n1,2')).b.sum()) == 2",
    "parquet": """
import pandas as pd
pd.DataFrame({'a': ['x']}).to_parquet('f')
result = len(pd.read_parquet('f')) == 1""",
    "pyarrow compute": "import pyarrow as pa, pyarrow.compute as pc; result = pc.sum(pa.array([1, 2])).as_py() == 3",
    "threads": "from concurrent.futures import ThreadPoolExecutor as P; result = list(P(4).map(abs, [-1])) == [1]",
    "subprocess": "import subprocess; result = subprocess.check_output('echo $((6*7))', shell=True) == b'42\\n'",
    "python in a subprocess": """
import subprocess, sys
result = subprocess.check_output([sys.executable, '-c', 'import numpy; print(6 * 7)']) == b'42\\n'""",
    "asyncio": "import asyncio; result = asyncio.run(asyncio.sleep(0, 42)) == 42",
    "asyncio subprocess": """
import asyncio
async def status():
    return await (await asyncio.create_subprocess_exec('true')).wait()
result = asyncio.run(status()) == 0""",
    "fork": """
import os
pid = os.fork()
if not pid:
    os._exit(7)
result = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7""",
    "pipe of processes": """
import multiprocessing
a, b = multiprocessing.get_context('fork').Pipe()
a.send(42)
result = b.recv() == 42""",
    "sqlite": "import sqlite3; c = sqlite3.connect('db'); c.execute('create table t (a)'); result = True",
    "temporary files": """
import tempfile
with tempfile.NamedTemporaryFile() as f:
    f.write(b'x')
result = f.name.startswith(tempfile.gettempdir())""",
    "executable memory": "import ctypes; result = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 42)() == 42",
    "memory files": "import os; result = os.memfd_create('x') > 2",
    "time zones": """
import datetime, zoneinfo
result = bool(datetime.datetime.now(zoneinfo.ZoneInfo('Asia/Tokyo')))""",
    "matplotlib": """
import io, matplotlib
matplotlib.use('agg')
import matplotlib.pyplot as plt
plt.plot([1, 2])
f = io.BytesIO()
plt.savefig(f)
result = len(f.getvalue()) > 1000""",
    "scikit-learn": """
from sklearn.linear_model import LinearRegression
result = bool(abs(LinearRegression().fit([[1], [2]], [1, 2]).coef_[0] - 1) < 1e-9)""",
}

# These need /dev/shm, sockets with a name, or a user of the jail's own.
WITH_A_PRIVATE_ROOT = {
    "process pool": """
import multiprocessing
with multiprocessing.get_context('fork').Pool(2) as pool:
    result = pool.map(abs, [-1]) == [1]""",
    "spawned pool": """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('spawn')) as pool:
    result = pool.submit(abs, -1).result() == 1""",
    "shared memory": """
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=9)
memory.unlink()
result = True""",
    "socket files": """
import socket
a = socket.socket(socket.AF_UNIX)
a.bind('s')
a.listen()
socket.socket(socket.AF_UNIX).connect('s')
result = True""",
    "copying with modes": "import shutil; open('a', 'w').close(); shutil.copy2('a', 'b'); result = True",
}

DISTRIBUTIONS = {
    "matplotlib": "matplotlib", "scikit-learn": "sklearn", "parquet": "pyarrow", "pyarrow compute": "pyarrow"
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("what", AT_EVERY_LEVEL)
def test_it_works_at_every_level(jail: Jail, what: str) -> None:
    """The filter, Landlock and the limits do not refuse these."""
    pytest.importorskip(DISTRIBUTIONS.get(what, "os"))
    assert jail.ask(AT_EVERY_LEVEL[what]) is True


@pytest.mark.parametrize("what", WITH_A_PRIVATE_ROOT)
def test_it_works_with_a_private_root(strict_jail: Jail, what: str) -> None:
    """The landlock level lacks these: see `confined`."""
    assert strict_jail.ask(WITH_A_PRIVATE_ROOT[what]) is True


def test_every_module_that_the_client_can_import(strict_jail: Jail) -> None:
    """Imports behave in a jail as outside: same version, same path."""
    pandas = pytest.importorskip("pandas")
    assert [pandas.__version__, pandas.__file__] == strict_jail.ask(
        "import pandas; result = [pandas.__version__, pandas.__file__]"
    )


def test_preloaded_modules_cost_no_import(start_jail: StartJail) -> None:
    """They are loaded before the first line of a user's code runs."""
    assert start_jail("strict").ask("import sys; result = 'numpy' in sys.modules and 'pandas' in sys.modules")
