"""What may become of a batch."""

from __future__ import annotations

from cenote_security.errors import CenoteError


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

    def __str__(self) -> str:
        return (
            f"`{self.function}` failed on a batch of {self.rows} rows ({self.reason}); `errors_to` keeps such "
            f"batches beside the results instead of ending the job\n{self.error}"
        )
