"""Magics and shell commands work inside the jail, or give the reason why not."""

import pytest
from tests.waiting import PATIENCE


class TestShell:
    def test_output_and_status(self, good, sink):
        good("print('before')\n!echo out; echo err >&2; exit 3\nprint('after')")
        assert "before\nout\nerr\n[exit status 3]\nafter\n" == sink.out

    @pytest.mark.parametrize(
        ("cell", "code"),
        [
            ("!exit 3", 3),
            ("!true", 0),
            ("!kill -9 $$", -9),
            ("!sh -c 'kill -15 $$'; exit $?", -15),
            ("%ls nothing-here", 2),
            ("%%bash\nexit 5", 5),
            ("%%sh --out text\nexit 6", 6),
            ("get_ipython().system('exit 7')", 7),
            ("if True:\n    !exit 8", 8),
            ("def call():\n    !exit 9\ncall()", 9),
        ],
    )
    def test_the_status_is_in_a_variable(self, good, cell, code):
        """`_exit_code`, as IPython has it: the number of a signal is negative."""
        good("_exit_code = 1234")
        good(cell)
        assert str(code) == good("_exit_code").value

    def test_lines_of_a_command_leave_the_status_of_the_last_one(self, good):
        good("!exit 3\nx = !exit 4")
        assert "3" == good("_exit_code").value

    def test_names_of_the_namespace_are_put_in(self, good, sink):
        """`{name}` and `$name`, if there is such a variable; everything else belongs to the shell."""
        good("word = 'hi'\n!echo {word} $word; echo a b | awk '{print $2}'; X=1; echo $X ${X} '{nope}'")
        assert "hi hi\nb\n1 1 {nope}\n" == sink.out

    def test_expressions_are_put_in(self, good, sink):
        """As in an f-string, if one of the names is there; braces of a shell and of other programs are theirs."""
        good(
            "x, y = 5, 'it'\n!echo {x+1} {y.upper()} {y!r} {x:>3} {'on' if x else 'off'} {len(y)}\n"
            "!echo {1,2} {x,y} '{1:2}' '{unknown+1}' ${HOME:+set} '{x/0}'"
        )
        assert "6 IT it 5 on 2\n{1,2} {x,y} {1:2} {unknown+1} set {x/0}\n" == sink.out

    def test_variables_of_a_function_are_put_in(self, good, sink):
        good("x = 'global'\ndef f(x):\n    !echo {x} $x {x * 2}\n    y = !echo {x}\n    return y\nf('local')")
        assert "local local locallocal\n" == sink.out
        assert "['local']" == good("f('local')").value

    @pytest.mark.parametrize(
        ("command", "lines"),
        [("grep nothing /dev/null", []), ("echo a; echo b >&2; exit 1", ["a", "b"])],
    )
    def test_lines_of_a_command_that_fails(self, good, sink, command, lines):
        assert repr(lines) == good(f"x = !{command}\nx").value
        assert "[exit status 1]\n" == sink.out

    def test_lines_are_a_list(self, good):
        assert "['a', 'b']" == good("x = !printf 'a\\nb\\n'\nx").value

    def test_a_script(self, good, sink):
        good("%%bash\nfor i in 1 2; do\n  echo it\\'s $i\ndone")
        assert "it's 1\nit's 2\n" == sink.out

    def test_binary_output_is_shown(self, good, sink):
        good(r"!printf '\377\303\251\n'")
        assert "\\xffé\n" == sink.out

    def test_no_input(self, good, sink):
        good("!cat")
        assert "" == sink.out

    def test_background_commands_are_not_waited_for(self, good):
        assert PATIENCE > good("!sleep 600 > /dev/null 2>&1 & echo $! > pid &").duration
        good(
            "import os, signal, time\nwhile not os.path.exists('pid') or not open('pid').read(): time.sleep(0.01)"
        )
        good("os.kill(int(open('pid').read()), 9)")

    @pytest.mark.parametrize("cell", ["!sleep 602", "lines = !sleep 602", "%%bash\nsleep 602"])
    def test_an_interrupt_ends_a_command_that_has_just_begun(self, run, good, cell):
        """One that comes before the function that starts the command has returned."""
        code = (
            "import os, signal, subprocess\n"
            "begin = subprocess.Popen.__init__\n"
            "def interrupted(self, *given, **named):\n"
            "    global pid\n"
            "    subprocess.Popen.__init__ = begin\n"
            "    begin(self, *given, **named)\n"
            "    pid = self.pid\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "    for _ in range(10): pass\n"
            "subprocess.Popen.__init__ = interrupted"
        )
        good(code)
        assert "interrupt" == run(cell).error.reason
        assert "False" == good("os.path.exists(f'/proc/{pid}')").value

    def test_an_interrupt_ends_the_command(self, run, good):
        """All processes that it started end, too."""
        code = (
            "import os, signal, threading, time\n"
            "def stop():\n"
            "    while not os.path.exists('pid') or not open('pid').read(): time.sleep(0.01)\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "threading.Thread(target=stop).start()\n"
            "!sleep 601 & echo $! > pid; wait"
        )
        outcome = run(code)
        assert "interrupt" == outcome.error.reason
        good("pid = int(open('pid').read())\nimport time")
        assert (
            "True"
            == good(
                "def ended():\n"
                "    try: return open(f'/proc/{pid}/stat').read().split()[2] == 'Z'\n"
                "    except OSError: return True\n"
                "for _ in range(6000):\n    if ended(): break\n    time.sleep(0.01)\nended()"
            ).value
        )


