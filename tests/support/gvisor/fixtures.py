"""One runtime at `gvisor` for the session if `runsc` is installed; otherwise a skip that names what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import SandboxPolicy

POLICY = SandboxPolicy(isolation="gvisor", memory="256MiB", disk="32MiB", env={"COLOUR": "deep blue"})


@pytest.fixture(scope="session")
def gvisor() -> Iterator[PythonRuntime]:
    """A jail in gVisor. Its preload asks for more than such a jail has."""
    with PythonRuntime(sandbox=POLICY) as runtime:
        try:
            runtime.execute("1")
        except IsolationUnavailableError as error:
            pytest.skip(str(error))
        yield runtime
