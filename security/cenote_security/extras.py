"""Libraries that extras bring: what is not installed is said in one line, with the extra that brings it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from cenote_security.errors import UnavailableError


class MissingExtraError(UnavailableError, ImportError):
    """Something needs libraries of an extra that is not installed. An ImportError, too, for code that tries imports.

    what: needs them. extra: brings them; several with commas between. cause: what was not found, as Python says it.
    """

    def __init__(self, what: str, extra: str, cause: str) -> None:
        super().__init__(what, extra, cause)
        self.what = what
        self.extra = extra
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.what} is not installed here: pip install 'cenote[{self.extra}]' ({self.cause})"


@contextmanager
def importing(what: str, extra: str) -> Iterator[None]:
    """Wraps imports of what an extra brings. Raises MissingExtraError, also for a broken library."""
    try:
        yield
    except MissingExtraError:  # it names the part that is missing
        raise
    except ImportError as error:
        raise MissingExtraError(what, extra, str(error)) from None


def require(what: str, extra: str, *modules: str) -> None:
    """The same without loading anything, for what is imported later. modules: of other projects, at the top."""
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(what, extra, f"No module named {module!r}")
