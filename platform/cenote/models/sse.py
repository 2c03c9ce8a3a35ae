"""Server-sent events: bytes in, event data out. No I/O."""

from __future__ import annotations

from cenote.models.errors import ModelResponseError

MAX_LINE = 4 * 2**20
"""Bytes. A chunk of a chat completion is some hundred bytes; whole answers in one event reach kilobytes."""

MAX_EVENT = 2 * MAX_LINE
"""Bytes of all data lines of one event."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventParser:
    """Cuts a byte stream, however it was chopped, into the data of its events.

    After the HTML standard's "Interpreting an event stream", reduced to what chat completions use: `data`
    lines; comments, `event`, `id` and `retry` are skipped.
    """

    def __init__(self, *, max_line: int = MAX_LINE, max_event: int = MAX_EVENT) -> None:
        self._max_line = max_line
        self._max_event = max_event
        self._line = bytearray()  # the unfinished line
        self._data: list[bytes] = []  # data lines of the unfinished event
        self._size = 0  # bytes in _data
        self._after_cr = False  # the last byte fed was CR: an LF that follows belongs to it
        self._first = True  # no line was read yet: a byte order mark may lead it

    def feed(self, data: bytes) -> list[str]:
        """The data of each event that `data` completes.

        Raises ModelResponseError for a line or an event over the limit.
        """
        *complete, rest = self._split(data)
        events = []
        for part in complete:
            self._extend(part)
            event = self._end_line()
            if event is not None:
                events.append(event)
        self._extend(rest)
        return events

    def finish(self) -> list[str]:
        """The data of an event that ends with the stream instead of a blank line, as some servers' last.

        A line that the end cut off is dropped: it is not known to be whole.
        """
        event = self._end_event()
        return [] if event is None else [event]

    def _split(self, data: bytes) -> list[bytes]:
        """Pieces of `data` between line ends; the last one is unfinished."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")

    def _extend(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > self._max_line:
            raise ModelResponseError(f"the server sent a line of more than {self._max_line} bytes")

    def _end_line(self) -> str | None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            return self._end_event()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._add(value.removeprefix(b" "))
        return None

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._size += len(value) + 1  # the line break that will join it, so that empty lines count too
        if self._size > self._max_event:
            raise ModelResponseError(f"the server sent an event of more than {self._max_event} bytes")

    def _end_event(self) -> str | None:
        if not self._data:
            return None
        data = b"\n".join(self._data)
        self._data.clear()
        self._size = 0
        return data.decode("utf-8", "replace")
