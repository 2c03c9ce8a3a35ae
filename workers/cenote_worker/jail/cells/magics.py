"""Functions for rewritten IPython syntax: magics, shell commands, `name?`, stopwatches for `%time` and `%timeit`."""

from __future__ import annotations

import builtins
import importlib
import inspect
import math
import os
import re
import shlex
import sys
import time
from collections import ChainMap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TypeVar

from cenote_worker.jail.cells.execution_unsafe import run_file, run_module
from cenote_worker.jail.cells.packages import has_way_out, install_request
from cenote_worker.jail.cells.subprocesses_unsafe import expand, run_program, run_shell, shell_lines
from cenote_worker.jail.output.display import Capture, Displays
from cenote_worker.jail.rendering.bounded_text import bounded_str, shorten, type_name
from cenote_worker.jail.rendering.signatures import signature_text
from cenote_worker.jail.rendering.variables import describe_variable, user_names, variable_table
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_DOC_CHARS = 4_000
_SOURCE_CHARS = 20_000


def explain(obj: object, name: str, *, with_source: bool) -> str:
    """Name, type, signature and documentation of an object; its source instead if `with_source` and the source is
    known."""
    if with_source and (source := _source(obj)):
        return source
    info = describe_variable(name, obj)
    shape = f" {info.shape}" if info.shape else ""
    described = signature_text(obj) if callable(obj) else info.description
    head = f"{info.name}: {info.type}{shape} {described}".rstrip()
    documentation = _documentation(obj)
    if not callable(obj):
        documentation = documentation.partition("\n\n")[0]  # of its class, which is another question
    return f"{head}\n\n{documentation}" if documentation else head


def _documentation(obj: object) -> str:
    try:
        text = inspect.getdoc(obj)
    except Exception:  # __doc__ may be anything
        return ""
    return bounded_str(text, _DOC_CHARS) if text else ""


def _source(obj: object) -> str:
    try:
        return shorten(inspect.getsource(obj), _SOURCE_CHARS)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""


_BUDGET = 1.0
"""Seconds that `%timeit` runs for when no number of loops is given."""

_MOST_LOOPS = 100_000

_wall = time.perf_counter
_cpu = time.process_time
_print = print


class Stopwatch:
    """Prints wall and CPU time from its making to `stop`. As a context it stops at the end, whatever happens."""

    def __init__(self) -> None:
        self._cpu = _cpu()
        self._wall = _wall()

    def stop(self) -> None:
        wall, cpu = _wall() - self._wall, _cpu() - self._cpu
        _print(f"CPU time: {duration(cpu)}, wall time: {duration(wall)}")

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


class TimeitResult:
    """The result of `%timeit -o`. timings: seconds of each loop. The names are IPython's."""

    def __init__(self) -> None:
        self.timings: list[float] = []

    @property
    def all_runs(self) -> list[float]:
        return self.timings

    @property
    def loops(self) -> int:
        return len(self.timings)

    @property
    def best(self) -> float:
        return min(self.timings)

    @property
    def worst(self) -> float:
        return max(self.timings)

    @property
    def average(self) -> float:
        return sum(self.timings) / len(self.timings)

    @property
    def stdev(self) -> float:
        mean = self.average
        return math.sqrt(sum((each - mean) ** 2 for each in self.timings) / len(self.timings))

    def __repr__(self) -> str:
        return f"<TimeitResult : {self}>"

    def __str__(self) -> str:
        if not self.timings:
            return "not timed yet"
        return f"{duration(self.average)} per loop (mean of {self.loops:,} loops; best {duration(self.best)})"


def repeat(loops: int | None, *, quiet: bool = False) -> Iterator[TimeitResult]:
    """Iterates over what is to be timed, then prints the mean and the best time of one round.

    loops: how often; None goes on for about a second. Each round is given what holds the times so far.
    """
    result = TimeitResult()
    ends = _wall() + _BUDGET
    for _ in range(loops or _MOST_LOOPS):
        started = _wall()
        yield result
        result.timings.append(_wall() - started)
        if loops is None and _wall() > ends:
            break
    if not quiet:
        _print(result)


def duration(seconds: float) -> str:
    """Three significant digits in the unit that fits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


T = TypeVar("T")

_SIGNALLED = 128
"""A shell adds this to the number of the signal that ended its command."""

_SHELL_NAMES = ("ls", "cat", "mkdir", "rmdir", "rm", "cp", "mv", "head", "tail", "wc", "grep")
_NUMBERED = re.compile(r"([nr])[ \t]*(\d+)")
"""`%timeit`'s number of loops, and of rounds of so many loops."""

