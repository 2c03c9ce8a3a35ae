"""Traces of cells in real jails."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy
import pytest
from benchmarks.runtime.process_tree import live_descendants
from tests.support.processes import status_of
from tests.waiting import until

from cenote import PythonRuntime, SandboxPolicy, Variable
from cenote_worker.execution.trace import ABSENT, ANYTHING, StepTrace, file, hidden, kind_of, module, name


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=("numpy",))) as made:
        yield made


def traced(runtime: PythonRuntime, code: str) -> StepTrace:
    trace = runtime.execute(code).trace
    assert trace is not None
    return trace


def test_a_result_says_what_the_cell_touched(runtime: PythonRuntime) -> None:
    """A change by an alias changes both names, which can only be carried over together."""
    traced(runtime, "rows = [1]\nalias = rows")
    trace = traced(runtime, "alias.append(2)")
    assert {name("rows"), name("alias")} == trace.writes.keys() == trace.mutated
    assert (frozenset((name("rows"), name("alias"))),) == trace.groups
    assert trace.reads[name("alias")] != trace.writes[name("alias")]


def test_what_was_displayed_before_is_not_read_by_a_cell_that_displays_nothing(
    runtime: PythonRuntime,
) -> None:
    traced(runtime, "calm = []\nimport threading\nthreading.Event()")
    assert {name("calm")} == traced(runtime, "calm.append(1)").writes.keys()


def test_versions_follow_each_other(runtime: PythonRuntime) -> None:
    """A step reads the version that the step before wrote."""
    written = traced(runtime, "total = [1]").writes[name("total")]
    assert written == traced(runtime, "x = len(total)").reads[name("total")]


def test_an_injected_value_is_seen_as_it_is(runtime: PythonRuntime) -> None:
    runtime.inject(Variable("brought", [1, 2]))
    before = traced(runtime, "n = len(brought)").reads[name("brought")]
    runtime.update_variable("brought", [1, 2, 3])
    assert before != traced(runtime, "n = len(brought)").reads[name("brought")]


def test_what_was_put_in_is_looked_at_before_a_cell_comes() -> None:
    """The kernel shows it: mapped memory is resident once it was read."""
    size, before = 2**25, live_descendants(os.getpid())
    with PythonRuntime(sandbox=SandboxPolicy(preload=("numpy",), snapshots="none")) as runtime:
        runtime.inject(Variable("large", numpy.ones(size, "u1")))
        until(lambda: any(shared_memory(pid) >= size for pid in live_descendants(os.getpid()) - before))
        assert str(size) == runtime.execute("int(large.sum())").value


def shared_memory(pid: int) -> int:
    """Resident bytes of memory files that a process has mapped; 0 when it has ended."""
    return 1024 * int(status_of(pid).get("RssShmem", "0 kB").removesuffix(" kB"))


def test_what_happens_between_cells_is_none_of_the_next_one(runtime: PythonRuntime) -> None:
    """As when pickling a value changes the process: hidden state is read again."""
    state = "def __getstate__(self): os.environ['SEEN'] = '1'"
    traced(runtime, f"import os\nclass Odd:\n    {state}\nodd = Odd()")
    before = traced(runtime, "y = 1").reads[hidden("environ")]
    runtime.share("odd").release()
    after = traced(runtime, "y = 2")
    assert hidden("environ") not in after.writes
    assert before != after.reads[hidden("environ")]


def test_each_author_finds_the_surroundings_that_they_left(runtime: PythonRuntime) -> None:
    """They are exchanged between the cells, and neither cell changes them."""
    traced(runtime, "import os\nos.makedirs('below', exist_ok=True)")
    with runtime.attach("ann") as ann:
        ann.execute("import os\nos.chdir('below')\nos.environ['HERE'] = 'below'")
        assert {name("y")} == traced(runtime, "y = 3").writes.keys()


def test_files_of_the_working_directory(runtime: PythonRuntime) -> None:
    traced(runtime, "open('data.txt', 'w').write('x')")
    assert file("data.txt") in traced(runtime, "t = open('data.txt').read()").reads


def test_a_cell_that_writes_a_file_by_magic(runtime: PythonRuntime) -> None:
    """It is known to do only that; appending reads the file. Other magics may do anything."""
    anew = traced(runtime, "%%writefile notes.txt\none")
    more = traced(runtime, "%%writefile -a notes.txt\ntwo")
    other = traced(runtime, "%env HOME")
    notes = file("notes.txt")
    assert (True, False, ()) == (notes in anew.writes, notes in anew.reads, anew.opaque)
    assert (True, anew.writes[notes]) == (notes in more.writes, more.reads[notes])
    assert ("it uses a magic",) == other.opaque


def test_a_child_process_reads_all_files_and_its_writes_are_seen(runtime: PythonRuntime) -> None:
    trace = traced(runtime, "import subprocess\n_ = subprocess.run(['touch', 'made'])")
    assert file(".") in trace.reads
    assert file("made") in trace.writes


def test_a_failed_cell_keeps_its_effects(runtime: PythonRuntime) -> None:
    """Names that it did not reach count as read: they depend on where it failed."""
    trace = traced(runtime, "partial = 1\n1 / 0\nlater = 2")
    assert name("partial") in trace.writes
    assert name("later") in trace.reads
    assert () == trace.unrepeatable


def test_a_deleted_name_is_absent(runtime: PythonRuntime) -> None:
    traced(runtime, "going = 1")
    assert ABSENT == traced(runtime, "del going").writes[name("going")]


def test_code_that_sees_everything_says_so(runtime: PythonRuntime) -> None:
    trace = traced(runtime, "exec('made_up = 1')")
    assert ANYTHING in trace.writes
    assert ("it uses `exec`",) == trace.opaque


def test_a_thread_that_goes_on_may_touch_anything(runtime: PythonRuntime) -> None:
    code = "import threading\nstop = threading.Event()\nt = threading.Thread(target=stop.wait)\nt.start()"
    assert ANYTHING in traced(runtime, code).writes
    assert ANYTHING in traced(runtime, "calm = 1").writes
    traced(runtime, "stop.set()\nt.join()\ndel t, stop, threading")
    assert ANYTHING not in traced(runtime, "calm = 2").writes


def test_the_first_await_sets_nothing_in_libraries(runtime: PythonRuntime) -> None:
    """Though `asyncio.run` is replaced from then on. A replacement by a step is traced."""
    traced(runtime, "import asyncio\nclass Job:\n    def __init__(self): self.done = True")
    trace = traced(runtime, "await asyncio.sleep(0)\njob = Job()")
    assert [name("job")] == [each for each in trace.writes if kind_of(each) in ("name", "module")]
    trace = traced(runtime, "plain = asyncio.run\nasyncio.run = lambda main: None\nJob()")
    assert module("asyncio") in trace.writes
    traced(runtime, "asyncio.run = plain")


def test_random_numbers(runtime: PythonRuntime) -> None:
    trace = traced(runtime, "import random\nr = random.random()")
    assert hidden("random") in trace.writes


def test_hostile_objects_never_run_code_in_the_tracker(runtime: PythonRuntime) -> None:
    """Special methods that raise or record calls are not called by inspecting an object."""
    runtime.execute(
        "calls = []\n"
        "class Meta(type):\n"
        "    def __getattribute__(cls, key):\n"
        "        calls.append(key)\n"
        "        return super().__getattribute__(key)\n"
        "class Evil(metaclass=Meta):\n"
        "    __hash__ = None\n"
        "    def __getattribute__(self, key):\n"
        "        calls.append(key)\n"
        "        raise SystemExit\n"
        "    __eq__ = __reduce__ = __repr__ = __len__ = __iter__ = lambda *a: calls.append('special')\n"
        "evil = [Evil()]"
    )
    runtime.execute("calls.clear()")
    runtime.execute("other = evil")
    assert "0" == runtime.execute("len(calls)").value


def test_changed_builtins_do_not_reach_the_tracker(runtime: PythonRuntime) -> None:
    runtime.execute(
        "import builtins\nkept = builtins.id, builtins.sorted\nbuiltins.id = builtins.sorted = None"
    )
    trace = traced(runtime, "fine = [1]")
    runtime.execute("builtins.id, builtins.sorted = kept")
    assert name("fine") in trace.writes


def test_an_iterator_over_some_that_have_ended_is_looked_at(runtime: PythonRuntime) -> None:
    """`zip_longest` has a null pointer for each of these, and reading it ended the process."""
    runtime.execute("import itertools\nz = itertools.zip_longest('abcd', 'x', [], fillvalue='-')")
    for expected in ("('a', 'x', '-')", "('b', '-', '-')"):
        result = runtime.execute("next(z)")
        assert ("kept", expected) == (result.state, result.value)
    trace = traced(runtime, "r = next(z)")
    assert {name("r"), name("z")} <= trace.writes.keys()
    assert name("z") not in traced(runtime, "other = 1").writes
    assert "[('d', '-', '-')]" == runtime.execute("list(z)").value


def test_it_can_be_turned_off() -> None:
    with PythonRuntime(sandbox=SandboxPolicy(preload=(), tracking=False)) as runtime:
        assert runtime.execute("x = 1").trace is None


MANY = "from pathlib import Path\nfor i in range(50):\n    Path(f'f{i}').write_text('x')"

BY_C = """\
import ctypes
c = ctypes.CDLL(None)
c.fopen.restype = ctypes.c_void_p
opened = c.fopen(b"f3", b"w")
c.fputs(b"y", ctypes.c_void_p(opened))
c.fclose(ctypes.c_void_p(opened))"""

MAPPER = """\
import mmap, os, sys
with open("f3", "r+b") as file:
    memory = mmap.mmap(file.fileno(), 1)
