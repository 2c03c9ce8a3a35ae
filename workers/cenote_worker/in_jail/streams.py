"""`sys.stdout` and `sys.stderr` of a namespace."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cenote_worker.in_jail.output import OutputBuffer
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.results import StreamName

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__builtins__ = BUILTINS

_write_text = OutputBuffer.write
_flush_text = OutputBuffer.flush


class CellStream(io.TextIOBase):
    """A text stream into an OutputBuffer. Never closed, never a terminal; `buffer` takes bytes in UTF-8."""

    mode = "w"
    line_buffering = True
    write_through = False

    def __init__(self, output: OutputBuffer, stream: StreamName) -> None:
        super().__init__()
        self._output = output
        self._stream: StreamName = stream
        self._bytes = _ByteStream(self)

    @property
    def name(self) -> str:
        return f"<{self._stream}>"

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    @property
    def buffer(self) -> _ByteStream:
        return self._bytes

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        plain = str.__str__(text)
        if plain:
            _write_text(self._output, self._stream, plain)
        return len(plain)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        _flush_text(self._output)

    def close(self) -> None:
        """Flushes only: code that closes stdout out of habit would lose all later output."""
        self.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1 if self._stream == "stdout" else 2

    def reconfigure(self, **_options: object) -> None:
        """Takes what `io.TextIOWrapper.reconfigure` takes; the stream stays UTF-8 and line buffered."""


class _ByteStream(io.RawIOBase):
    """Bytes into a CellStream, decoded as UTF-8 across the borders of writes."""

    def __init__(self, text: CellStream) -> None:
        super().__init__()
        self._text = text
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    @property
    def name(self) -> str:
        return self._text.name

    @property
    def raw(self) -> _ByteStream:
        return self

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data)
        self._text.write(self._decoder.decode(view.tobytes()))
        return view.nbytes

    def flush(self) -> None:
        self._text.flush()

    def close(self) -> None:
        self.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()