class TestPackages:
    @pytest.mark.parametrize(
        "command",
        ["%pip install pytest", "!pip install 'pytest>=1.0' -q", "!python -m pip install -U pytest"],
    )
    def test_what_is_installed_is_fine(self, good, sink, command):
        good(command)
        assert sink.out.startswith("already installed: pytest ")

    @pytest.mark.parametrize(
        "command", ["%pip install pytest nosuchthing", "!pip3 install -q nosuchthing pytest"]
    )
    def test_what_is_not_is_refused_with_the_reason(self, failing, command):
        error = failing(command)
        assert error.message.startswith(
            "cannot install nosuchthing: this runtime has no network; use what is installed or the standard "
            "library; already installed: pytest "
        )
        assert "NoNetworkError" == error.type


class TestTiming:
    def test_time_gives_the_value(self, good, sink):
        assert "5" == good("%time 2 + 3").value
        assert sink.out.startswith("CPU time: ")

    def test_time_of_a_statement_and_of_a_cell(self, good, sink):
        good("%time x = 1")
        assert "1" == good("%%time\ny = x\ny").value
        assert 2 == sink.out.count("wall time")

    def test_time_of_a_failing_cell(self, failing, sink):
        assert "1/0" in failing("%%time\n1/0").traceback
        assert "wall time" in sink.out

    def test_timeit_repeats(self, good, sink, kernel):
        good("n = 0\n%timeit -n 7 n += 1")
        good("%%timeit -n 3\nn += 1\nn += 1")
        assert 13 == kernel.namespace["n"]
        assert "mean of 7 loops" in sink.out

    @pytest.mark.parametrize(
        ("options", "runs"),
        [
            ("-n1 -r1", 1),
            ("-r1 -n1", 1),
            ("-n 2 -r3", 6),
            ("-qn4", 4),
            ("-n3 -p5 -t", 3),
            ("-n0", 1),
            ("-n 2 -r 3", 6),
        ],
    )
    def test_a_number_may_follow_its_letter_at_once(self, good, kernel, options, runs):
        """In the usual spelling: a statement with effects runs as often as requested."""
        good(f"rows = []\n%timeit {options} rows.append(1)")
        assert runs == len(kernel.namespace["rows"])
        good(f"%%timeit {options}\nrows.append(1)")
        assert 2 * runs == len(kernel.namespace["rows"])

    def test_timeit_is_bounded(self, good):
        assert PATIENCE > good("import time\n%timeit time.sleep(0.3)").duration


