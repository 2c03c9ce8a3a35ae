"""A cell that attacks its snapshots harms its own runtime only, and no call hangs."""

from __future__ import annotations

import pytest
from tests.support.snapshots.fixtures import MakeRuntime
from tests.waiting import PATIENCE, until

from cenote.runtime import PythonRuntime

LINE = "import socket, json, array, os\nline = socket.socket(fileno=os.dup(4))\n"

FORGERIES = {
    "noise": "line.send(b'\\xff' * 100)",
    "no object": "line.send(b'[1]')",
    "deep nesting": "line.send(b'[' * 4000)",
    "a flood": "line.setblocking(False)\ntry:\n    while True: line.send(b'{}')\nexcept OSError: pass",
    "a huge number": "line.send(json.dumps({'op': 'label', 'step': 10**400}).encode())",
    "a strange label": "line.send(json.dumps({'op': 'label', 'step': 0, 'label': [1]}).encode())",
    "somebody else's pid": "socket.send_fds(line, [b'{\"op\": \"copy\", \"pid\": 1, \"step\": 3}'], [0])",
    "no pid": "socket.send_fds(line, [b'{\"op\": \"copy\", \"step\": 3}'], [0])",
    "its own pid": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    "socket.send_fds(line, [json.dumps({'op': 'copy', 'pid': os.getpid(), 'step': 3}).encode()], [a.fileno()])",
    "giving all up": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    "for _ in range(100): socket.send_fds(line, [b'{\"op\": \"forgo\"}'], [a.fileno()])",
    "bindings of no copy": "line.send(json.dumps(dict(op='bound', copy=1, step=3, at=9, bindings='AAAA')).encode())",
    "strange bindings": "line.send(json.dumps(dict(op='bound', copy=3, step=3, at=9, bindings=[1])).encode())",
    "many descriptors": "socket.send_fds(line, [b'{\"op\": \"copy\", \"pid\": 2, \"step\": 3}'], [0] * 100)",
}  # fmt: skip


SIGNAL_ALL = """
import os
for pid in set(range(2, 60)) - {{os.getpid()}}:
    try: os.kill(pid, {})
    except OSError: pass
"""


@pytest.fixture(autouse=True)
def witness(make_runtime: MakeRuntime) -> PythonRuntime:
    """Another runtime of the same zygote, which must stay unaffected."""
    witness = make_runtime()
    witness.execute("w = 1")
    yield witness
    assert "1" == witness.execute("w").value


@pytest.mark.sweep
@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES.keys())
def test_forged_messages(runtime: PythonRuntime, forgery: str) -> None:
    """They are ignored; rolling back to the state still works."""
    runtime.execute("x = 1")
    assert runtime.execute(LINE + forgery, timeout=PATIENCE).state in ("kept", "rolled_back")
    assert "1" == runtime.execute("x").value
    assert "rolled_back" == runtime.execute("x = 2; import os; os._exit(1)").state
    assert "1" == runtime.execute("x").value


def test_killing_the_copies(runtime: PythonRuntime) -> None:
    """States that need a copy go with them; the warden itself stores the runtime's start and the bindings since."""
    runtime.execute("x = []")
    runtime.execute("x.append(object())")
    runtime.snapshot()
    crashed = runtime.execute(f"{SIGNAL_ALL.format(9)}\nos._exit(1)")
    assert ("rolled_back", 1) == (crashed.state, crashed.back_at)
    assert "[]" == runtime.execute("x").value


def test_stopping_the_copies(runtime: PythonRuntime) -> None:
    """A stopped copy is resumed when it is needed."""
    runtime.execute("x = 1")
    stop = SIGNAL_ALL.format(19)
    assert "rolled_back" == runtime.execute(f"x = 2\n{stop}\nos._exit(1)", timeout=PATIENCE).state
    assert "1" == runtime.execute("x").value


