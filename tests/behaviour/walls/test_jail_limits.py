"""Limits apply at the policy's values, at each level."""

from __future__ import annotations

import errno

import pytest
from tests.support.processes import children_of, parent_of, state_of
from tests.support.walls.fixtures import StartJail
from tests.support.walls.jails import InJailError, zygote_pid
from tests.waiting import until

from cenote_worker.zygote.client import ZygoteClient


def test_memory(start_jail: StartJail, level: str) -> None:
    """Up to the limit an allocation succeeds, beyond it fails: MemoryError, and the worker lives on."""
    jail = start_jail(level, memory="256MiB")
    jail.ask("a = bytearray(200 << 20); del a")
    with pytest.raises(InJailError, match="MemoryError"):
        jail.ask("a = bytearray(300 << 20)")
    assert 42 == jail.ask("result = 42")


def test_memory_is_what_comes_on_top_of_the_preload(start_jail: StartJail) -> None:
    """The zygote's imports do not count towards a small limit."""
    assert 1 == start_jail("strict", memory="64MiB").ask(
        "import pandas; result = len(pandas.DataFrame({'a': [1]}))"
    )


FORK = """
import os, time
result = 1
try:
    while result < 100:
        if not os.fork():
            time.sleep(30)
            os._exit(0)
        result += 1
except BlockingIOError:
    pass"""

THREAD = """
import threading
result = 1
stop = threading.Event()
try:
    while result < 100:
        threading.Thread(target=stop.wait, daemon=True).start()
        result += 1
except RuntimeError:
    pass"""


@pytest.mark.parametrize("source", [FORK, THREAD], ids=["processes", "threads"])
def test_processes_and_threads(start_jail: StartJail, strict: ZygoteClient, source: str) -> None:
    """Both count; the limit is the jail's own, whatever else its user runs."""
    jail = start_jail("strict", processes=16)
    # Until it is reaped, a moment after the start, the process that started the jail counts too.
    until(lambda: parent_of(jail.warden) == zygote_pid(strict))
    until(lambda: all(state_of(pid) != "Z" for pid in children_of(zygote_pid(strict))))
    assert 16 == jail.ask(source)


def test_a_jail_s_processes_do_not_count_for_another(start_jail: StartJail) -> None:
    """A jail at its limit does not keep the next from forking."""
    assert start_jail("strict", processes=8).ask(FORK) in (7, 8)
    assert 0 == start_jail("strict", processes=8).ask("import subprocess; result = subprocess.call('true')")


def test_a_file(start_jail: StartJail, level: str) -> None:
    """No file grows beyond the larger of disk and memory, a memory file neither."""
    jail = start_jail(level, memory="64MiB", disk="64MiB")
    source = "import os; os.ftruncate(os.memfd_create('x'), {})"
    jail.ask(source.format(60 << 20))
    with pytest.raises(InJailError) as caught:
        jail.ask(source.format(900 << 20))
    assert errno.EFBIG == caught.value.errno


def test_descriptors_and_core_dumps(start_jail: StartJail, level: str) -> None:
    """At most 4096 descriptors, no core dump by any way, almost no locked memory."""
    jail = start_jail(level)
    assert [4096, 1, 65536] == jail.ask(
        "import resource as r; result = [min(r.getrlimit(r.RLIMIT_NOFILE)[1], 4096), r.getrlimit(r.RLIMIT_CORE)[1],"
        " min(r.getrlimit(r.RLIMIT_MEMLOCK)[1], 65536)]"
    )
    with pytest.raises(InJailError, match=r"ValueError|PermissionError"):
        jail.ask("import resource as r; r.setrlimit(r.RLIMIT_CORE, (0, 0))")


def test_cpus_are_counted_as_the_policy_says(start_jail: StartJail) -> None:
    """The C library says so too, for programs that are not Python."""
    jail = start_jail("strict", cpus=1)
    assert ["1", 1] == jail.ask(
        "import os, subprocess\n"
        "result = [subprocess.check_output(['getconf', '_NPROCESSORS_ONLN'], text=True).strip(), os.cpu_count()]"
    )
