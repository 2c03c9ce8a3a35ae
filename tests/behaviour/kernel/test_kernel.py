"""Cells run one after the other in one namespace; a cell's effects on the process do not outlast it."""

import linecache
import pickle
import sys
import time

import pytest
from tests.waiting import PATIENCE

from cenote_worker.jail.kernel import Kernel, KernelLimits


class TestNamespace:
    def test_variables_last(self, good):
        """What one cell binds, the next one sees."""
        good("x = 40")
        assert "42" == good("x + 2").value

    def test_is_main(self, good, kernel):
        """The namespace is the module `__main__`, in an ordinary dict."""
        assert "'__main__'" == good("__name__").value
        assert sys.modules["__main__"] is kernel.module
        assert type(kernel.namespace) is dict
        good("ran = False\nif __name__ == '__main__':\n    ran = True")
        assert kernel.namespace["ran"] is True

    def test_a_global_is_an_attribute_of_main(self, good):
        assert "7" == good("x = 7\nimport __main__\n__main__.x").value

    def test_classes_can_be_pickled(self, good, kernel):
        """Pickle finds a class of a cell by its module and name."""
        good("class Point:\n    def __init__(self, x): self.x = x\np = Point(3)")
        assert 3 == pickle.loads(pickle.dumps(kernel.namespace["p"])).x

    def test_source_of_a_function_is_known(self, good):
        good("def f(a):\n    return a  # so")
        assert "'def f(a):\\n    return a  # so\\n'" == good("import inspect\ninspect.getsource(f)").value

    def test_future_imports_hold_for_later_cells(self, good):
        good("from __future__ import annotations")
        assert "'missing'" == good("def f(x: missing): ...\nf.__annotations__['x']").value

    def test_annotated_variables(self, good):
        assert "{'x': <class 'int'>}" == good("x: int = 1\n__annotations__").value

    def test_cleared_globals_leave_a_working_namespace(self, good):
        """`globals().clear()` removes variables, not builtins, helpers or `__name__`."""
        good("globals().clear()")
        assert "('__main__', 3)" == good("class C: ...\nreply('x')\n(C.__module__, len('abc'))").value

    def test_modules_in_the_working_directory_can_be_imported(self, good):
        assert "5" == good("open('mine.py', 'w').write('five = 5')\nimport mine\nmine.five").value

    def test_the_sources_of_old_cells_are_dropped(self, sink, process):
        """Only the latest cells keep their source; otherwise a long session would leak."""
        kernel = Kernel(sink, limits=KernelLimits(cell_sources=3))
        for step in range(1, 6):
            kernel.run_cell("x = 1", step)
        kept = [name for name in linecache.cache if name.startswith("<cell ")]
        assert ["<cell 3>", "<cell 4>", "<cell 5>"] == kept


class TestValue:
    @pytest.mark.parametrize(
        ("code", "value"),
        [
            ("1 + 1", "2"),
            ("x = 1", None),
            ("None", None),
            ("1 + 1;", None),
            ("(1 + 1) ;  # quiet", None),
            ("';'", "';'"),
            ("'é'; 'ü';", None),
            ("'a'  # ;", "'a'"),
            ("", None),
            ("# nothing", None),
            ("x = 5; x", "5"),
            ("if True:\n    5", None),
            ("'\ud800'.encode('utf-8', 'surrogatepass')", None),
        ],
    )
    def test_is_the_last_bare_expression(self, run, code, value):
        """A `;` silences it; statements and None have none."""
        assert value == run(code).value

    def test_is_kept_as_underscore(self, good):
        good("6 * 7")
        assert "43" == good("_ + 1").value

    def test_a_coroutine_asks_to_be_awaited(self, good):
        value = good("async def f(): ...\nf()").value
        assert value.endswith("(not run: write `await` before it)")
        good("_.close()")

    def test_is_bounded(self, good):
        assert 30_000 > len(good("list(range(10**6))").value)

    def test_a_failing_repr_does_not_fail_the_cell(self, good):
        """The code ran; only its value cannot be shown."""
        code = "class Bad:\n    def __repr__(self): raise ValueError('no')\nx = 1\nBad()"
        assert "<unprintable Bad: ValueError>" == good(code).value


