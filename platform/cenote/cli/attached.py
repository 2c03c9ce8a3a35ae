"""A runtime of a platform, joined by a command for as long as that takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cenote.cli.platform_line import platform_line
from cenote.runtime.remote.address import Destination
from cenote_security.policy import SandboxPolicy

if TYPE_CHECKING:
    from cenote.runtime.sync import PythonRuntime


@contextmanager
def attached(name: str, where: Destination) -> Iterator[PythonRuntime]:
    """name: or id. Raises UnknownRuntimeError when there is no such runtime: none is made."""
    from cenote.runtime.backend import Backend
    from cenote.runtime.core import RuntimeCore
    from cenote.runtime.host_desk import HostDesk
    from cenote.runtime.remote.platform_client import client_of
    from cenote.runtime.remote.runtime import RemoteRuntime
    from cenote.runtime.sync import PythonRuntime
    from cenote_worker.wire import policies

    with platform_line(where) as line:
        found = line.runtime(name)

    def there(policy: SandboxPolicy, desk: HostDesk) -> Backend:
        return RemoteRuntime(client_of(where), policy, desk, found.name, attach=True)

    core = RuntimeCore((), (), (), None, policies.from_message(found.policy), None, there)
    with PythonRuntime.over(core) as runtime:
        yield runtime
