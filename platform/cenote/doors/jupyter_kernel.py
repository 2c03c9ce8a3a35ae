"""A Jupyter kernel whose namespace is a runtime: jailed, recorded, and shared with other doors.

The protocol is ipykernel's; this class implements its requests. Completion uses the existing names and what jedi
reads from the code of the cells: it runs nothing, and is not recorded.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import platform
import threading
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Final

import jedi
from ipykernel.kernelbase import Kernel
from IPython.core.inputtransformer2 import TransformerManager
from traitlets import Unicode

from cenote.doors.open_runtimes import OpenRuntime, OpenRuntimes
from cenote.harness import ExecutionState
from cenote.runtime import AsyncPythonRuntime, Function
from cenote_security.errors import CenoteError, NameExistsError
from cenote_worker.execution.results import ExecutionResult, MimeBundle, StreamName, VariableInfo

DOOR: Final = "jupyter"
"""The author of steps that the kernel runs."""

_MOST_CODE: Final = 200_000
"""Characters of earlier cells that completion reads: the newest."""

_LOOK: Final = 50
"""Milliseconds between two looks whether a question still waits for its answer."""

_END: Final = "\x04"
"""What a client answers for the end of the input."""


class CenoteKernel(Kernel):
    """runtimes, name: which runtime it is. asks: whether `input()` asks the user, as in a runtime of this process; a
    shared runtime has no user of its own. All three are set before a kernel is made.
    """

    implementation = "cenote"
    implementation_version = Unicode("1")
    banner = "Python in a jail, with a record of its steps"
    language_info: dict[str, Any] = {  # noqa: RUF012  (ipykernel has it so)
        "name": "python",
        "version": platform.python_version(),
        "mimetype": "text/x-python",
        "file_extension": ".py",
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "codemirror_mode": {"name": "ipython", "version": 3},
    }

    msg_types: ClassVar[list[str]] = [*Kernel.msg_types, "comm_open", "comm_msg"]

    runtimes: ClassVar[OpenRuntimes]
    name: ClassVar[str]
    asks: ClassVar[bool]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._opened: OpenRuntime | None = None
        self._asking: tuple[Any, Any] = None, None
        self._question: object = None
        self._stdin = threading.Lock()
        self._transformer = TransformerManager()

    async def _runtime(self) -> OpenRuntime:
        if self._opened is None:
            self._opened = await self.runtimes.through(DOOR).open(self.name)
            if self.asks:
                await self._offer_input(self._opened.owner)
        return self._opened

    async def _offer_input(self, owner: AsyncPythonRuntime) -> None:
        ask = Function(self._input(), host=True)
        try:
            await owner.inject(ask)
        except NameExistsError:  # a stored runtime has that of a former kernel
            await owner.delete(ask.name)
            await owner.inject(ask)

    # -- cells --

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,  # noqa: ARG002  (each cell is a step)
        user_expressions: Mapping[str, str] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: object = None,  # noqa: ARG002
        cell_id: str | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Runs a cell; its output is published as it comes."""
        self._allow_stdin = allow_stdin
        self._asking = self._get_shell_context_var(self._shell_parent_ident), self.get_parent("shell")

        printed = 0

        def print_(stream: StreamName, text: str) -> None:
            nonlocal printed
            printed += len(text)
            if not silent:
                self._publish("stream", {"name": stream, "text": text})

        try:
            result = await (await self._runtime()).author.execute(code, on_output=print_)
        except CenoteError as error:
            return self._failed(type(error).__name__, str(error), [str(error)], silent=silent)
        finally:
            self._question = None
        if not silent:
            if not result.truncated and printed > len(result.stdout) + len(result.stderr):
                self._show_rest(result)
            self._show(result)
        if (failure := result.error) is not None:
            return self._failed(failure.type, failure.message, str(failure).split("\n"), silent=silent)
        return {
            "status": "ok",
            "execution_count": self.execution_count,
            "payload": [],
            "user_expressions": {
                name: await self._evaluated(text) for name, text in (user_expressions or {}).items()
            },
        }

    async def _evaluated(self, text: str) -> dict[str, Any]:
        """The forms of an expression's value, which is a step of its own, or its error."""
        try:
            ast.parse(text.strip(), mode="eval")
            result = await (await self._runtime()).author.execute(text.strip())
        except (SyntaxError, ValueError, CenoteError) as error:
            return _error(type(error).__name__, str(error), [str(error)])
        if (failure := result.error) is not None:
            return _error(failure.type, failure.message, str(failure).split("\n"))
        _, data = _parts(result)
        return {"status": "ok", "data": data or {"text/plain": "None"}, "metadata": {}}

    def _show_rest(self, result: ExecutionResult) -> None:
        """Shows what the cell has printed since its last `clear_output`, in place of all that it has printed."""
        self._publish("clear_output", {"wait": False})
        for stream, text in (("stdout", result.stdout), ("stderr", result.stderr)):
            if text:
                self._publish("stream", {"name": stream, "text": text})

    def _show(self, result: ExecutionResult) -> None:
        for note in (*map(str, result.notices), *result.news):
            self._publish("stream", {"name": "stderr", "text": f"{note}\n"})
        outputs, data = _parts(result)
        for bundle in outputs:
            self._publish("display_data", {"data": _data(bundle), "metadata": {}, "transient": {}})
        if data:
            shown = {"data": data, "metadata": {}, "execution_count": self.execution_count}
            self._publish("execute_result", shown)

    def _failed(self, name: str, text: str, traceback: list[str], *, silent: bool) -> dict[str, Any]:
        error = _error(name, text, traceback)
        if not silent:
            self._publish("error", {key: value for key, value in error.items() if key != "status"})
        return {"execution_count": self.execution_count, **error}

    def _publish(self, kind: str, content: dict[str, Any]) -> None:
        if self.session is not None:
            self.session.send(self.iopub_socket, kind, content, self._asking[1], ident=self._topic(kind))

    def _input(self) -> Any:
        """The function that code calls as `input`: the notebook asks its user."""

        def input(prompt: str = "") -> str:
            """Ask the user for a line."""
            if not self._allow_stdin:
                raise EOFError("this notebook cannot ask: it runs without a user")
            return self._answer(str(prompt))

        return input

    def _answer(self, prompt: str) -> str:
        """The user's answer. The wait ends with the cell, or it would take the answer to the next question.

        Raises EOFError without an answer.
        """
        question = self._question = object()
        ident, parent = self._asking
        with self._stdin:
            while self.stdin_socket.poll(0):  # an answer that came too late
                self.stdin_socket.recv_multipart()
            content = {"prompt": prompt, "password": False}
            self.session.send(self.stdin_socket, "input_request", content, parent, ident=ident)
            while self._question is question:
                if self.stdin_socket.poll(_LOOK):
                    _, reply = self.session.recv(self.stdin_socket)
                    if reply is not None and reply["content"].get("value") != _END:
                        return str(reply["content"].get("value", ""))
                    break
        raise EOFError("the question was not answered")

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Interrupts the cell in the jail; the kernel's own process goes on."""
        self._stop_cell()
        if self.session is not None:
            self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    def _stop_cell(self) -> None:
        self._question = None
        if self._opened is not None:
            self._opened.author.core.interrupt()

    async def comm_open(self, _stream: Any, _ident: Any, parent: Any) -> None:
        """Closes it at once: widgets need an object in the kernel's process, and cells run in a jail."""
        content = {"comm_id": parent["content"].get("comm_id", ""), "data": {}}
        if self.session is not None:
            topic = self._topic("comm_close")
            self.session.send(self.iopub_socket, "comm_close", content, parent, ident=topic)

    comm_msg = comm_open

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """A runtime of this process ends; one of a platform stays."""
        if self.asks:
            self._stop_cell()
        await self.runtimes.close()
        return {"status": "ok", "restart": restart}

    # -- questions --

    async def do_is_complete(self, code: str) -> dict[str, str]:
        """Whether Enter runs the code."""
        status, indent = self._transformer.check_complete(code)
        return {"status": status, "indent": " " * (indent or 0)}

    async def do_complete(self, code: str, cursor_pos: int | None) -> dict[str, Any]:
        """Names of the namespace, and jedi's completions for the code up to the cursor."""
        position = _within(code, cursor_pos)
        word = _word(code, position)
        last = word.rpartition(".")[2]
        before = code[: position - len(word)]
        names = "." not in word and not before.endswith(("'", '"'))
        known = [info.name for info in await self._described()] if names else []
        found = {name for name in known if name.startswith(word)}
        try:
            script, line, column = await self._script(code[:position])
            for each in await asyncio.to_thread(script.complete, line, column):
                found.add(last + each.complete if each.name[:1] in "'\"" else each.name)
        except Exception as error:  # noqa: BLE001  (jedi fails in many ways on code that is half written)
            self.log.debug("no completion: %r", error)
        matches = sorted(found, key=lambda name: (name.startswith("_"), name))
        return {
            "status": "ok",
            "matches": matches,
            "cursor_start": position - len(last),
            "cursor_end": position,
            "metadata": {},
        }

    async def do_inspect(
        self,
        code: str,
        cursor_pos: int | None,
        detail_level: int = 0,  # noqa: ARG002
        omit_sections: tuple[str, ...] = (),  # noqa: ARG002
    ) -> dict[str, Any]:
        """The recorded facts about a variable, else its documentation; never a value."""
        end = _within(code, cursor_pos)
        while end < len(code) and (code[end].isalnum() or code[end] == "_"):
            end += 1
        name = _word(code, end)
        text = next((_facts(info) for info in await self._described() if info.name == name), "")
        if not text and name:
            try:
                script, line, column = await self._script(code[:end])
                names = await asyncio.to_thread(script.help, line, max(column - 1, 0))
                text = "\n\n".join(each.docstring() for each in names if each.docstring())
            except Exception as error:  # noqa: BLE001  (as above)
                self.log.debug("no help: %r", error)
        data = {"text/plain": text} if text else {}
        return {"status": "ok", "found": bool(text), "data": data, "metadata": {}}

    async def do_history(
        self,
        hist_access_type: str,
        output: bool,
        raw: bool,  # noqa: ARG002
        session: int | None = None,  # noqa: ARG002
        start: int | None = None,
        stop: int | None = None,
        n: int | None = None,
        pattern: str | None = None,
        unique: bool = False,
    ) -> dict[str, Any]:
        """Recorded cells, whichever door they came by."""
        steps = list((await self._state()).steps)
        if hist_access_type == "range":
            steps = [step for step in steps if (start or 0) <= step.number < (stop or 1 << 62)]
        elif hist_access_type == "search":
            steps = [step for step in steps if fnmatchcase(step.code, pattern or "*")]
        if unique:
            steps = list({step.code: step for step in steps}.values())
        cells = [(0, step.number, (step.code, step.value) if output else step.code) for step in steps]
        return {"status": "ok", "history": cells[-n:] if n else cells}

    async def _described(self) -> list[VariableInfo]:
        return await (await self._runtime()).author.describe()

    async def _state(self) -> ExecutionState:
        return await (await self._runtime()).state()

    async def _script(self, code: str) -> tuple[Any, int, int]:
        """The cells so far and this one as one program, and the position of its end."""
        before = "\n".join(step.code for step in (await self._state()).steps if step.status == "ok")[
            -_MOST_CODE:
        ]
        text = f"{before}\n{code}" if before else code
        lines = text.split("\n")
        return jedi.Script(text), len(lines), len(lines[-1])


