"""CPU time of other processes."""

from __future__ import annotations

import os
import time
from contextlib import closing

from benchmarks.jail.cpu_clock import Crew, clock_of
from benchmarks.jail.sandboxes.piped import NoSandbox
from benchmarks.runtime.process_tree import live_descendants

BURN = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass"

BURN_IN_A_CHILD = f"""
import os, signal
ready, done = os.pipe()
child = os.fork()
if child == 0:
{chr(10).join("    " + line for line in BURN.splitlines())}
    os.write(done, b"x")
    signal.pause()
os.read(ready, 1)
"""


def test_the_clock_of_a_process_is_the_one_that_it_reads_itself() -> None:
    """The number is computed as the C library does it."""
    before = time.process_time()
    taken = time.clock_gettime(clock_of(os.getpid()))
    assert before <= taken <= time.process_time()


def test_what_a_sandbox_burns_is_counted_to_it() -> None:
    """Including its client's time in this process; other sandboxes are not part of its crew."""
    with closing(NoSandbox("/dev/shm")) as other, closing(NoSandbox("/dev/shm")) as sandbox:
        other.execute("pass")
        crew = Crew(live_descendants(os.getpid()) - {_pid_of(sandbox)})
        look = crew.look()
        sandbox.execute(BURN)
        assert 0.05 <= crew.since(look)
        assert {os.getpid(), _pid_of(sandbox)} == look.keys()


def _pid_of(sandbox: NoSandbox) -> int:
    return int(sandbox.execute("import os\nprint(os.getpid())"))


def test_a_process_that_is_born_meanwhile_counts_from_its_birth() -> None:
    """A sandbox may start helper processes with the first call that needs one."""
    before = live_descendants(os.getpid())
    with closing(NoSandbox("/dev/shm")) as sandbox:
        sandbox.execute("pass")
        crew = Crew(before)
        look = crew.look()
        sandbox.execute(BURN_IN_A_CHILD)
        assert 0.05 <= crew.since(look)
        sandbox.execute("os.kill(child, signal.SIGKILL); os.waitpid(child, 0)")