class TestOthers:
    @pytest.mark.parametrize(
        "code",
        ["%matplotlib inline", "%load_ext autoreload", "%autoreload 2", "%config A.b = 1", "%xmode Minimal"],
    )
    def test_without_effect(self, good, sink, code):
        assert good(code).value is None
        assert "" == sink.out

    def test_directories(self, good, sink, tmp_path):
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "f.txt").write_text("hello")
        assert repr(str(tmp_path / "sub")) == good("%cd sub\n%pwd").value
        good("%ls\n%cat f.txt")
        assert f"{tmp_path}/sub\nf.txt\nhello" == sink.out

    def test_environment(self, good, monkeypatch):
        monkeypatch.setenv("CENOTE_TEST", "1")
        assert "'1'" == good("%env CENOTE_TEST").value
        assert "'2'" == good("%env CENOTE_TEST=2\nimport os; os.environ['CENOTE_TEST']").value

    def test_variables(self, good, sink):
        good("import os\nx = [1]; y = 'ab'; _z = 1\n%who\n%whos")
        assert "x  y\nx: list (1,) of int\ny: str 2 characters\n" == sink.out

    def test_reset(self, good, kernel):
        good("x = 1; import os\n%reset -f")
        assert "x" not in kernel.namespace

    def test_files(self, good, sink):
        good("%%writefile mine.py\nprint('from a file', __name__)\nnine = 9")
        good("%%writefile -a mine.py\nten = 10")
        good("%run mine.py")
        assert "Wrote mine.py\nAppended to mine.py\nfrom a file __main__\n" == sink.out
        assert "19" == good("nine + ten").value

    def test_run_shows_the_files_lines(self, failing, good):
        good("%%writefile bad.py\nx = 1\n1 / 0")
        assert "bad.py, line 2\n    1 / 0\n" in failing("%run bad.py").traceback

    def test_capture(self, good, sink):
        good("%%capture out\nimport sys\nprint('hidden'); print('too', file=sys.stderr)")
        assert ("", "") == (sink.out, sink.err)
        assert "('hidden\\n', 'too\\n')" == good("(out.stdout, out.stderr)").value

    def test_inspect(self, good, sink):
        good("def f(a, b=1):\n    'Adds.'\n    return a\nf?")
        assert "f: function (a, b=1)\n\nAdds.\n" == sink.out
        good("f??")
        assert sink.out.endswith("def f(a, b=1):\n    'Adds.'\n    return a\n\n")

    def test_inspect_a_builtin_by_magic(self, good, sink):
        good("%pinfo len")
        assert "Return the number of items" in sink.out

    @pytest.mark.parametrize("name", ["time", "timeit"])
    def test_measuring_needs_code(self, failing, name):
        assert (
            f"write `%{name} code` in the cell: it needs the code that it measures, on its line"
            == failing(f"%{name}").message
        )

    def test_unknown_magics_say_what_there_is(self, failing):
        error = failing("%sql select 1")
        assert error.message.startswith("no magic %sql here; there are %auto")
        assert "no magic %%sql here" in failing("%%sql\nselect 1").message


