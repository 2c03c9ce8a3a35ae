"""The behaviour tests of runtimes once more, on a platform: what a script does must not depend on where it runs.

What looks into this process, at supervisors, descriptors or forks, is tested where it is written.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.remote.small_platform import TOKEN, SmallPlatform
from tests.runtime.conftest import make_runtime, runtime

__all__ = ["make_runtime", "runtime"]


@pytest.fixture(scope="session")
def platform() -> Iterator[SmallPlatform]:
    """One for all tests of this process."""
    platform = SmallPlatform().start()
    yield platform
    platform.close()


@pytest.fixture(autouse=True)
def _on_the_platform(platform: SmallPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users do it: the script stays as it is, the environment says where it runs."""
    monkeypatch.setenv("CENOTE_ADDRESS", platform.address)
    monkeypatch.setenv("CENOTE_TOKEN", TOKEN)