_MARKUP = {
    "HTML": "text/html", "SVG": "image/svg+xml", "html": "text/html", "javascript": "application/javascript",
    "js": "application/javascript", "latex": "text/latex", "markdown": "text/markdown", "svg": "image/svg+xml",
}  # fmt: skip

_WITHOUT_EFFECT = (
    "autoawait", "autocall", "automagic", "autoreload", "autosave", "colors", "config", "gui", "load_ext",
    "matplotlib", "pdb", "pprint", "precision", "pylab", "reload_ext", "unload_ext", "xmode",
)  # fmt: skip
"""Settings of a terminal, or of what reads the outputs."""


class UnknownMagicError(NameError):
    """A magic that does not exist here."""


class Magics:
    """The object behind the name that the rewriting puts in front of each call.

    It works on the namespace, prints to `sys.stdout` as any code in a cell does, and keeps what has to be undone
    at the end of the cell. namespace: of the author whose turn it is.
    """

    def __init__(self, namespace: dict[str, object], displays: Displays) -> None:
        self.namespace = namespace
        self._displays = displays
        self._at_end: list[Callable[[], None]] = []
        self._line: dict[str, Callable[[str], object]] = {
            "cd": self._change_directory,
            "conda": lambda rest: self.shell(f"conda {rest}"),
            "env": self._environment,
            "lsmagic": lambda _rest: print(self._known()),
            "pdoc": lambda rest: self._inspect_name(rest, with_source=False),
            "pinfo": lambda rest: self._inspect_name(rest, with_source=False),
            "pinfo2": lambda rest: self._inspect_name(rest, with_source=True),
            "pip": lambda rest: self.shell(f"pip {rest}"),
            "psource": lambda rest: self._inspect_name(rest, with_source=True),
            "pwd": lambda _rest: str(Path.cwd()),
            "reset": self._reset,
            "reset_selective": self._reset_selective,
            "run": self._run_file,
            "set_env": self._environment,
            "sx": self.shell_lines,
            "system": self.shell_lines,
            "who": lambda rest: print("  ".join(self._names(rest)) or "no variables"),
            "who_ls": self._names,
            "whos": self._whos,
            "xdel": self._delete,
        }
        self._cell: dict[str, Callable[[str, str], None]] = {
            **{name: self._program(name) for name in ("bash", "perl", "python", "python3", "ruby", "sh")},
            **{name: self._markup(mime) for name, mime in _MARKUP.items()},
            "script": self._script,
            **dict.fromkeys(("file", "writefile"), self.write_file),
        }
        self._directory = ""
        """The directory before the last `%cd`."""

    def end_cell(self) -> None:
        """Ends what `%%time` and `%%capture` began, the latest first."""
        while self._at_end:
            self._at_end.pop()()

    # -- called by rewritten code --

    def line(self, name: str, rest: str) -> object:
        if name in _WITHOUT_EFFECT:
            return None
        if name in _SHELL_NAMES:
            self.shell(f"{name} {rest}")
            return None
        if name in ("time", "timeit"):
            raise ValueError(
                f"write `%{name} code` in the cell: it needs the code that it measures, on its line"
            )
        if name not in self._line:
            raise UnknownMagicError(self._unknown(f"%{name}"))
        return self._line[name](rest)

    def cell(self, name: str, rest: str, body: str) -> None:
        if name not in self._cell:
            raise UnknownMagicError(self._unknown(f"%%{name}"))
        self._cell[name](rest, body)

    def write_file(self, rest: str, body: str) -> None:
        _write_file(self._expanded(rest), body)

    def shell(self, command: str) -> None:
        if not has_way_out() and (request := install_request(command)) is not None:
            print(request.report())
            return
        self._ended(run_shell(self._expanded(command)))

    def shell_lines(self, command: str) -> list[str]:
        """`_exit_code` stays, as in IPython."""
        status, lines = shell_lines(self._expanded(command))
        _report(status)
        return lines

    def timed(self, action: Callable[[], T]) -> T:
        with Stopwatch():
            return action()

    def timing(self) -> Stopwatch:
        return Stopwatch()

    def repeat(self, options: str, *_setup: object) -> Iterator[TimeitResult]:
        """setup: already evaluated, as arguments are."""
        numbers = {letter: int(number) for letter, number in _NUMBERED.findall(options)}
        loops, rounds = numbers.get("n"), numbers.get("r", 1)
        return repeat(None if loops is None else max(loops, 1) * max(rounds, 1), quiet=_has(options, "q"))

    def repeated(self, options: str, action: Callable[[], object]) -> TimeitResult | None:
        """The result of `%timeit` where it is assigned."""
        result = None
        for result in self.repeat(options):  # noqa: B007  (the last one is all of them)
            action()
        return result if _has(options, "o") else None

    def time_cell(self, _options: str) -> None:
        self._at_end.append(Stopwatch().stop)

    def capture_cell(self, options: str) -> None:
        words, flags = options.split(), ("--no-stdout", "--no-stderr", "--no-display")
        capture = Capture()
        for name in (word for word in words if word.isidentifier()):
            self.namespace[name] = capture
        stdout, stderr, display = (flag not in words for flag in flags)
        self._at_end.append(capture.begin(self._displays, stdout=stdout, stderr=stderr, display=display))

    def inspect(self, obj: object, name: str, with_source: bool) -> None:
        print(explain(obj, name, with_source=with_source))

    # -- lines and cells of one name --

    def _expanded(self, text: str) -> str:
        """With values for what it refers to. Where the cell's code stands in a function, its variables come first."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals is not self.namespace:
            frame = frame.f_back
        local = {} if frame is None or frame.f_locals is self.namespace else frame.f_locals
        return expand(text, ChainMap({}, local, self.namespace), expressions=True)

    def _unknown(self, name: str) -> str:
        if name == "%%timeit":
            return "%%timeit sets up expressions and plain assignments only; write other set-up in a cell before it"
        return f"no magic {name} here; there are {self._known()} and !command"

    def _known(self) -> str:
        lines = sorted({*self._line, *_SHELL_NAMES, *_WITHOUT_EFFECT, "time", "timeit"})
        cells = sorted({*self._cell, "time", "timeit", "capture"})
        return f"%{' %'.join(lines)} %%{' %%'.join(cells)}"

    def _program(self, program: str) -> Callable[[str, str], None]:
        return lambda rest, body: self._script(f"{program} {rest}", body)

    def _script(self, rest: str, body: str) -> None:
        """IPython's options come first, then the program with its arguments."""
        words = _words(self._expanded(rest))
        into: dict[str, str] = {}
        while (
            at := next((index for index, word in enumerate(words) if word.startswith("--")), None)
        ) is not None:
            option, equals, value = words.pop(at).partition("=")
            if option in ("--out", "--err", "--proc"):
                into[option] = value if equals else words.pop(at) if at < len(words) else ""
            elif option not in ("--bg", "--raise-error", "--no-raise-error"):
                raise ValueError(
                    f"no option {option} here; there are --out NAME, --err NAME and --no-raise-error"
                )
            elif option == "--bg":
                raise ValueError("no --bg here: write `!command &` for a program in the background")
        program, *arguments = words or ["sh"]
        program = sys.executable if program.startswith("python") else program
        if not into and not arguments and program in ("sh", "bash"):
            status = run_shell(body, program)  # shows what is printed while it runs
        else:
            status, out, err = run_program(program, arguments, body)
            for option, text, stream in (("--out", out, sys.stdout), ("--err", err, sys.stderr)):
                if option in into:
                    self.namespace[into[option]] = text
                else:
                    stream.write(text)
        self._ended(status)

    def _ended(self, status: int) -> None:
        """`_exit_code` is IPython's: the number of a signal is negative."""
        self.namespace["_exit_code"] = status if status <= _SIGNALLED else _SIGNALLED - status
        _report(status)

    def _markup(self, mime: str) -> Callable[[str, str], None]:
        return lambda _rest, body: self._show({mime: body})

    def _show(self, forms: dict[str, str]) -> None:
        self._displays.display(forms, raw=True)

    def _change_directory(self, rest: str) -> None:
        options, path = _leading_options(rest, "q")
        target = self._directory if path == "-" else self._expanded(path.strip("'\"")) or "~"
        before = str(Path.cwd())
        os.chdir(Path(target or before).expanduser())
        self._directory = before
        if not options:
            print(Path.cwd())

    def _environment(self, rest: str) -> object:
        name, equals, value = rest.partition("=")
        if not equals:
            name, equals, value = rest.strip().partition(" ")
        if equals:
            os.environ[name.strip()] = self._expanded(value.strip())
            return None
        return os.environ[name] if name else dict(os.environ)

    def _inspect_name(self, rest: str, *, with_source: bool) -> None:
        first, *attributes = rest.strip().split(".")
        names = ChainMap(self.namespace, vars(builtins))
        if first not in names:
            raise NameError(f"name {first!r} is not defined")
        found = names[first]
        for attribute in attributes:
            found = getattr(found, attribute)
        self.inspect(found, rest.strip(), with_source)

    def _reset(self, rest: str) -> None:
        _options, kinds = _leading_options(rest, "fs", "aggressive")
        if not kinds:
            for name in user_names(self.namespace):
                del self.namespace[name]
        elif "array" in kinds.split():
            for name in self._names("ndarray"):
                del self.namespace[name]

    def _reset_selective(self, rest: str) -> None:
        _options, pattern = _leading_options(rest, "f")
        for name in user_names(self.namespace):
            if re.search(pattern, name):
                del self.namespace[name]

    def _delete(self, rest: str) -> None:
        _options, name = _leading_options(rest, "n")
        if name not in self.namespace:
            raise NameError(f"name {name!r} is not defined")
        del self.namespace[name]

    def _run_file(self, rest: str) -> None:
        options, rest = _leading_options(self._expanded(rest), "nietNG", valued="m")
        words = _words(rest)
        watch = Stopwatch() if "t" in options else None
        module = options.get("m")
        if module is None and not words:
            raise ValueError("%run needs the name of a file, or -m and that of a module")
        try:
            if module is not None:
                names = run_module(module, [module, *words])
                self.namespace.update({name: value for name, value in names.items() if name[:2] != "__"})
            else:
                path = (
                    words[0]
                    if Path(words[0]).suffix or not Path(f"{words[0]}.py").is_file()
                    else f"{words[0]}.py"
                )
                self._run_path(path, words, "__main__" if "n" not in options else Path(path).stem)
        except SystemExit:
            if "e" not in options:
                raise
        finally:
            if watch is not None:
                watch.stop()

    def _run_path(self, path: str, words: list[str], name: str) -> None:
        before = self.namespace.get("__name__")
        self.namespace["__name__"] = name
        try:
            run_file(path, words, self.namespace)
        finally:
            self.namespace["__name__"] = before

    def _names(self, rest: str) -> list[str]:
        """User's variables, of these types if any are given."""
        types = rest.split()
        names = user_names(self.namespace)
        return [name for name in names if not types or type_name(type(self.namespace[name])) in types]

    def _whos(self, rest: str) -> None:
        print(variable_table({name: self.namespace[name] for name in self._names(rest)}))