def _within(code: str, position: int | None) -> int:
    """The position in the code that a client means: some send one beyond its ends."""
    return len(code) if position is None else min(max(position, 0), len(code))


def _word(code: str, position: int) -> str:
    """The dotted name that ends there."""
    start = position
    while start and (code[start - 1].isalnum() or code[start - 1] in "_."):
        start -= 1
    return code[start:position]


def _facts(info: VariableInfo) -> str:
    shape = f"\nshape: {info.shape}" if info.shape is not None else ""
    about = f"\n{info.description}" if info.description else ""
    return f"{info.name}: {info.type}{shape}\nsize: {info.size:,} bytes{about}"


def _parts(result: ExecutionResult) -> tuple[list[MimeBundle], dict[str, str]]:
    """What the cell displayed, and the forms of its value; none without a value."""
    outputs = list(result.outputs)
    if result.value is None:
        return outputs, {}
    rich = outputs.pop() if outputs and outputs[-1].get("text/plain") == result.value else {}
    return outputs, {**_data(rich), "text/plain": result.value}


def _error(name: str, text: str, traceback: list[str]) -> dict[str, Any]:
    return {"status": "error", "ename": name, "evalue": text, "traceback": traceback}


def _data(bundle: MimeBundle) -> dict[str, str]:
    return {
        mime: data if isinstance(data, str) else base64.b64encode(data).decode()
        for mime, data in bundle.items()
    }
