"""Batches as a function wants them, and what it returns as a table. This file's source is a jail's first cell.

Other code does not import it: it uses what can be imported inside a jail, and nothing of Cenote's.
"""

from __future__ import annotations

from typing import Any


def cenote_batch(stream: Any, form: str) -> Any:
    """stream: an Arrow stream as an array of bytes. form: `pandas`, `pyarrow` or `numpy`."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        table = reader.read_all()
    if form == "pandas":
        return table.to_pandas()
    if form == "numpy":
        columns = zip(table.column_names, table.columns, strict=True)
        return {name: column.to_numpy() for name, column in columns}
    return table


def cenote_table(result: Any, name: str) -> Any:
    """An Arrow table. name: of the function that returned the result."""
    import pyarrow as pa

    if isinstance(result, pa.Table):
        table = result
    elif isinstance(result, pa.RecordBatch):
        table = pa.Table.from_batches([result])
    elif isinstance(result, dict):
        table = pa.table({key: pa.array(column) for key, column in result.items()})
    elif type(result).__name__ == "DataFrame" and hasattr(result, "reset_index"):
        # An index that has a name is data, such as the keys of a groupby; one without only counts.
        named = any(level is not None for level in result.index.names)
        table = pa.Table.from_pandas(result.reset_index() if named else result, preserve_index=False)
    else:
        kind = type(result).__name__
        raise TypeError(f"{name} returned {kind}; return a DataFrame, an Arrow table, or a dict of columns")
    return table.replace_schema_metadata(None)
