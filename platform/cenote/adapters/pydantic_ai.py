"""pydantic-ai: a runtime as the tool `python` of an agent, and as the workspace of its runs.

from cenote.adapters.pydantic_ai import CenoteToolset, CenoteWorkspace
Agent(model, toolsets=[CenoteToolset(runtime)])
await agent.run("...", workspace=CenoteWorkspace(runtime))
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from cenote.adapters.agent_namespace import AnyRuntime, PythonTool, awaiting
from cenote_security.errors import CenoteError, RejectedError
from cenote_security.extras import importing

with importing("the adapter for pydantic-ai", "pydantic_ai"):
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.workspaces import (
        CommandResult,
        WorkspaceOutputLimitError,
        WorkspaceRef,
        WorkspaceTimeoutError,
        WorkspaceUnavailableError,
    )
    from pydantic_ai.workspaces.protocol import validate_timeout

_KILLED: Final = 128 + 9


class CenoteToolset(FunctionToolset[Any]):
    """The tool `python`: cells of one runtime, whose namespace stays from call to call and from run to run.

    An error of the code, or of a limit, is the tool's answer; it takes none of the agent's retries. Several agents
    may have toolsets over one runtime: give each `runtime.attach(its_name)`.

    runtime: of the caller, who closes it; without one, a new one with `options` of PythonRuntime, which `close` ends.
    timeout: seconds for one call. tool_name: of the tool.
    """

    def __init__(
        self,
        runtime: AnyRuntime | None = None,
        *,
        timeout: float | None = None,
        tool_name: str = "python",
        **options: Any,
    ) -> None:
        super().__init__(id=f"cenote-{tool_name}")
        self._cells = PythonTool(runtime, timeout=timeout, **options)

        async def python(code: str) -> str:
            return await self._cells.run(code)

        self.add_function(python, name=tool_name, description=PythonTool.description)

    @property
    def runtime(self) -> Any:
        return self._cells.runtime

    async def close(self) -> None:
        await self._cells.close()


class CenoteWorkspace:
    """A workspace backend: commands of a runtime's jail, by which pydantic-ai also reads and writes its files.

    It lives as long as the runtime. A run that is to continue in it, by its `ref`, is given a CenoteWorkspace over
    the same runtime: on a platform, over the runtime of the name `ref.id`.

    runtime: of the caller, who closes it; without one, a new one with `options` of PythonRuntime, which `close` ends.
    """

    def __init__(self, runtime: AnyRuntime | None = None, **options: Any) -> None:
        self.runtime, self._own = awaiting(runtime, options)
        self._id = self.runtime.name or uuid.uuid4().hex
        self._ref: WorkspaceRef | None = None

    @property
    def ref(self) -> WorkspaceRef | None:
        """None before the first operation."""
        return self._ref

    async def working_dir(self) -> str:
        return str((await self.run(["pwd", "-P"])).stdout).rstrip("\n")

    async def run(
        self,
        command: Any,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Runs a command. Raises what the protocol of pydantic-ai's workspaces names."""
        if isinstance(command, str) is not shell:
            raise TypeError("a text needs shell=True, a list of a program and its arguments shell=False")
        validate_timeout(timeout)
        try:
            ended = await self.runtime.run(command if shell else list(command), env=env, timeout=timeout)
        except RejectedError:
            raise
        except CenoteError as error:
            raise WorkspaceUnavailableError(str(error)) from error
        self._ref = self._ref or WorkspaceRef(provider="cenote", id=self._id)
        if ended.timed_out:
            raise WorkspaceTimeoutError(
                "the command was ended by its timeout", stdout=ended.stdout, stderr=ended.stderr
            )
        if ended.killed_by in ("jail", "rollback", "worker"):
            raise WorkspaceUnavailableError(f"the command was ended with its environment: {ended.killed_by}")
        if ended.omitted:
            limit = len(ended.stdout_bytes) + len(ended.stderr_bytes)
            raise WorkspaceOutputLimitError(
                "the command printed more than is kept",
                limit=limit,
                stdout=ended.stdout,
                stderr=ended.stderr,
            )
        code = ended.exit_code
        if code is None:
            signal = (ended.killed_by or "").removeprefix("signal ")
            code = 128 + int(signal) if signal.isdecimal() else _KILLED
        return CommandResult(exit_code=code, stdout=ended.stdout, stderr=ended.stderr)

    async def close(self) -> None:
        """Ends the runtime if it was made here."""
        if self._own:
            await self.runtime.close()
