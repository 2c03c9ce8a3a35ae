"""What may become of a batch."""

from __future__ import annotations

from cenote_security.errors import CenoteError
from cenote_security.verdict import of_reason


class BatchFailedError(CenoteError):
    """A function failed on a batch. The batches before it are worked through, none of their results is used.

    function: its name. rows: of the batch. error: what a model would read of it, traceback included. reason:
    `exception`, or what ended the jail, as in `ErrorInfo.reason`.
    """

    def __init__(self, function: str, rows: int, error: str, reason: str) -> None:
        super().__init__(function, rows, error, reason)  # pickled by these: it comes from another process
        self.function = function
        self.rows = rows
        self.error = error
        self.reason = reason
        self.verdict = of_reason(reason)

    def __str__(self) -> str:
        return (
            f"`{self.function}` failed on a batch of {self.rows} rows ({self.reason}); `errors_to` keeps the rows "
            f"that it fails on beside the results instead of ending the job\n{self.error}"
        )


class SchemaMismatchError(CenoteError):
    """A result contradicts what had to be guessed of all results, and blocks with the guess may be written already.

    function: its name. found: the contradiction, in words.
    """

    def __init__(self, function: str, found: str) -> None:
        super().__init__(function, found)
        self.function = function
        self.found = found

    def __str__(self) -> str:
        return (
            f"`{self.function}` gave {self.found}; that had to be guessed, since no result before it said it. Pass "
            f"`schema=`, the Arrow schema of what it returns, and begin again"
        )
