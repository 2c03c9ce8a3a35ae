"""What rewritten IPython syntax calls: magics, shell commands, `name?`."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from cenote_worker.in_jail.bounded import bounded_str
from cenote_worker.in_jail.capture import Capture
from cenote_worker.in_jail.cell_unsafe import run_file
from cenote_worker.in_jail.inspection import explain
from cenote_worker.in_jail.network import has_way_out
from cenote_worker.in_jail.packages import install_request
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.shell_unsafe import expand, run_shell, shell_lines
from cenote_worker.in_jail.timing import Stopwatch, repeat
from cenote_worker.in_jail.variables import user_names, variable_table

__builtins__ = BUILTINS

T = TypeVar("T")

_NUMBERED = re.compile(r"(?:^|\s)-(?P<option>[nr])\s*(?P<number>\d{1,9})(?!\S)")
_SHELL_NAMES = ("ls", "cat", "mkdir", "rmdir", "rm", "cp", "mv", "head", "tail", "wc", "grep")
_WITHOUT_EFFECT = ("matplotlib", "config", "load_ext", "reload_ext", "autoreload", "precision", "pylab")


class UnknownMagicError(NameError):
    """A magic that does not exist here."""


class Magics:
    """The object behind the name that the rewriting puts in front of each call.

    It works on the namespace, prints to `sys.stdout` as any code in a cell does, and keeps what has to be undone
    at the end of the cell. namespace: of the author whose turn it is.
    """

    def __init__(self, namespace: dict[str, object]) -> None:
        self.namespace = namespace
        self._at_end: list[Callable[[], None]] = []
        self._line: dict[str, Callable[[str], object]] = {
            "cd": _change_directory,
            "conda": lambda rest: self.shell(f"conda {rest}"),
            "env": _environment,
            "pip": lambda rest: self.shell(f"pip {rest}"),
            "pwd": lambda _rest: str(Path.cwd()),
            "reset": self._reset,
            "run": self._run_file,
            "sx": self.shell_lines,
            "system": self.shell_lines,
            "who": self._who,
            "whos": self._whos,
        }
        self._cell: dict[str, Callable[[str, str], None]] = {
            "bash": self._script("bash"),
            "script": self._script("sh"),
            "sh": self._script("sh"),
        }

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
        if name not in self._line:
            raise UnknownMagicError(self._unknown(f"%{name}"))
        return self._line[name](rest)

    def cell(self, name: str, rest: str, body: str) -> None:
        if name not in self._cell:
            raise UnknownMagicError(self._unknown(f"%%{name}"))
        self._cell[name](rest, body)

    def write_file(self, rest: str, body: str) -> None:
        _write_file(rest, body)

    def shell(self, command: str) -> None:
        if not has_way_out() and (request := install_request(command)) is not None:
            print(request.report())
            return
        status = run_shell(expand(command, self.namespace))
        if status:
            print(f"[exit status {status}]")

    def shell_lines(self, command: str) -> list[str]:
        return shell_lines(expand(command, self.namespace))

    def timed(self, action: Callable[[], T]) -> T:
        with Stopwatch():
            return action()

    def timing(self) -> Stopwatch:
        return Stopwatch()

    def repeat(self, options: str) -> Iterator[int]:
        """options: `-n` loops in each of `-r` rounds, with or without a blank before the number."""
        numbers = {each["option"]: int(each["number"]) for each in _NUMBERED.finditer(options)}
        loops = numbers.get("n")
        return repeat(None if loops is None else max(loops * numbers.get("r", 1), 1))

    def time_cell(self, _options: str) -> None:
        self._at_end.append(Stopwatch().stop)

    def capture_cell(self, options: str) -> None:
        capture = Capture()
        for name in (word for word in options.split() if word.isidentifier()):
            self.namespace[name] = capture
        self._at_end.append(capture.stop)

    def inspect(self, obj: object, name: str, with_source: bool) -> None:
        print(explain(obj, name, with_source=with_source))

    # -- lines and cells of one name --

    def _unknown(self, name: str) -> str:
        lines = sorted({*self._line, *_SHELL_NAMES, *_WITHOUT_EFFECT, "time", "timeit"})
        cells = sorted({*self._cell, "time", "timeit", "capture"})
        return f"no magic {name} here; there are %{' %'.join(lines)} %%{' %%'.join(cells)} and !command"

    def _script(self, shell: str) -> Callable[[str, str], None]:
        def run(_rest: str, body: str) -> None:
            status = run_shell(body, shell)
            if status:
                print(f"[exit status {status}]")

        return run

    def _reset(self, _rest: str) -> None:
        for name in user_names(self.namespace):
            del self.namespace[name]

    def _run_file(self, rest: str) -> None:
        words = rest.split()
        if not words:
            raise ValueError("%run needs the name of a file")
        run_file(words[0], words, self.namespace)

    def _who(self, _rest: str) -> None:
        print("  ".join(user_names(self.namespace)) or "no variables")

    def _whos(self, _rest: str) -> None:
        print(variable_table(self.namespace))


def _change_directory(rest: str) -> None:
    os.chdir(Path(rest.strip("'\"") or "~").expanduser())
    print(Path.cwd())


def _environment(rest: str) -> object:
    name, equals, value = rest.partition("=")
    if equals:
        os.environ[name.strip()] = value.strip()
        return None
    return os.environ[name] if name else dict(os.environ)


def _write_file(rest: str, body: str) -> None:
    words = rest.split()
    append = "-a" in words
    path = next((word for word in words if word != "-a"), "")
    if not path:
        raise ValueError("%%writefile needs the name of a file")
    with Path(path).expanduser().open("a" if append else "w", encoding="utf-8") as file:
        file.write(body if body.endswith("\n") else body + "\n")
    importlib.invalidate_caches()  # the next line may import the file
    print(f"{'Appended to' if append else 'Wrote'} {bounded_str(path, 200)}")
