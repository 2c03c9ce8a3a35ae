"""Values as JSON and as Arrow IPC, for clients without Python: encoded and decoded only in the jail.

Pickles of `runtime/jail_requests.py` refer to `from_json` and `from_arrow`, and are stored with histories: names and
arguments must not change.
"""

from __future__ import annotations

from typing import Any, Final

from cenote_proto.v1 import jail_pb2
from cenote_security.sealed_memory import SealedDraft
from cenote_security.values.plain_json import NotPlainError, as_json
from cenote_worker.jail import plain_json
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport.content import INLINE_LIMIT, Content

__builtins__ = BUILTINS

_COLUMN: Final = "value"
"""The column of a table that is made from one array."""

_FILE_MAGIC: Final = b"ARROW1"

_NO_PYARROW: Final = (
    "the runtime has no pyarrow, which reads and writes Arrow: pip install 'cenote[data]' where it runs"
)


def from_json(text: memoryview) -> object:
    """Raises NotPlainError."""
    try:
        return plain_json.loads(bytes(text), strict=True)
    except UnicodeDecodeError:
        raise NotPlainError("what was sent as JSON is no UTF-8") from None
    except RecursionError:
        raise NotPlainError("what was sent as JSON is nested too deeply") from None
    except ValueError as error:
        raise NotPlainError(f"what was sent as JSON is none: {error}") from None


def from_arrow(data: memoryview) -> object:
    """A pyarrow.Table over the received memory. Raises NotPlainError."""
    arrow = _pyarrow()
    source = arrow.py_buffer(data)
    options = arrow.ipc.IpcReadOptions(use_threads=False)  # threads would keep the state from being copied
    try:
        if bytes(data[: len(_FILE_MAGIC)]) == _FILE_MAGIC:
            table = arrow.ipc.open_file(source, options=options).read_all()
        else:
            table = arrow.ipc.open_stream(source, options=options).read_all()
        table.validate()
    except (arrow.ArrowException, OSError) as error:
        raise NotPlainError(f"what was sent as Arrow is no Arrow IPC stream: {error}") from None
    return table


def written(value: object, name: str, form: jail_pb2.ValueForm.ValueType) -> Content:
    """The value in a form other than Python's own. Raises NotPlainError, and any error of the value itself."""
    if form == jail_pb2.JSON_VALUE:
        return Content.of_bytes(as_json(value, name).encode())
    if form == jail_pb2.ARROW_VALUE:
        return _as_arrow(value, name)
    raise NotPlainError(f"there is no form {form} of values in this version")


def _as_arrow(value: object, name: str) -> Content:
    arrow = _pyarrow()
    try:
        table = _table(arrow, value, name)
        draft = SealedDraft()
        try:
            options = arrow.ipc.IpcWriteOptions(use_threads=False)
            sink = arrow.PythonFile(_Writer(draft), mode="w")
            with arrow.ipc.new_stream(sink, table.schema, options=options) as stream:
                stream.write_table(table)
            memory = draft.seal()
        finally:
            draft.close()
    except (arrow.ArrowException, TypeError) as error:
        raise NotPlainError(f"{name} cannot be written as Arrow: {error}") from None
    if memory.size > INLINE_LIMIT:
        return Content(size=memory.size, count=0, memory=memory)
    try:
        # In the frame: there is less to read for the client.
        return Content.of_file(memory.fileno(), 0, memory.size)
    finally:
        memory.close()


class _Writer:
    """A file object for Arrow, which writes directly into the memory that is sent."""

    closed = False

    def __init__(self, draft: SealedDraft) -> None:
        self._draft = draft

    def write(self, data: Any) -> int:
        before = self._draft.filled
        self._draft.write(memoryview(data))
        return self._draft.filled - before

    def tell(self) -> int:
        return self._draft.filled

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def writable(self) -> bool:
        return True


def _table(arrow: Any, value: Any, name: str) -> Any:
    """Raises NotPlainError, and pyarrow's error for content without an Arrow type."""
    kind = type(value)
    home = kind.__module__.partition(".")[0]
    if isinstance(value, arrow.Table):
        return value
    if isinstance(value, arrow.RecordBatch):
        return arrow.Table.from_batches([value])
    if isinstance(value, arrow.Array | arrow.ChunkedArray):
        return arrow.table({_COLUMN: value})
    if home == "pandas" and hasattr(value, "to_frame"):  # a series, or an index
        value = value.to_frame(name=_COLUMN if value.name is None else str(value.name))
        kind = type(value)
    if home == "pandas" and kind.__name__ == "DataFrame":
        return arrow.Table.from_pandas(value, nthreads=1)
    if home == "polars" and hasattr(value, "to_frame"):
        value = value.to_frame(value.name or _COLUMN)
    if home == "numpy" and kind.__name__ == "ndarray" and value.ndim:
        return arrow.table({_COLUMN: _array(arrow, value)})
    if hasattr(type(value), "__arrow_c_stream__"):
        return arrow.table(value)
    raise NotPlainError(
        f"{name} is a {kind.__qualname__[:200]}, and Arrow holds frames and arrays; fetch it as JSON, or make a "
        "frame or an array of it in a cell"
    )


def _array(arrow: Any, value: Any) -> Any:
    """For several dimensions: rows are tensors of a fixed shape, Arrow's canonical extension type."""
    if value.ndim == 1:
        return arrow.array(value)
    if not value.size:
        raise NotPlainError(
            "an array of several dimensions and no elements has no form in Arrow; fetch it as JSON"
        )
    return arrow.FixedShapeTensorArray.from_numpy_ndarray(value.copy(order="C"))


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise NotPlainError(_NO_PYARROW) from None
    return pyarrow
