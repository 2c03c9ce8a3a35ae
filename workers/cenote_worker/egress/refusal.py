"""The proxy's refusals, and their HTTP answers."""

from __future__ import annotations


class HttpRefusal(Exception):
    """A request is not passed on. status: of the HTTP answer. reason: printable ASCII, for the jail and the log."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason

    def answer(self) -> bytes:
        """The HTTP answer. The reason is in the status line too: of a refused tunnel, clients show nothing else."""
        body = f"{self.reason}\n".encode("ascii", "replace")
        line = f"HTTP/1.1 {self.status} {self.reason}".encode("ascii", "replace")
        headers = b"Content-Type: text/plain\r\nConnection: close\r\nContent-Length: %d" % len(body)
        return b"%b\r\n%b\r\n\r\n%b" % (line, headers, body)
