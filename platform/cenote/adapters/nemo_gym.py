"""NeMo Gym: jails as a sandbox provider, under the name `cenote`.

AsyncSandbox({"cenote": {"memory": "1GiB"}})        # in a configuration: cenote: {memory: 1GiB}
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cenote.runtime import AsyncPythonRuntime
from cenote.security import SandboxPolicy
from cenote_security.errors import CenoteError, UsageError
from cenote_security.extras import importing

with importing("the adapter for NeMo Gym", "nemo_gym"):
    from nemo_gym.sandbox.providers.base import (
        SandboxCreateError,
        SandboxExecResult,
        SandboxHandle,
        SandboxSpec,
        SandboxStatus,
    )

NO_EXIT_CODE: Final = 125
"""Return code of a command that the sandbox ended or did not run, as NeMo Gym's own providers give it."""


class CenoteJailProvider:
    """A jail for each sandbox. `handle.raw` is its runtime, whose namespace stays from call to call.

    address: of a platform; by default jails of this process. policy: fields of SandboxPolicy, for all sandboxes. A
    specification's resources, `env`, `ttl_s` and `provider_options`, further fields of SandboxPolicy, go before them.
    """

    name = "cenote"

    def __init__(self, *, address: str | None = "embedded", **policy: Any) -> None:
        self._address = address
        self._policy = _policy(policy)
        self._open: dict[str, AsyncPythonRuntime] = {}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Starts a jail. Raises SandboxCreateError, also for what no jail has: an image, an entry point, a GPU."""
        try:
            runtime = AsyncPythonRuntime(sandbox=self._policy_of(spec), address=self._address)
            try:
                await runtime.status()  # starts it: what this machine cannot honour is an error now
            except BaseException:
                await runtime.close()
                raise
        except CenoteError as error:
            raise SandboxCreateError(str(error)) from error
        handle = SandboxHandle(sandbox_id=f"cenote-{id(runtime):x}", provider_name=self.name, raw=runtime)
        self._open[handle.sandbox_id] = runtime
        return handle

    def _policy_of(self, spec: SandboxSpec) -> SandboxPolicy:
        if spec.image is not None or spec.entrypoint is not None:
            raise UsageError(
                "a jail has no image and no entry point: it has the packages of this process, or of an environment, "
                "which provider_options={'environment': 'its-name'} names"
            )
        resources = spec.resources
        if resources.gpu or resources.gpu_type:
            raise UsageError("a jail has no GPU; leave it out of the resources")
        given: dict[str, Any] = {
            "cpus": resources.cpu,
            "memory": None if resources.memory_mib is None else f"{resources.memory_mib}MiB",
            "disk": None if resources.disk_gib is None else f"{resources.disk_gib}GiB",
            "runtime_timeout": spec.ttl_s,
        }
        found = {name: value for name, value in given.items() if value is not None}
        env = {**self._policy.env, **spec.env}
        return _policy({**found, "env": env, **spec.provider_options}, self._policy)

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Runs a command of the shell, beside the namespace.

        Where the sandbox ends it or does not run it, the return code is 125, and error_type `timeout` or `sandbox`.
        """
        if user is not None:
            return _not_run(f"programs of a jail run as its one user, never as {user!r}")
        try:
            ended = await handle.raw.run(command, cwd=cwd, env=env, timeout=timeout_s)
        except CenoteError as error:
            return _not_run(str(error))
        code, kind = ended.exit_code, None
        if ended.timed_out:
            code, kind = NO_EXIT_CODE, "timeout"
        elif code is None:
            signal = (ended.killed_by or "").removeprefix("signal ")
            code, kind = (128 + int(signal), None) if signal.isdecimal() else (NO_EXIT_CODE, "sandbox")
        return SandboxExecResult(ended.stdout, ended.stderr, code, kind)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        await handle.raw.files.upload(source_path, target_path, overwrite=True)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        await handle.raw.files.download(source_path, target_path, overwrite=True)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        if handle.sandbox_id not in self._open:
            return SandboxStatus.STOPPED
        try:
            await handle.raw.status()
        except CenoteError:
            return SandboxStatus.ERROR
        return SandboxStatus.RUNNING

    async def close(self, handle: SandboxHandle) -> None:
        """Closing twice is fine."""
        if (runtime := self._open.pop(handle.sandbox_id, None)) is not None:
            await runtime.close()

    async def aclose(self) -> None:
        """Ends all jails that are left."""
        while self._open:
            await self._open.popitem()[1].close()


def _policy(fields: dict[str, Any], base: SandboxPolicy | None = None) -> SandboxPolicy:
    """Raises UsageError for fields that are not those of SandboxPolicy, or values that it refuses."""
    try:
        return SandboxPolicy(**fields) if base is None else replace(base, **fields)
    except TypeError as error:
        raise UsageError(f"these are no fields of SandboxPolicy: {error}") from error


def _not_run(why: str) -> SandboxExecResult:
    return SandboxExecResult(None, why, NO_EXIT_CODE, "sandbox")