def _report(status: int) -> None:
    if status:
        print(f"[exit status {status}]")


def _has(options: str, letter: str) -> bool:
    """Whether one of the groups of `-qn4 -o` has the letter."""
    return any(letter in word for word in re.findall(r"-([A-Za-z]+)", options))


def _words(rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError:  # a quote without another
        return rest.split()


def _leading_options(rest: str, letters: str, *long: str, valued: str = "") -> tuple[dict[str, str], str]:
    """Options in front, in any spelling that getopt takes: `-f -s`, `-fs`, `-m name`, `-mname`. And the rest."""
    options: dict[str, str] = {}
    rest = rest.strip()
    while match := re.match(r"(-{1,2})([A-Za-z][\w-]*)(?:[ \t]+|$)", rest):
        marks, word = match.groups()
        rest = rest[match.end() :]
        if marks == "--":
            if word not in long:
                raise ValueError(f"no option --{word} here")
            options[word] = ""
            continue
        for at, letter in enumerate(word):
            if letter in valued:
                value = word[at + 1 :]
                if not value:
                    value, _, rest = rest.partition(" ")
                options[letter], rest = value, rest.strip()
                break
            if letter not in letters:
                raise ValueError(f"no option -{letter} here; there are -{' -'.join(letters + valued)}")
            options[letter] = ""
    return options, rest


def _write_file(rest: str, body: str) -> None:
    words = _words(rest)
    append = "-a" in words or "--append" in words
    path = next((word for word in words if word not in ("-a", "--append")), "")
    if not path:
        raise ValueError("%%writefile needs the name of a file")
    with Path(path).expanduser().open("a" if append else "w", encoding="utf-8") as file:
        file.write(body if body.endswith("\n") else body + "\n")
    importlib.invalidate_caches()  # the next line may import the file
    print(f"{'Appended to' if append else 'Wrote'} {bounded_str(path, 200)}")