class TestEnds:
    @pytest.mark.parametrize("code", ["exit()", "quit()", "import sys; sys.exit()", "raise SystemExit(0)"])
    def test_exit_ends_the_cell_only(self, good, kernel, sink, code):
        """A status of zero is success; the runtime continues and says so."""
        good(f"x = 1\n{code}\nx = 2")
        assert 1 == kernel.namespace["x"]
        assert "[exit() ends the cell; the runtime goes on]\n" == sink.err

    @pytest.mark.parametrize(
        ("code", "message"),
        [("exit(3)", "exit status 3"), ("import sys; sys.exit('no data')", "no data")],
    )
    def test_exit_with_a_status_fails(self, failing, code, message):
        error = failing(code)
        assert ("exit", "SystemExit", message) == (error.reason, error.type, error.message)

    def test_memory_error_has_its_reason(self, failing):
        assert "memory" == failing("raise MemoryError").reason

    def test_a_cell_that_cannot_be_compiled_fails(self, failing):
        """Any exception of `compile` is an error of the cell."""
        assert failing("x = '\0'").type in ("SyntaxError", "ValueError")
        assert "UnicodeEncodeError" == failing("x = '\ud800'").type
        assert failing("(" * 1000).type in ("SyntaxError", "MemoryError")

    def test_deep_recursion_fails_the_cell(self, failing):
        assert "RecursionError" == failing("def f(): f()\nf()").type

    def test_duration_is_of_the_cell(self, good):
        assert 0.1 <= good("import time; time.sleep(0.1)").duration < PATIENCE

    def test_the_sink_is_drained_after_each_cell(self, run, sink):
        run("1")
        run("1/0")
        assert 2 == sink.drained


class TestReply:
    def test_is_given_by_a_cell_that_succeeds(self, good):
        assert "done" == good("reply('done')").reply

    def test_is_not_given_by_a_cell_that_fails(self, run):
        assert run("reply('done')\n1/0").reply is None

    def test_does_not_outlast_its_cell(self, run):
        run("reply('done')")
        assert run("1").reply is None

    def test_the_last_one_counts(self, good):
        assert "2" == good("reply('1'); reply(2)").reply

    def test_is_given_by_a_cell_that_exits(self, good):
        assert "done" == good("reply('done'); exit()").reply

    def test_is_bounded(self, good):
        assert 101_000 > len(good("reply('x' * 10**6)").reply)

    def test_is_no_variable_and_may_be_shadowed(self, good, kernel):
        """Helpers are in the builtins: a user's `reply = 1` is only a variable."""
        good("reply = 1\nshow = 2")
        good("del reply, show")
        assert "ok" == good("reply('ok')").reply
        assert [] == kernel.describe()


class TestProcessAfterACell:
    def test_streams_are_put_back(self, run, sink):
        """Output of later cells is not lost when a cell replaces stdout."""
        run("import sys, io\nsys.stdout = io.StringIO()\nsys.stderr = None")
        assert "[sys.stdout was replaced" in sink.err
        run("print('back')")
        assert "back\n" == sink.out

    def test_deleted_streams_are_put_back(self, run, sink):
        run("import sys\ndel sys.stdout")
        run("print('back')")
        assert "back\n" == sink.out

    def test_closed_stdout_still_writes(self, run, sink):
        run("import sys\nsys.stdout.close()")
        run("print('open')")
        assert "open\n" == sink.out

    def test_hooks_are_put_back(self, good):
        """A trace function would slow all later cells; an exception hook may not stay either."""
        hooks = sys.gettrace(), sys.getprofile(), sys.excepthook
        good(
            "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\nsys.excepthook = print"
        )
        assert hooks == (sys.gettrace(), sys.getprofile(), sys.excepthook)

    def test_a_low_recursion_limit_is_raised_again(self, run):
        limit = sys.getrecursionlimit()
        run("import sys\nsys.setrecursionlimit(60)")
        assert limit == sys.getrecursionlimit()

    def test_a_higher_recursion_limit_stays(self, run):
        run("import sys\nsys.setrecursionlimit(4321)")
        assert 4321 == sys.getrecursionlimit()

    def test_the_working_directory_stays(self, run):
        run("import os\nos.mkdir('sub')\nos.chdir('sub')")
        assert "'sub'" == run("os.path.basename(os.getcwd())").value

    def test_a_removed_working_directory_harms_nothing(self, run):
        """Even an error whose traceback shortens paths."""
        code = "import os\nos.mkdir('sub')\nos.chdir('sub')\nos.rmdir('../sub')\nopen('x.txt')"
        assert "FileNotFoundError" == run(code).error.type

    @pytest.mark.parametrize(
        "names",
        [
            "len repr str isinstance getattr",
            "print open iter next type dict list tuple set",
            "Exception BaseException KeyError compile exec eval",
        ],
    )
    def test_changed_builtins_do_not_break_the_kernel(self, apart, names):
        """A cell may break the builtins for itself; values, output and errors of later cells still work."""
        ruin = f"import builtins\nfor name in {names!r}.split(): setattr(builtins, name, None)"
        _, value, failed, shown = apart(ruin, "1 + 2", "d = {'price': 1}\nd['prise']", "show([1, 2])").cells
        assert "3" == value["value"]
        assert ("KeyError", "'prise'") == (failed["type"], failed["error"][:7])
        assert "[1, 2]\n" == shown["stdout"]

    def test_emptied_modules_do_not_break_the_kernel(self, apart):
        _, value, failed = apart("import sys\nsys.modules.clear()", "1 + 2", "1 / 0").cells
        assert ("3", "division by zero") == (value["value"], failed["error"])


