"""Runs cells, one after the other, in one namespace, or in one namespace per author."""

from __future__ import annotations

import ast
import builtins
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import _exit, getpid
from types import FunctionType, ModuleType
from typing import TypeVar

from cenote_worker.execution.results import ErrorInfo, VariableInfo
from cenote_worker.execution.trace import StepTrace
from cenote_worker.jail.cells.cell_check import NOTHING_RAN, CellCheck
from cenote_worker.jail.cells.cell_tracking import CellOutcome, CellTracking, CellUses
from cenote_worker.jail.cells.execution_unsafe import CellExecutor
from cenote_worker.jail.cells.ipython import get_ipython
from cenote_worker.jail.cells.ipython_syntax import MAGIC
from cenote_worker.jail.cells.magics import Magics
from cenote_worker.jail.cells.source import Cell, CellCompiler
from cenote_worker.jail.cells.terminal import Input, leave_cell, print_help, refuse_debugger
from cenote_worker.jail.errors.cell_errors import Failures, brief, exit_status
from cenote_worker.jail.libraries import matplotlib_backend, matplotlib_figures
from cenote_worker.jail.libraries.import_hooks import LibraryHooks
from cenote_worker.jail.output.display import Displays
from cenote_worker.jail.output.limits import KernelLimits
from cenote_worker.jail.output.streams import CellStream, OutputBuffer, OutputSink
from cenote_worker.jail.process import authors
from cenote_worker.jail.process.authors import AuthorNamespaces, Rebindings, Turn, TurnState, names_in
from cenote_worker.jail.process.cell_boundary import BetweenCells, InterruptHandler, not_collecting
from cenote_worker.jail.process.process_context import ProcessState, ShownWarnings, forget_levels
from cenote_worker.jail.rendering.bounded_text import bounded_repr, bounded_str
from cenote_worker.jail.rendering.show import show
from cenote_worker.jail.rendering.variables import describe_variable, describe_variables
from cenote_worker.jail.tracking.files.workdir_files import FolderChanges
from cenote_worker.jail.tracking.tracker import Tracker
from cenote_worker.process.pristine import BUILTINS

__all__ = ["CellOutcome", "Kernel", "KernelLimits", "OutputSink"]

__builtins__ = BUILTINS

_MOST_UNRAISABLE = 20
"""Exceptions of destructors and callbacks shown per cell. The collector may call one for each object."""

_now = time.perf_counter
_T = TypeVar("_T")


