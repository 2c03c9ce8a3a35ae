"""A cell that takes over its worker's descriptors harms only its own runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.descriptors import all_closed
from tests.waiting import PATIENCE

from cenote.runtime import Function, PythonRuntime

FRAMES = """
import array, os, socket, stat
def frames():
    '''The worker's socket to its supervisor, found as an attacker would.'''
    for name in os.listdir('/proc/self/fd'):
        try:
            sock = socket.socket(fileno=os.dup(int(name)))
            if sock.type & 0xf == socket.SOCK_SEQPACKET:
                return sock
        except OSError:
            pass
sock = frames()
"""


@pytest.fixture
def witness() -> Iterator[PythonRuntime]:
    """A second runtime of the same client, which must not be affected."""
    with PythonRuntime() as runtime:
        runtime.execute("kept = 1")
        yield runtime
        assert "1" == runtime.execute("kept").value


ATTACKS = {
    "noise": "sock.send(bytes(range(256)))",
    "ready, a second time": "sock.send(b'\\x0a\\x00')",
    "descriptors that nothing names": (
        "rights = array.array('i', [0, 1, 2])\n"
        "for _ in range(100):\n"
        "    sock.sendmsg([b'\\x0a\\x00'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])"
    ),
    "too many descriptors": (
        "rights = array.array('i', [0] * 200)\n"
        "sock.sendmsg([b'\\x0a\\x00'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])"
    ),
    "a packet that is too long": "sock.send(b'x' * 150_000)",
    "an answer before its time": (
        "from cenote_proto.v1 import jail_pb2\n"
        "frame = jail_pb2.WorkerFrame()\nframe.reply.id = 999\nframe.reply.done.SetInParent()\n"
        "sock.send(frame.SerializeToString())"
    ),
    "an answer of another kind": (
        "from cenote_proto.v1 import jail_pb2\n"
        "frame = jail_pb2.WorkerFrame()\nfor n in range(10):\n"
        "    frame.reply.id = n\n    frame.reply.done.SetInParent()\n    sock.send(frame.SerializeToString())"
    ),
    "memory that is not sealed": (
        "from cenote_proto.v1 import jail_pb2\n"
        "fd = os.memfd_create('x', os.MFD_ALLOW_SEALING); os.ftruncate(fd, 4096)\n"
        "frame = jail_pb2.WorkerFrame()\nframe.display.types.append('text/plain')\n"
        "frame.display.content.size = 4096\nframe.display.content.attached = True\nframe.display.content.count = 1\n"
        "sock.sendmsg([frame.SerializeToString()],\n"
        "    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])"
    ),
    "huge claims": (
        "from cenote_proto.v1 import jail_pb2\n"
        "frame = jail_pb2.WorkerFrame()\nframe.display.content.size = 2**63\nframe.display.content.count = 2**31\n"
        "sock.send(frame.SerializeToString())"
    ),
    "deep nesting": "sock.send(b'\\x22' * 100_000)",
}


@pytest.mark.sweep
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_violation_ends_that_jail_only(runtime: PythonRuntime, witness: PythonRuntime, attack: str) -> None:
    """The result names the protocol, no descriptor remains, the next cell has a new jail."""
    runtime.execute("1")
    with all_closed(spare=1):
        result = runtime.execute(f"{FRAMES}\n{attack}\nimport time\ntime.sleep(600)", timeout=PATIENCE)
        assert ("protocol", "lost") == (result.error.reason, result.state)
        assert "2" == runtime.execute("1 + 1").value


def test_a_forged_result_is_believed_once(runtime: PythonRuntime, witness: PythonRuntime) -> None:
    """A jail may lie about its own cell; the worker's true answer then arrives unexpectedly and ends it."""
    forgery = (
        "from cenote_proto.v1 import jail_pb2\nframe = jail_pb2.WorkerFrame()\n"
        "frame.reply.id = 1\nframe.reply.executed.success = True\nframe.reply.executed.value = 'forged'\n"
        "sock.send(frame.SerializeToString())"
    )
    assert "forged" == runtime.execute(f"{FRAMES}\n{forgery}").value
    after = [runtime.execute("'alive'") for _ in range(2)]
    assert "lost" in {result.state for result in after}
    assert "'alive'" == after[-1].value


def test_a_forged_result_that_guesses_wrong(runtime: PythonRuntime, witness: PythonRuntime) -> None:
    """The true answer, which has been sent already, does not save a jail that broke the protocol."""
    forgery = (
        "from cenote_proto.v1 import jail_pb2\nframe = jail_pb2.WorkerFrame()\n"
        "frame.reply.id = 7\nframe.reply.executed.success = True\nsock.send(frame.SerializeToString())"
    )
    result = runtime.execute(f"{FRAMES}\n{forgery}")
    assert ("protocol", "lost") == (result.error.reason, result.state)


@pytest.mark.slow
def test_a_flood_of_frames(runtime: PythonRuntime, witness: PythonRuntime) -> None:
    """A hundred thousand frames are read, bounded, and do not delay others."""
    flood = (
        "from cenote_proto.v1 import jail_pb2\nframe = jail_pb2.WorkerFrame()\nframe.output.text = 'x' * 1000\n"
        "data = frame.SerializeToString()\nfor _ in range(100_000): sock.send(data)"
    )
    result = runtime.execute(f"{FRAMES}\n{flood}")
    assert result.success
    assert result.truncated
    assert len(result.stdout) < 11_000_000


def test_a_closed_socket(runtime: PythonRuntime) -> None:
    """A cell that closes the worker's socket loses its process at once, and nothing hangs."""
    close = "for name in os.listdir('/proc/self/fd'):\n    if int(name) > 2:\n        os.close(int(name))"
    result = runtime.execute(f"import os\n{close}", timeout=PATIENCE)
    assert "rolled_back" == result.state
    assert "2" == runtime.execute("1 + 1").value


def test_noise_on_the_host_channel(make_runtime, witness: PythonRuntime) -> None:
    """The channel of host calls is checked like the other one."""
    runtime = make_runtime(functions=[Function(lambda: 1, name="one", host=True)])
    attack = """
one()
import os, socket, time
for name in os.listdir('/proc/self/fd'):
    try:
        sock = socket.socket(fileno=os.dup(int(name)))
        if sock.type & 0xf == socket.SOCK_SEQPACKET:
            sock.send(b'\\xff' * 100)
    except OSError:
        pass
time.sleep(600)
"""
    result = runtime.execute(attack, timeout=PATIENCE)
    assert ("protocol", "lost") == (result.error.reason, result.state)
    assert "1" == runtime.execute("one()").value


def test_calls_to_what_was_never_offered(make_runtime) -> None:
    """A jail can only call the functions it was given, by their exact names."""
    called: list[str] = []

    class Account:
        def deposit(self) -> None:
            called.append("deposit")

        def _audit(self) -> None:
            called.append("_audit")

    from cenote.runtime import Variable

    runtime = make_runtime(variables=[Variable("account", Account(), host=True)])
    for method in ("_audit", "__init__", "__class__", "deposit.__globals__"):
        code = (
            "from cenote_worker.jail.values.host_stubs import _Caller\n"
            "stub = account.deposit\n"
            "channel = [c.cell_contents for c in stub.__closure__ if isinstance(c.cell_contents, _Caller)][0]\n"
            f"channel.call({method!r}, (), {{}})"
        )
        assert "the client offers no" in str(runtime.execute(code).error)
    assert [] == called
