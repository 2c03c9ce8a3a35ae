"""Runs cells in kernels with and without the check of the last one, each case in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_SERVER = """
import json, os, sys, traceback
from cenote_worker.jail.kernel import Kernel

class Sink:
    def write(self, stream, text): printed[stream] += text
    def display(self, bundle, name=""): pass
    def clear(self): pass
    def drain(self): pass

printed = {"stdout": "", "stderr": ""}
orders, answers = sys.stdin, os.fdopen(os.dup(1), "w")
os.chdir(sys.argv[1])
Kernel(Sink(), checking=True)  # loads what each of the others needs
for number, line in enumerate(orders):
    order, (reader, writer) = json.loads(line), os.pipe()
    child = os.fork()
    if not child:
        os.mkdir(str(number))
        os.chdir(str(number))
        answers, answer = os.fdopen(writer, "w"), []
        kernel = Kernel(Sink(), checking=True)
        check, kernel._check = kernel._check, None
        for step, code in enumerate(order["cells"], 1):
            if order["checking"] and step == len(order["cells"]):
                kernel._check = check
            printed.update(stdout="", stderr="")
            outcome = kernel.run_cell(code, step)
            error = outcome.error and [outcome.error.type, outcome.error.message, outcome.error.traceback]
            span = outcome.error and outcome.error.span
            answer.append({"success": outcome.success, "error": error, "stdout": printed["stdout"],
                           "line": span and span.line, "column": span and span.column})
        answers.write(json.dumps(answer))
        answers.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    print(text or "null", file=answers, flush=True)
"""

NOTHING_RAN = "nothing of this cell has run"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """Outcome of the last cell of a case. error: its class and message; line, column: where."""

    success: bool
    error: tuple[str, str] | None
    traceback: str
    stdout: str
    line: int | None
    column: int | None

    @property
    def is_refused(self) -> bool:
        return NOTHING_RAN in self.traceback


class CheckedCells:
    """A process that runs such cases."""

    def __init__(self, folder: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)

    def run(self, *cells: str, checking: bool = True) -> Ran:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({"cells": cells, "checking": checking}) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        assert answer is not None, "the kernel's process has ended"
        told = answer[-1]
        kind, message, traceback = told["error"] or ("", "", "")
        return Ran(
            success=told["success"],
            error=(kind, message) if told["error"] else None,
            traceback=traceback,
            stdout=told["stdout"],
            line=told["line"],
            column=told["column"],
        )
