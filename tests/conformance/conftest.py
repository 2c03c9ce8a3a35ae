"""The behaviour tests of runtimes once more, on a platform: what a script does must not depend on where it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.remote.small_platform import TOKEN, SmallPlatform
from tests.runtime.conftest import make_runtime, runtime  # noqa: F401

@pytest.fixture(scope="session")
def platform() -> Iterator[SmallPlatform]:
    """One for all tests of this process."""
    platform = SmallPlatform().start()
    yield platform
    platform.close()


@pytest.fixture(autouse=True)
def _on_the_platform(platform: SmallPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users do it: the script stays as it is, the environment says where."""
    monkeypatch.setenv("CENOTE_ADDRESS", platform.address)
    monkeypatch.setenv("CENOTE_TOKEN", TOKEN)
