"""What the exit status of `cenote` says. Part of the public promise: scripts branch on it."""

from __future__ import annotations

from enum import IntEnum

from cenote_security.errors import CenoteError, RejectedError, UnavailableError, UsageError


class ExitStatus(IntEnum):
    """0 to 3 are promised for `cenote exec`; the others follow the shell's customs."""

    OK = 0
    FAILED = 1  # the code, the agent or the check failed
    USAGE = 2  # wrong arguments; nothing ran
    REFUSED = 3  # a rule or a policy refused; nothing ran
    UNAVAILABLE = 4  # this machine or a service cannot do it; nothing ran
    INTERNAL = 70  # a bug of Cenote's own (EX_SOFTWARE)
    INTERRUPTED = 130  # Ctrl-C (128 + SIGINT)
    TERMINATED = 143  # SIGTERM (128 + 15), or SIGHUP
    BROKEN_PIPE = 141  # the reader of our output went away (128 + SIGPIPE)


def status_of(error: CenoteError) -> ExitStatus:
    """The exit status for an error that ended a command."""
    if isinstance(error, UsageError):
        return ExitStatus.USAGE
    if isinstance(error, RejectedError):
        return ExitStatus.REFUSED
    if isinstance(error, UnavailableError):
        return ExitStatus.UNAVAILABLE
    return ExitStatus.FAILED
