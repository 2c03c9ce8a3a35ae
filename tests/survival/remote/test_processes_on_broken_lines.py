"""Processes of a platform whose connection breaks: they end, their client gets the reason, and the next one runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.remote.cable import Cable
from tests.support.remote.small_platform import SmallPlatform
from tests.waiting import PATIENCE, until

from cenote.runtime import PythonRuntime
from cenote_security.errors import JailLostError

Connect = Callable[..., PythonRuntime]


def test_a_cut_line_ends_the_process(own_platform: SmallPlatform, cable: Cable, connect: Connect) -> None:
    """Nothing of it is left there; the client gets an error, and continues with the namespace as it was."""
    runtime = connect(own_platform)
    runtime.execute("x = 1")
    process = runtime.spawn(["sh", "-c", "echo up; sleep 3600"])
    assert b"up\n" == process.stdout.read_some()
    (hosted,) = own_platform.hosted.values()
    supervisor = hosted.supervisor
    assert supervisor is not None
    cable.cut()
    with pytest.raises(JailLostError, match="the line to the process broke"):
        process.wait(PATIENCE)
    until(lambda: not supervisor.programs.running)
    assert ("1", "again\n") == (runtime.execute("x").value, runtime.run("echo again").stdout)


def test_one_that_is_cut_in_the_middle_of_much_output(
    own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    runtime = connect(own_platform)
    runtime.execute("x = 1")
    cable.cut_after(2_000_000)
    with pytest.raises(JailLostError):
        runtime.run(["cat", "/dev/zero"], timeout=PATIENCE)
    assert 0 == runtime.run("true").exit_code