print("mapped", flush=True)
sys.stdin.readline()
memory[0] = ord("y")
print("written", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "cell",
    [
        "Path('f3').write_text('y')",
        "import subprocess\nsubprocess.run('echo y > f3', shell=True, check=True)",
        "import os\nos.replace('f4', 'f3')",
        "way = os.open('f3', os.O_WRONLY)\nos.write(way, b'y')",
        "with open('f3', 'r+b') as file, mmap.mmap(file.fileno(), 1) as memory:\n    memory[0] = ord('y')",
        "memory = numpy.memmap('f3', dtype='u1', mode='r+')\nmemory[0] = 5",
        BY_C,
    ],
    ids=["Python", "a process", "renaming", "a descriptor", "memory", "an array", "C"],
)
def test_a_change_beside_many_files(runtime: PythonRuntime, cell: str) -> None:
    """The folder is watched then, and not looked through."""
    runtime.execute(f"import mmap, os, numpy\n{MANY}")
    assert not [each for each in traced(runtime, "x = 1").writes if kind_of(each) == "file"]
    assert file("f3") in traced(runtime, cell).writes
    runtime.execute("del memory") if "memory = numpy" in cell else None
    assert file("f3") not in traced(runtime, "x = 2").writes


def test_files_that_are_put_beside_many(runtime: PythonRuntime) -> None:
    """The next cell that reads one reads the new version, and a restored state has the old one."""
    runtime.execute(MANY)
    before = traced(runtime, "x = Path('f3').read_text()").reads[file("f3")]
    kept = runtime.snapshot()
    runtime.files.write("f3", b"y", overwrite=True)
    assert before != traced(runtime, "x = Path('f3').read_text()").reads[file("f3")]
    runtime.rollback(kept.step)
    assert b"x" == runtime.files.read("f3")
    assert before == traced(runtime, "x = Path('f3').read_text()").reads[file("f3")]
    runtime.files.write("f3", b"z", overwrite=True)
    assert before != traced(runtime, "x = Path('f3').read_text()").reads[file("f3")]


def test_a_process_that_lives_on_and_writes_to_mapped_memory_beside_many_files(
    runtime: PythonRuntime,
) -> None:
    runtime.execute(f"import subprocess, sys\n{MANY}")
    pipes = "stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True"
    runtime.execute(
        f"child = subprocess.Popen([sys.executable, '-c', {MAPPER!r}], {pipes})\nchild.stdout.readline()"
    )
    traced(runtime, "x = 1")
    told = "child.stdin.write('\\n')\nchild.stdin.flush()\nchild.stdout.readline()"
    assert file("f3") in traced(runtime, told).writes
    runtime.execute("child.kill()\nchild.wait()")