class TestForkedChild:
    def test_ends_with_its_cell(self, apart):
        """A bare fork in a cell: the child never returns to serve as the kernel."""
        done = apart(
            "import os\npid = os.fork()\nprint('parent' if pid else 'child')\nif pid: os.waitpid(pid, 0)", "5"
        )
        assert ["parent\n", ""] == [cell["stdout"] for cell in done.cells]
        assert "child\n" == done.stdout
        assert "5" == done.cells[1]["value"]

    def test_shows_its_error(self, apart):
        """Its failure is separate: a traceback on descriptor 2, status 1."""
        done = apart("import os\npid = os.fork()\nif not pid: 1 / 0\nos.waitstatus_to_exitcode(os.wait()[1])")
        assert "1" == done.cells[0]["value"]
        assert "ZeroDivisionError: division by zero" in done.stderr

    @pytest.mark.parametrize(("leave", "status"), [("sys.exit(7)", "7"), ("sys.exit()", "0"), ("pass", "0")])
    def test_ends_with_its_status(self, apart, leave, status):
        done = apart(
            f"import os, sys\npid = os.fork()\nif not pid: {leave}\n"
            "if pid: status = os.waitstatus_to_exitcode(os.wait()[1])",
            "status",
        )
        assert status == done.cells[1]["value"]

    def test_does_not_repeat_buffered_output(self, apart):
        """Output of the parent so far is passed on before the fork, once."""
        done = apart("import os\nprint('once', end='')\nif os.fork(): os.wait()")
        assert ("once", "") == (done.cells[0]["stdout"], done.stdout)

    def test_of_a_coroutine_ends_too(self, apart):
        done = apart("import asyncio, os\nawait asyncio.sleep(0)\npid = os.fork()\nif pid: os.wait()", "5")
        assert "5" == done.cells[1]["value"]

    def test_of_multiprocessing_works(self, apart):
        """Pools fork the namespace; their functions are found in `__main__`."""
        code = "import multiprocessing as m\ndef f(x): return x * x\n"
        code += "with m.get_context('fork').Pool(2) as pool: r = pool.map(f, range(4))\nr"
        assert "[0, 1, 4, 9]" == apart(code).cells[0]["value"]


class TestWarnings:
    def test_each_cell_gets_its_warnings(self, apart):
        """Python shows a warning once per line number; line 1 of each cell is another line."""
        cells = apart(*["import warnings; warnings.warn('careful')"] * 2).cells
        line = "UserWarning: careful\n  import warnings; warnings.warn('careful')\n"
        assert [f"<cell 1>:1: {line}", f"<cell 2>:1: {line}"] == [cell["stderr"] for cell in cells]

    def test_of_the_compiler_come_once(self, apart):
        """A cell with magics is parsed more than once; its warnings are still shown once."""
        done = apart(r"%pwd" "\n" "x = 1 is 2")
        assert 1 == done.cells[0]["stderr"].count("SyntaxWarning")

    def test_of_deprecation_are_shown(self, apart):
        done = apart("import warnings; warnings.warn('old', DeprecationWarning)")
        assert "DeprecationWarning: old" in done.cells[0]["stderr"]

    def test_a_dropped_coroutine_does_not_show_the_kernel(self, apart):
        """Python warns where the coroutine is dropped, which is in the kernel when `_` is bound again."""
        done = apart("async def f(): ...\nf()", "1", "f(); 2")
        assert ["", ""] == [cell["stderr"] for cell in done.cells[:2]]
        assert "<cell 3>:1: RuntimeWarning: coroutine 'f' was never awaited" in done.cells[2]["stderr"]


def test_many_cells_are_cheap(kernel):
    """The kernel's own cost of a small cell stays far below a millisecond."""
    fastest = min(_seconds_of_100_cells(kernel) for _ in range(5))
    assert 0.1 > fastest


def _seconds_of_100_cells(kernel):
    started = time.process_time()
    for step in range(100):
        kernel.run_cell("x = 1", step)
    return time.process_time() - started