class Kernel:
    """A namespace and the means to run cells in it.

    Several authors may take turns: `enter` sets the current author, and all other methods act on that author's
    namespace.

    There is one per process: it becomes `sys.modules["__main__"]`, owns `sys.stdout`, `sys.stderr` and SIGINT, and
    adds `show`, `display` and `reply` to the builtins. Make it and call it in the main thread.
    """

    def __init__(
        self,
        sink: OutputSink,
        *,
        limits: KernelLimits = KernelLimits(),  # noqa: B008  (frozen)
        tracking: bool = False,
        watching: bool = False,
        guarded: bool = False,
        checking: bool = False,
        changes: FolderChanges | None = None,
    ) -> None:
        """watching: cells are observed even without traces, which makes a copy of the state cost more.
        guarded: the process is the kernel's alone, see `BetweenCells.guard`.
        checking: cells that are certain to fail run nothing, see `CellCheck`.
        changes: in the working directory, see `FolderWatch`."""
        self.module = ModuleType("__main__")
        self.namespace: dict[str, object] = vars(self.module)
        self.namespace["__builtins__"] = builtins  # else the first cell would bind it
        sys.modules["__main__"] = self.module
        self._limits = limits
        self._pid = getpid()
        self._output = OutputBuffer(sink)
        self._interrupts = InterruptHandler()
        self._interrupts.install()
        stdout, stderr = CellStream(self._output, "stdout"), CellStream(self._output, "stderr")
        self.streams = {"stdout": stdout, "stderr": stderr}
        """The streams that cells print to, by their names in `sys`."""
        self._process = ProcessState(stdout, stderr, self._interrupts)
        self._compiler = CellCompiler(limits.cell_sources)
        self._check = CellCheck(self._compiler) if checking else None
        self._runner = CellExecutor(self.namespace, self._interrupts)
        self._failures = Failures(self._compiler, limits)
        self._displays = Displays(self._output, limits)
        self._magics = Magics(self.namespace, self._displays)
        self.between_cells = BetweenCells()
        self._tracking = (
            CellTracking(self.namespace, lambda: self.between_cells.is_collecting, changes)
            if tracking or watching
            else None
        )
        self._gives_traces = tracking
        self._reply: str | None = None
        self._shown_warnings = ShownWarnings()
        self._unraisable = 0
        self._turn: Turn = ("", False)
        self._turn_before = self._turn
        self._switches = 0
        self._rebindings: Rebindings | None = None
        self._used: Collection[str] = ()
        self._notes: list[str] = []
        self._install_helpers()
        # Each author begins with the environment and the import path as they are now, with all that helpers need.
        self._seats = AuthorNamespaces(self.module, self._runner.context)
        if guarded:
            self.between_cells.guard()
            sys.unraisablehook = self._show_unraisable

    def enter(self, author: str, private: bool) -> None:
        """Switches to this author, in the common namespace or in the author's own. Never raises."""
        if self._turn == (author, private):
            return
        if self._rebindings is None:
            self._rebindings = Rebindings(self.namespace)
            authors.offer_shared_names(self.namespace)
        leaving, coming = self._seats.of(*self._turn), self._seats.of(author, private)
        self._turn_before, self._turn = self._turn, (author, private)
        self._switches += 1
        leaving.futures, self._compiler.futures = self._compiler.futures, coming.futures
        self.module, self.namespace = coming.module, vars(coming.module)
        sys.modules["__main__"] = self.module
        self._runner.move(self.namespace, coming.context)
        self._magics.namespace = self.namespace
        self._notes = self._seats.move(leaving, coming)
        self.look_anew()  # the directory, environment and import path are different now

    def is_turn_of(self, author: str, private: bool) -> bool:
        """Whether this author has the turn already."""
        return self._turn == (author, private)

    @property
    def turn(self) -> Turn:
        """The current one."""
        return self._turn

    @property
    def turn_state(self) -> TurnState | None:
        """What turns have left behind besides each author's process state: how often the turn has changed, the last
        turn before this one, this one, what its author is to be told, and the rebindings. None before a second author
        comes.
        """
        if self._rebindings is None:
            return None
        return self._switches, self._turn_before, self._turn, self._notes, self._rebindings.account()

    @property
    def held_by_turns(self) -> Mapping[str, object]:
        """Values of common names to which the record of rebindings refers."""
        return {} if self._rebindings is None else self._rebindings.held

    def restore_turn(self, state: TurnState | None) -> None:
        """In a process that continues from an earlier state, after names were bound: gives the turn to the author who
        had it, as if the turns in between had been taken.
        """
        if state is None:
            return
        switches, before, turn, notes, account = state
        if switches != self._switches and turn == self._turn:
            self.enter(*before)  # each turn begins with the import path as a new list
        self.enter(*turn)
        self._switches, self._turn_before, self._notes = switches, before, list(notes)
        assert self._rebindings is not None
        self._rebindings.restore(account)

    def settle(self) -> None:
        """Called after values were brought in, or a name was deleted, from outside."""
        self._settle(0)
        if self._tracking is not None:
            self._tracking.forget()

    def _settle(self, step: int) -> None:
        """Records rebindings of common names, so that other authors get notices of them."""
        used, self._used = self._used, ()
        if self._rebindings is not None:
            author, private = self._turn
            if private and "shared" not in used:
                used = ()  # its names are not the common ones
            with suppress(MemoryError):  # then the next turn finds out
                self._rebindings.settle(author, step, used)

    def run_cell(
        self,
        code: str,
        step: int,
        *,
        after_interrupt: bool = False,
        foresee: Callable[[Cell], None] | None = None,
    ) -> CellOutcome:
        """Runs one cell to its end, whatever the outcome. Never raises; ends the process if it is a forked child.

        after_interrupt: see `InterruptHandler.begin_cell`. foresee: called with the compiled cell before it runs.
        """
        started = _now()
        self._begin()
        rebindings = self._rebindings
        news = rebindings.news(self._turn[0]) if rebindings is not None else ()
        value, error = self._run(code, step, after_interrupt, foresee)
        forget_levels()
        self._shown_warnings.forget()
        if rebindings is not None:
            self._settle(step)
        trace = self._runner.context.run(self._tracking.end, error) if self._tracking is not None else None
        self._end()
        return CellOutcome(
            success=error is None,
            value=value,
            error=error,
            reply=self._reply if error is None else None,
            duration=_now() - started,
            notices=news,
            trace=trace,
            uses=self._uses() if error is None else None,
            bound_only=self._bound_only() if error is None else None,
        )

    def run_again(self, code: str, step: int) -> StepTrace | None:
        """Like `run_cell`, in a process that continues from before a cell that has run; output is discarded. Returns
        None if the cell fails, which it did not do the first time."""
        with self._output.silenced():
            outcome = self.run_cell(code, step)
        return outcome.trace if outcome.success else None

    def look_ahead(self) -> None:
        """Called when the kernel is idle: looks at what was brought in, so that the next cell need not."""
        if self._tracking is not None:
            self._runner.context.run(self._tracking.look_ahead)

    def look_anew(self) -> None:
        """Called when something other than a cell may have changed the state of the process."""
        if self._tracking is not None:
            self._tracking.tracker.look_anew()

    def describe(self) -> list[VariableInfo]:
        """The user's variables in order of creation; no modules, no names with an underscore."""
        return describe_variables(self.namespace)

    def describe_one(self, name: str) -> VariableInfo:
        """One variable, private or not. Raises KeyError if there is none of that name."""
        return describe_variable(name, self.namespace[name])

    def statements(self, code: str) -> Sequence[ast.stmt]:
        """See CellCompiler."""
        return self._compiler.statements(code)

    def definition(self, function: FunctionType) -> ast.FunctionDef | None:
        """See CellCompiler."""
        return self._compiler.definition(function)

    def revive(self) -> None:
        """Called in a process that replaces the one in which the kernel was copied."""
        self._pid = getpid()
        self._interrupts.forget()
        self._runner.renew()
        self.look_anew()

    @property
    def tracker(self) -> Tracker | None:
        """The tracker of the common namespace; None without traces."""
        return self._tracking.tracker if self._tracking is not None and self._gives_traces else None

    def before_fork(self) -> None:
        """Called when the process is about to be copied, while the kernel is idle."""
        if self._tracking is not None:
            self._tracking.tracker.before_fork()

    def forget(self, names: list[str]) -> None:
        """Called when something other than a cell has bound these names."""
        if self._tracking is not None:
            self._tracking.tracker.forget(names)

    def in_context(self, work: Callable[[], _T]) -> _T:
        """Runs `work` with the context variables as the cells have left them."""
        return self._runner.context.run(work)

    @property
    def futures(self) -> int:
        """Compiler flags that hold for later cells, from their `from __future__` imports."""
        return self._compiler.futures

    @futures.setter
    def futures(self, flags: int) -> None:
        self._compiler.futures = flags

    @property
    def sources(self) -> dict[str, tuple[str, list[int]]]:
        """See CellCompiler."""
        return self._compiler.sources

    def source_of(self, filename: str) -> tuple[str, list[int]] | None:
        """See CellCompiler."""
        return self._compiler.told(filename)

    def take_sources(self, sources: Mapping[str, tuple[str, list[int]]]) -> None:
        self._compiler.take_over(sources)

    def private_authors(self) -> list[str]:
        """Authors who have a namespace of their own."""
        return self._seats.private_authors()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """For work outside cells that runs users' code, such as pickling: an interrupt raises here too."""
        self._interrupts.armed = True
        try:
            yield
        finally:
            self._interrupts.armed = False

    # -- one cell --

    def _bound_only(self) -> frozenset[str] | None:
        """Common names bound by the last cell, if it did nothing else."""
        return None if self._tracking is None or self._turn[1] else self._tracking.bound_only

    def _uses(self) -> CellUses | None:
        """What the last cell has used, if that is known."""
        return None if self._tracking is None or self._turn[1] else self._tracking.uses

    def _begin(self) -> None:
        self._reply = None
        self._displays.begin_cell()
        self._process.begin_cell()
        # A cell may have cleared its globals. Without an entry, the code would get this module's builtins.
        self.namespace["__builtins__"] = builtins
        self.namespace.setdefault("__name__", "__main__")
        self.namespace.pop("__warningregistry__", None)  # of an author's namespace, which is no module
        self._shown_warnings.forget()  # those of threads since the last cell
        while self._notes:
            self._note(self._notes.pop())

    def _run(
        self, code: str, step: int, after_interrupt: bool, foresee: Callable[[Cell], None] | None
    ) -> tuple[str | None, ErrorInfo | None]:
        """The value and the error of a cell. An interrupt may come at any moment until the last line."""
        value, error = None, None
        try:
            try:
                self._interrupts.begin_cell(after_interrupt=after_interrupt)
                value = self._attempt(code, step, foresee)
            except BaseException as raised:
                self._close()
                error = self._explain(raised, f"<cell {step}>")
            self._finish()
            self._close()
            self._interrupts.armed = False
        except BaseException as raised:  # an interrupt in the lines above, or memory that is still short
            self._interrupts.armed = False
            error = error or self._told_briefly(raised, f"<cell {step}>")
        return (value if error is None else None), error

    def _told_briefly(self, raised: BaseException, filename: str) -> ErrorInfo:
        """Describes an error that was raised while a cell was ending."""
        while self.between_cells.is_open:
            with suppress(BaseException):  # a signal's handler raises once for each pending signal
                self._close()
        try:
            return self._explain(raised, filename) or brief(raised)
        except BaseException:
            return brief(raised)

    def _close(self) -> None:
        self.between_cells.close(self._note)

    def _attempt(self, code: str, step: int, foresee: Callable[[Cell], None] | None) -> str | None:
        cell = None
        try:
            cell = self._compiler.compile(code, step)
            if self._check is not None:
                cell = self._check.checked(cell, self.namespace, authors.shared_names())
            if foresee is not None:
                foresee(cell)
            if self._rebindings is not None:
                self._used = names_in(cell)
            if self._tracking is not None:
                self._runner.context.run(self._tracking.begin, cell, self.namespace)
            self._runner.context.run(self.between_cells.open, self._show_late)
            value = self._runner.run(cell)
        except BaseException as raised:
            if getpid() != self._pid:
                self._leave_child(raised)
            if cell is not None and cell.is_stand_in:
                raised.add_note(NOTHING_RAN)
            raise
        if getpid() != self._pid:
            self._leave_child(None)
        if value is None:
            return None
        self.namespace["_"] = value
        return self._runner.context.run(self._displays.value, value)

    def _explain(self, raised: BaseException, filename: str) -> ErrorInfo | None:
        if isinstance(raised, SystemExit) and exit_status(raised) == 0:
            self._note("exit() ends the cell; the runtime goes on")
            return None
        try:
            return self._failures.explain(raised, filename)
        except KeyboardInterrupt:
            raise
        except BaseException:  # no memory left, or a cell has ruined a module of the standard library
            return brief(raised)

    def _finish(self) -> None:
        """Runs what the end of a cell triggers: figures, and the ends of `%%time` and `%%capture`."""
        self._runner.context.run(self._displays.show_figures)
        self._magics.end_cell()

    def _end(self) -> None:
        try:
            for name in self._process.restore():
                self._note(f"{name} was replaced by the cell and is put back")
            if (more := self._unraisable - _MOST_UNRAISABLE) > 0:
                self._note(f"{more:,} more exceptions were ignored, of destructors and callbacks")
            self._unraisable = 0
            self._output.drain()
        except Exception:
            return  # the reader of the output is gone; the outcome may still find its way

    def _leave_child(self, raised: BaseException | None) -> None:
        """Ends a process that a cell has forked: it must never return and act as the kernel."""
        status = 0
        try:
            if isinstance(raised, SystemExit):
                status = exit_status(raised) & 0xFF
            elif raised is not None:
                status = 1
                self._output.write("stderr", f"{self._failures.explain(raised, '')}\n")
            self._output.flush()
        finally:
            _exit(status)

    # -- helpers --

    def _install_helpers(self) -> None:
        """Adds to the builtins, not to the namespace: helpers are not variables, and a user may have the same
        names."""
        helpers = {
            "show": show,
            "display": self._displays.display,
            "reply": self._take_reply,
            "input": Input(),
            "help": print_help,
            "exit": leave_cell,
            "quit": leave_cell,
            "get_ipython": get_ipython,
            MAGIC: self._magics,
        }
        for name, helper in helpers.items():
            setattr(builtins, name, helper)
        sys.breakpointhook = refuse_debugger
        threading.excepthook = self._show_thread_failure
        if "" not in sys.path:
            sys.path.insert(0, "")  # modules in the working directory, wherever that is later
        LibraryHooks(self._displays, self._magics).install()
        matplotlib_backend.on_show(self._displays.show_figures)
        matplotlib_figures.select_backend()

    def _take_reply(self, text: object, /) -> None:
        """The final answer, given if the cell succeeds. The last one counts."""
        self._reply = bounded_str(text, self._limits.reply_chars)

    def _show_thread_failure(self, failure: threading.ExceptHookArgs, /) -> None:
        if failure.exc_value is None or isinstance(failure.exc_value, SystemExit):
            return
        name = bounded_str(failure.thread.name if failure.thread else "", 100)
        error = self._failures.explain(failure.exc_value, "")
        self._output.write("stderr", f"Exception in thread {name}:\n{error}\n")

    def _show_unraisable(self, failure: sys.UnraisableHookArgs, /) -> None:
        """Shows an exception of a destructor or a callback, which Python cannot raise to a caller."""
        if failure.exc_value is None:
            return
        self._unraisable += 1
        if self._unraisable > _MOST_UNRAISABLE:
            return
        with (
            not_collecting()
        ):  # else a callback of the collector's that raises would be called in here, for ever
            what = bounded_str(failure.err_msg or "Exception ignored in", 100)
            where = "" if failure.object is None else f" {bounded_repr(failure.object, 200)}"
            error = self._failures.explain(failure.exc_value, "")
            self._output.write("stderr", f"{what}{where}:\n{error}\n")

    def _show_late(self, signal: str, error: BaseException | None) -> None:
        """Shows the outcome of a signal that came between cells. See `DeferredSignals.open`."""
        if error is None:
            self._note(
                f"{signal} came before this cell, and no function handles it: it would have ended the process"
            )
            return
        text = self._failures.explain(error, "")
        self._output.write(
            "stderr", f"Exception in the handler of {signal}, which came before this cell:\n{text}\n"
        )

    def show_stray(self, error: BaseException) -> None:
        """Shows an exception raised in the kernel's own code between two cells by other code: a thread can do
        that."""
        text = self._failures.explain(error, "")
        self._output.write("stderr", f"Exception that reached no cell:\n{text}\n")

    def _note(self, text: str) -> None:
        self._output.write("stderr", f"[{text}]\n")
