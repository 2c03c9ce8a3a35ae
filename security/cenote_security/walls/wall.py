"""A wall that could not be built: which step failed, and what the kernel said."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager


class WallError(Exception):
    """One step of building a jail failed; the jail was not started.

    step: what was being done, such as `unshare namespaces`. code: the errno, 0 when there was none.
    detail: the kernel's words and the call.
    """

    def __init__(self, step: str, code: int, detail: str) -> None:
        super().__init__(step, code, detail)
        self.step = step
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        name = f" [{errno.errorcode.get(self.code, self.code)}]" if self.code else ""
        return f"{self.step}: {self.detail}{name}"


@contextmanager
def building(step: str) -> Iterator[None]:
    """Turn an OSError inside the block into a WallError that names the step."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise WallError(step, error.errno or 0, f"{error.strerror or error}{where}") from error
