"""Inspect: a runtime as the sandbox of a sample, and the tool `python`, whose namespace stays for the sample.

Task(..., sandbox="cenote", solver=[use_tools(python()), generate()])
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import yaml

from cenote.adapters.agent_namespace import PythonTool
from cenote.runtime import AsyncPythonRuntime, ProcessResult
from cenote.security import SandboxPolicy
from cenote_security.errors import CenoteError, FileRefusedError, UnknownFileError, UsageError
from cenote_security.extras import importing
from cenote_worker.execution.results import FileInfo

with importing("the adapter for Inspect", "inspect"):
    from inspect_ai.tool import Tool, ToolError, tool
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandbox,
        sandboxenv,
    )

USER: Final = "cave"
"""Whom a jail's programs run as."""

_KILLED: Final = 128 + 9
_NOT_EXECUTABLE: Final = 126


_CODES: Final = {os.strerror(code): code for code in errno.errorcode}


class _JailFiles:
    """Absolute paths, and relative ones of the working directory. Each call raises Python's own OSErrors."""

    def __init__(self, runtime: AsyncPythonRuntime) -> None:
        self._runtime = runtime
        self._folder = ""

    async def read(self, path: str) -> bytes:
        async with self._usual_errors(path):
            return await self._runtime.files.read(path)

    async def write(self, path: str, data: bytes | str) -> None:
        """Replaces a file that may be written to; makes missing folders."""
        with suppress(FileNotFoundError, NotADirectoryError):
            there = await self.stat(path)
            if there.kind == "file" and not there.mode & 0o222:  # which replacing it would not ask
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        async with self._usual_errors(path):
            await self._runtime.files.write(path, data, overwrite=True)

    async def stat(self, path: str) -> FileInfo:
        async with self._usual_errors(path):
            return await self._runtime.files.stat(await self._absolute(path))

    async def _absolute(self, path: str) -> str:
        """Of a relative path less is known."""
        if not self._folder:
            self._folder = (await self._runtime.run(["pwd"])).stdout.rstrip("\n")
        return posixpath.join(self._folder, path)

    @asynccontextmanager
    async def _usual_errors(self, path: str) -> AsyncIterator[None]:
        try:
            yield
        except UnknownFileError as error:
            raise FileNotFoundError(errno.ENOENT, error.reason, path) from None
        except FileRefusedError as error:
            code = _CODES.get(error.reason, errno.EIO)
            if code == errno.EIO and await self._is_folder(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
            raise OSError(code, error.reason, path) from None

    async def _is_folder(self, path: str) -> bool:
        try:
            return (await self._runtime.files.stat(path)).kind == "folder"
        except FileRefusedError:
            return False


@sandboxenv(name="cenote")
class CenoteSandboxEnvironment(SandboxEnvironment):
    """A runtime for each sample: commands and files of its jail, and a namespace beside them.

    The configuration is a YAML file with fields of SandboxPolicy: `sandbox=("cenote", "policy.yaml")`.
    """

    def __init__(self, policy: SandboxPolicy | None = None) -> None:
        super().__init__()
        self.runtime = AsyncPythonRuntime(sandbox=policy, address="embedded")
        self._files = _JailFiles(self.runtime)

    @classmethod
    def config_files(cls) -> list[str]:
        return ["cenote.yaml"]

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        made = cls(_policy(config))
        try:
            await (
                made.runtime.status()
            )  # starts the jail: a policy that this machine cannot honour is an error now
        except BaseException:
            await made.runtime.close()
            raise
        return {"default": made}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        for environment in environments.values():
            await environment.as_type(cls).runtime.close()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command. A command is never retried; the jail's own limits hold how many run at once."""
        if user not in (None, USER):
            raise SandboxUserUnsupportedError(f"programs of a jail run as {USER}, never as {user!r}")
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            ended = await self.runtime.run(
                cmd, stdin=input, cwd=cwd, env=env, timeout=timeout, max_output=limit
            )
        except CenoteError as error:
            raise SandboxUnavailableError(str(error)) from error
        return _exec_result(cmd, ended)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        await self._files.write(file, contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        size = (await self._files.stat(file)).size
        if size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        data = await self._files.read(file)
        return data.decode() if text else data


def _exec_result(cmd: list[str], ended: ProcessResult) -> ExecResult[str]:
    if ended.timed_out:
        raise TimeoutError(f"the command {cmd[0]!r:.100} was ended by its timeout")
    if ended.omitted:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, ended.stdout)
    if ended.exit_code == _NOT_EXECUTABLE and "ermission denied" in ended.stderr:
        raise PermissionError(ended.stderr.strip())
    code = ended.exit_code
    if code is None:
        signal = (ended.killed_by or "").removeprefix("signal ")
        code = 128 + int(signal) if signal.isdecimal() else _KILLED
    stderr = ended.stderr or (f"[ended: {ended.killed_by}]" if ended.exit_code is None else "")
    return ExecResult(code == 0, code, ended.stdout, stderr)


def _policy(config: Any) -> SandboxPolicy | None:
    """Raises UsageError for a file that is no policy."""
    if not isinstance(config, str):
        return None if config is None else SandboxPolicy(**config.model_dump())
    fields = yaml.safe_load(Path(config).read_text(encoding="utf-8")) or {}
    try:
        return SandboxPolicy(**fields)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{config} has no fields of SandboxPolicy: {error}") from error


@tool
def python(timeout: float | None = None) -> Tool:
    """Python in the sample's sandbox, with one namespace for all calls. timeout: seconds for one call."""

    async def execute(code: str) -> str:
        """Runs Python. Variables, imports and files stay for later calls. The value of the last expression is shown.

        Args:
            code: Python, as in a cell of a notebook.
        """
        environment = sandbox().as_type(CenoteSandboxEnvironment)
        try:
            return await PythonTool(environment.runtime, timeout=timeout).run(code)
        except CenoteError as error:
            raise ToolError(f"the code was not run: {error}") from error

    return execute
