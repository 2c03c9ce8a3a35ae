"""LangChain, LangGraph and deepagents: a runtime as a sandbox, and as a namespace that follows a graph's state.

from cenote.adapters.langchain import CenoteMiddleware, CenoteSandbox
create_agent(model, middleware=[CenoteMiddleware(runtime)], checkpointer=...)
create_deep_agent(model, backend=CenoteSandbox(runtime), middleware=[CenoteMiddleware(runtime)])
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, NotRequired

from cenote.adapters.agent_namespace import AnyRuntime, PythonTool, blocking, told
from cenote_security.errors import CenoteError, FileRefusedError, NotKeptError, UnknownFileError
from cenote_security.extras import importing

with importing("the adapter for LangChain", "langchain"):
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox
    from langchain.agents.middleware.types import AgentMiddleware, AgentState, OmitFromInput
    from langchain.tools import ToolRuntime
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import StructuredTool
    from langgraph.types import Command

MOST_OUTPUT: Final = 1 << 20
"""Bytes of one command. deepagents reads files by commands, half a MiB at a time."""

_SHELL: Final = 'exec 2>&1\neval "$1"'
"""What a command prints to both streams is one text, in its order."""


class CenoteSandbox(BaseSandbox):
    """A runtime as the backend of deepagents: commands run beside the namespace, files are those of the jail.

    runtime: of the caller, who closes it; without one, a new one with `options` of PythonRuntime, which `close` ends.
    timeout: seconds for a command that has none of its own.
    """

    def __init__(self, runtime: AnyRuntime | None = None, *, timeout: float = 120, **options: Any) -> None:
        self.runtime, self._own = blocking(runtime, options)
        self._timeout = timeout
        self._id = self.runtime.name or f"cenote-{uuid.uuid4().hex[:12]}"

    @property
    def id(self) -> str:
        return self._id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command with bash. One that is ended by a limit says so in its output; its exit code is 124 for the
        time, as `timeout` has it, and 137 for others.
        """
        limit = self._timeout if timeout is None else timeout
        try:
            order = ["bash", "-c", _SHELL, "bash", command]
            ended = self.runtime.run(order, timeout=limit, max_output=MOST_OUTPUT)
        except CenoteError as error:
            return ExecuteResponse(output=f"the command was not run: {error}", exit_code=126)
        if ended.exit_code is not None:
            output = ended.stdout + ended.stderr
            return ExecuteResponse(output=output, exit_code=ended.exit_code, truncated=ended.omitted > 0)
        why = f"longer than {limit:g} s" if ended.timed_out else str(ended.killed_by)
        return ExecuteResponse(
            output=f"{ended.stdout}{ended.stderr}\n[the command was ended: {why}]",
            exit_code=124 if ended.timed_out else 137,
            truncated=ended.omitted > 0,
        )

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        write = partial(self.runtime.files.write, overwrite=True)
        return [
            FileUploadResponse(path=path, error=_refusal(path, partial(write, path, data)))
            for path, data in files
        ]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        found: dict[str, bytes] = {}

        def read(path: str) -> None:
            found[path] = self.runtime.files.read(path)

        errors = [(path, _refusal(path, partial(read, path))) for path in paths]
        return [FileDownloadResponse(path=path, content=found.get(path), error=why) for path, why in errors]

    def close(self) -> None:
        """Ends the runtime if it was made here."""
        if self._own:
            self.runtime.close()


def _refusal(path: str, work: Callable[[], None]) -> Any:
    """Why something cannot be done with a file, in deepagents' words where it has one; None where it is done."""
    if not path.startswith("/"):
        return "invalid_path"
    try:
        work()
    except UnknownFileError:
        return "file_not_found"
    except FileRefusedError as error:
        words = {"folder": "is_directory", "regular file": "is_directory", "ermission": "permission_denied",
                 "ead-only": "permission_denied", "nvalid": "invalid_path"}  # fmt: skip
        return next((word for sign, word in words.items() if sign in error.reason), error.reason)
    return None


def _latest(old: int | None, new: int | None) -> int:
    """Of two calls in one turn of the graph, the later one: cells run one after the other, and count upwards."""
    return max(old or 0, new or 0)


