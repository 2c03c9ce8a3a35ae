"""The Python at the far end of a sandbox's pipes."""

from __future__ import annotations

from contextlib import closing

import pytest
from benchmarks.jail.sandbox import CellFailedError, DoesNotRunHereError
from benchmarks.jail.sandboxes.piped import NoSandbox, Piped


class Broken(Piped):
    """A sandbox that ends at once, and says why."""

    def command(self) -> list[str]:
        return ["sh", "-c", "echo no namespaces here >&2"]


class Missing(Piped):
    def command(self) -> list[str]:
        return ["no-such-sandbox"]


def test_cells_share_a_namespace_and_give_what_they_print() -> None:
    """As cells of a runtime do."""
    with closing(NoSandbox("/dev/shm")) as sandbox:
        assert "" == sandbox.execute("x = 6")
        assert "42\n" == sandbox.execute("print(x * 7)")


def test_a_cell_that_fails_is_no_figure() -> None:
    """Its error says which; the sandbox goes on."""
    with closing(NoSandbox("/dev/shm")) as sandbox:
        with pytest.raises(CellFailedError, match="ZeroDivisionError"):
            sandbox.execute("1 / 0")
        assert "ok\n" == sandbox.execute("print('ok')")


def test_a_sandbox_that_ends_tells_why() -> None:
    """What it said on stderr is the reason in the report."""
    with (
        closing(Broken("/dev/shm")) as sandbox,
        pytest.raises(DoesNotRunHereError, match="no namespaces here"),
    ):
        sandbox.execute("pass")


def test_a_sandbox_that_is_not_installed_is_named() -> None:
    """The benchmark goes on without it."""
    with pytest.raises(DoesNotRunHereError, match="no-such-sandbox is not installed"):
        Missing("/dev/shm")