def test_bindings_that_no_copy_can_have(runtime: PythonRuntime) -> None:
    """The process that continues with them dies, and the state before continues."""
    runtime.execute("x = 1")
    said = "{'op': 'bound', 'copy': copy, 'step': 8, 'at': 2**60, 'bindings': %s}"
    flood = f"for copy in range(3, 60):\n    line.send(json.dumps({said}).encode())\nos._exit(1)"
    for bindings in ("'AAAA'", "'!'", "'\\xe9' * 2000"):
        assert "rolled_back" == runtime.execute(LINE + flood % bindings, timeout=PATIENCE).state
        assert "1" == runtime.execute("x").value


def test_a_successor_that_dies_at_once(runtime: PythonRuntime) -> None:
    """A copy that yields only dead processes is dropped, and the one before it continues."""
    runtime.execute("x = 1")
    runtime.execute(
        "import cenote_worker.jail.kernel as k, os\nx = 2\n"
        "k.Kernel.revive = lambda self: os._exit(7)"
    )  # fmt: skip
    result = runtime.execute("os._exit(1)", timeout=PATIENCE)
    assert ("rolled_back", 1) == (result.state, result.back_at)
    assert "1" == runtime.execute("x").value


def test_closed_descriptors(runtime: PythonRuntime) -> None:
    """Without its line to the warden the worker cannot be copied any more; results say so."""
    runtime.execute("x = 1")
    assert runtime.execute("import os; os.close(4); os.close(5)").success
    assert runtime.execute("x").unkept
    assert "1" == runtime.execute("x").value


def test_few_processes(make_runtime: MakeRuntime) -> None:
    """Snapshots take at most a quarter of a jail's process limit."""
    runtime = make_runtime(processes=8)
    for _ in range(5):
        runtime.execute("x = 1")
    assert 2 == len(runtime.snapshots())
    forked = (
        "import os\nn = 0\ntry:\n    while os.fork(): n += 1\n    os._exit(0)\nexcept OSError: pass\n"
        "for _ in range(n): os.wait()\nn >= 4"
    )
    # Dropped copies take a moment to end.
    until(lambda: "True" == runtime.execute(forked).value)


TRAPS = {
    "ends whoever looks at it": "class T:\n    def __getattribute__(self, name): raise SystemExit(name)",
    "its class has no module": "class M(type):\n    __module__ = property(lambda _: [].pop())\n"
    "class T(metaclass=M): pass",
    "its module is a number": "class T: __module__ = 5",
    "says that it is a socket": "class T:\n    __module__ = 'socket'\n    def fileno(self): raise SystemExit",
    "says that it is a file": "class T:\n    __module__, __slots__ = 'tempfile', ()",
    "is not there any more": "def T():\n    view = memoryview(b'x')\n    view.release()\n    return view",
}


@pytest.mark.sweep
@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS.keys())
def test_values_that_harm_whoever_looks_at_them(runtime: PythonRuntime, trap: str) -> None:
    """The process that continues from a copy is asked which of its values are unusable."""
    runtime.execute(f"import mmap\n{trap}\ntrap, traps = T(), [T()]")
    runtime.snapshot()
    result = runtime.execute("import os; os._exit(1)")
    assert ("rolled_back", 1) == (result.state, result.back_at)
    assert "True" == runtime.execute("'trap' in globals()").value


def test_a_state_that_answers_nothing(runtime: PythonRuntime) -> None:
    """It is dropped for the one before."""
    runtime.execute("x = [1]")
    sabotage = "import cenote_worker.jail.worker as worker, os\nworker.severed_names = lambda *_: os._exit(1)"
    runtime.execute(f"{sabotage}\nx.append(2)")
    runtime.snapshot()
    result = runtime.execute("os._exit(1)", timeout=PATIENCE)
    assert ("rolled_back", 1) == (result.state, result.back_at)
    assert "[1]" == runtime.execute("x").value


def test_a_state_that_says_it_has_answered(runtime: PythonRuntime) -> None:
    """It answers falsely each time: no caller waits for it indefinitely."""
    runtime.execute(LINE + "import cenote_worker.jail.worker as worker")
    lie = 'os.write(4, b\'{"op": "served"}\')'
    runtime.execute(f"def end(*_): {lie}, os._exit(1)\nworker.severed_names = end")
    runtime.snapshot()
    assert "lost" == runtime.execute("os._exit(1)", timeout=PATIENCE).state
    assert "2" == runtime.execute("1 + 1").value
