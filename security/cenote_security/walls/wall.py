"""A wall that could not be built: which step failed, and what the kernel said."""

from __future__ import annotations

import errno


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


class building:
    """Turn an OSError inside a `with` block into a WallError that names the step.

    A plain class: a generator based context manager runs through enough of contextlib to cost each jail some pages.
    """

    __slots__ = ("_step",)

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            where = f" ({error.filename})" if error.filename else ""
            raise WallError(self._step, error.errno or 0, f"{error.strerror or error}{where}") from error