class CenoteState(AgentState[Any]):
    """cenote_step: the step of the runtime after which this state of the graph was made."""

    # The last annotation is LangGraph's reducer. A channel of plain `int` would begin with 0, which is a step.

    cenote_step: NotRequired[Annotated[int | None, OmitFromInput, _latest]]  # type: ignore[valid-type]


class CenoteMiddleware(AgentMiddleware[CenoteState, Any, Any]):
    """Gives an agent the tool `python` over a runtime, and stores the step of each call in the graph's state.

    So a graph that continues from an earlier checkpoint (`get_state_history`, `update_state`, `interrupt`) goes on
    with the namespace and the files of that checkpoint: before the next call of the tool the runtime is rolled back.
    `follow(state)` does that at once. Threads of a graph over one runtime each see the namespace of their own state.

    runtime: of the caller, who closes it; without one, a new one with `options` of PythonRuntime, which `close` ends.
    timeout: seconds for one call. tool_name: of the tool.
    """

    state_schema = CenoteState

    def __init__(
        self,
        runtime: AnyRuntime | None = None,
        *,
        timeout: float | None = None,
        tool_name: str = "python",
        **options: Any,
    ) -> None:
        super().__init__()
        self.runtime, self._own = blocking(runtime, options)
        self._timeout = timeout
        self._running = threading.Lock()
        self._step: int | None = (
            None  # where this middleware has left the runtime; not where other authors have
        )
        self._turn: tuple[
            object, ...
        ] = ()  # the calls of one message of a model, and the state that it was made in
        self._done: set[str] = set()  # those of them that have run
        self.tools = [
            StructuredTool.from_function(
                self._call, coroutine=self._acall, name=tool_name, description=PythonTool.description
            )
        ]

    def before_agent(self, state: CenoteState, runtime: Any) -> dict[str, Any] | None:
        """A new thread begins with the namespace as it is."""
        if state.get("cenote_step") is not None:
            return None
        with self._running:
            return {"cenote_step": self._keep(self._now())}

    async def abefore_agent(self, state: CenoteState, runtime: Any) -> dict[str, Any] | None:
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def follow(self, state: Mapping[str, Any]) -> None:
        """Takes the runtime to the state of a graph, `graph.get_state(config).values`.

        Raises NotKeptError, and does nothing, if the runtime has not kept that step.
        """
        with self._running:
            self._turn = ()
            self._go_to(state.get("cenote_step"))

    def _call(self, code: str, runtime: ToolRuntime) -> Command[Any]:
        with self._running:
            self._go_to_turn(runtime)
            result = self.runtime.execute(code, self._timeout, cause=runtime.tool_call_id or "")
            self._step = self._keep(self._now())
            step = self._step
        status = "success" if result.success else "error"
        message = ToolMessage(told(result, code), tool_call_id=runtime.tool_call_id, status=status)
        return Command(update={"messages": [message], "cenote_step": step})

    async def _acall(self, code: str, runtime: ToolRuntime) -> Command[Any]:
        try:
            return await asyncio.to_thread(self._call, code, runtime)
        except asyncio.CancelledError:
            self.runtime.interrupt()
            raise

    def _go_to_turn(self, runtime: ToolRuntime) -> None:
        """The calls of one message of a model all have the state from before it; only the first one goes back.

        The same call once more is the graph's, which runs this message again.
        """
        messages: Sequence[Any] = runtime.state.get("messages", ())
        calls = getattr(messages[-1], "tool_calls", ()) if messages else ()
        base = runtime.state.get("cenote_step")
        turn = (base, *(call["id"] for call in calls))
        call_id = str(runtime.tool_call_id)
        if turn != self._turn or call_id in self._done:
            self._go_to(base)
            self._turn, self._done = turn, set()
        self._done.add(call_id)

    def _go_to(self, step: int | None) -> None:
        if step is None or step == self._step:
            return
        if self._step is None and step == self._now():  # another process has made this state
            self._step = step
            return
        try:
            self._step = self.runtime.rollback(_label(step)).step
        except NotKeptError:
            self._step = self.runtime.rollback(step).step

    def _now(self) -> int:
        return self.runtime.state.head

    def _keep(self, step: int) -> int:
        """With a label, a state is kept longer than others."""
        self.runtime.snapshot(_label(step))
        self._step = step
        return step

    def close(self) -> None:
        """Ends the runtime if it was made here."""
        if self._own:
            self.runtime.close()


def _label(step: int) -> str:
    return f"langgraph {step}"