class TestOptions:
    """Each magic takes its options as IPython does: joined, separate, in any order."""

    def test_a_result_of_timing_is_assigned(self, good, sink):
        good("rows = []\nx = %timeit -qo -n2 -r3 rows.append(1)")
        assert ("(6, True)", "") == (good("x.loops, x.best <= x.average <= x.worst").value, sink.out)
        good("x = %timeit -o -n1 y = len(rows)")
        assert "(6, 1)" == good("y, x.loops").value
        good("x = %timeit -qn1 y")
        assert "None" == good("repr(x)").value.strip("'")

    def test_timing_with_a_set_up(self, good, kernel):
        good("%%timeit -n 3 -r2 rows = [0]; k = 2\nrows.append(k)\nif k:\n    rows.append(1)")
        assert [0, *[2, 1] * 6] == kernel.namespace["rows"]

    def test_other_set_up_is_refused(self, failing):
        assert (
            "write other set-up in a cell before it" in failing("%%timeit -n1 import os\nos.getcwd()").message
        )

    def test_capture_leaves_what_it_is_told_to(self, good, sink):
        good(
            "%%capture out --no-stderr\nimport sys\nprint('hidden'); print('seen', file=sys.stderr); display(1)"
        )
        assert ("", "seen\n", []) == (sink.out, sink.err, sink.displays)
        assert "1" == good("len(out.outputs)").value
        good("out.show()")
        assert ("hidden\n", [{"text/plain": "1"}]) == (sink.out, sink.displays)

    @pytest.mark.parametrize("line", ["-q sub", "sub", "'sub'", "-q {folder}"])
    def test_directories(self, good, sink, tmp_path, line):
        (tmp_path / "sub").mkdir()
        good(f"folder = 'sub'\n%cd {line}\nwhere = %pwd")
        assert repr(str(tmp_path / "sub")) == good("where").value
        assert ("-q" in line) == (sink.out == "")
        assert repr(str(tmp_path)) == good("%cd -q -\n%pwd").value

    @pytest.mark.parametrize("line", ["%env CENOTE_TEST=a b", "%env CENOTE_TEST a b", "%set_env CENOTE_TEST a b",
                                      "%env CENOTE_TEST={word} b", "%env CENOTE_TEST = a b"])  # fmt: skip
    def test_environment(self, good, monkeypatch, line):
        monkeypatch.setenv("CENOTE_TEST", "1")
        assert "'a b'" == good(f"word = 'a'\n{line}\n%env CENOTE_TEST").value

    @pytest.mark.parametrize("options", ["", "-i", "-t -e", "-te", "-i -- "])
    def test_run_with_arguments(self, good, sink, options):
        good("%%writefile 'my file.py'\nimport sys\nprint(sys.argv, __name__)\nsys.exit(0) if 0 else None")
        good(f"%run {options} 'my file' -x 'a b'".replace("-- ", ""))
        assert "['my file', '-x', 'a b'] __main__" in sink.out

    def test_run_with_another_name(self, good, sink):
        good("%%writefile mine.py\nif __name__ == '__main__': print('main')\nnine = 9\n")
        good("%run -n mine")
        assert ("Wrote mine.py\n", "9", "'__main__'") == (
            sink.out,
            good("nine").value,
            good("__name__").value,
        )

    @pytest.mark.parametrize("line", ["-m runs_here a", "-mruns_here a"])
    def test_run_a_module(self, good, sink, line):
        good("%%writefile runs_here.py\nimport sys\ngiven = sys.argv[1:]\nprint(__name__)")
        good(f"%run {line}")
        assert ("__main__", "['a']") == (sink.out.split()[-1], good("given").value)

    def test_run_refuses_other_options(self, failing):
        assert "no option -d here" in failing("%run -d mine.py").message

    def test_names_by_type(self, good, sink):
        good("x = [1]; y = 'ab'; z = 2\n%who str int\n%whos list")
        assert "y  z\nx: list (1,) of int\n" == sink.out
        assert "['y']" == good("%who_ls str").value

    def test_deleting(self, good, kernel):
        good("ab1 = 1; ab2 = 2; b = 3; c = 4\n%reset_selective -f ^ab\n%xdel -n c")
        assert [False, False, True, False] == [name in kernel.namespace for name in ("ab1", "ab2", "b", "c")]

    @pytest.mark.parametrize("options", ["-f", "-s -f", "-sf", "--aggressive"])
    def test_reset(self, good, kernel, options):
        good(f"x = 1\n%reset {options}")
        assert "x" not in kernel.namespace

    def test_writing_to_a_name_with_blanks(self, good, tmp_path):
        good("name = 'of mine'\n%%writefile x".splitlines()[0])
        good("%%writefile --append 'a {name}.txt'\none")
        assert "one\n" == (tmp_path / "a of mine.txt").read_text()

    def test_expressions_name_a_file(self, good, tmp_path):
        good("number, kind = 6, {'end': 'txt'}")
        good("%%writefile part{number + 1}.{kind['end']}\none")
        good("%%writefile plain{number}.txt\ntwo")
        assert "one\n" == (tmp_path / "part7.txt").read_text()
        assert "two\n" == (tmp_path / "plain6.txt").read_text()

    def test_scripts(self, good, sink):
        """The named program runs, with its arguments; its output goes where the options say."""
        good("x = 'a b'\n")
        good("%%bash -s 1 '$x' --out lines --err=wrong\necho $1; echo $2; echo bad >&2")
        assert "('1\\na b\\n', 'bad\\n')" == good("(lines, wrong)").value
        good("%%script python3\nprint(6 * 7)")
        good("%%python\nprint(6 * 8)")
        good("%%script --no-raise-error bash\necho out; exit 3")
        assert "42\n48\nout\n[exit status 3]\n" == sink.out

    def test_markup(self, good, sink):
        good("%%html\n<b>x</b>")
        good("%%markdown\n**x**")
        assert [("text/html", "<b>x</b>"), ("text/markdown", "**x**")] == [
            list(shown.items())[1] for shown in sink.displays
        ]
