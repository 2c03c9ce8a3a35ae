"""Which tests have to run again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

Version = Callable[[str], str]
"""Of something that a test uses, as it is now."""


def because(former: Mapping[str, object] | None, version: Version) -> str:
    """Why the test runs: `new`, `failed`, `unsteady`, or what it uses that is different now. Empty: it need not.

    former: `outcome`, `used` with the versions of its last run, `unsteady`: why it may come out different each time.
    """
    if former is None:
        return "new"
    if former["outcome"] != "passed":
        return "failed"
    if former["unsteady"]:
        return "unsteady"
    used = former["used"]
    assert isinstance(used, dict)
    return next((item for item in sorted(used) if version(item) != used[item]), "")
