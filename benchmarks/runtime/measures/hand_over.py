"""A large value of one runtime is handed to others."""

from __future__ import annotations

import statistics
from contextlib import ExitStack, closing
from functools import partial

from benchmarks.runtime.contender import CellFailedError, Contender
from benchmarks.runtime.measure import Measure, Unit
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.payload import ARRAY
from benchmarks.runtime.stopwatch import seconds

RECEIVERS = 3


def time_hand_over(kind: type[Contender], parameters: Parameters) -> dict[str, float]:
    """`first read` is a cell that sums all of it, so that work deferred by a lazy mapping is counted."""
    items = ARRAY.items(parameters.large)
    with ExitStack() as stack:
        giver = stack.enter_context(closing(kind()))
        giver.execute(ARRAY.source(parameters.large))
        parcel: list[object] = []
        prepared = seconds(lambda: parcel.append(giver.prepare_hand_over("made")))
        received, read = [], []
        for i in range(RECEIVERS):
            receiver = stack.enter_context(closing(kind()))
            receiver.execute("import numpy")
            received.append(seconds(partial(receiver.receive, f"given_{i}", parcel[0], giver)))
            read.append(seconds(partial(receiver.execute, f"total = float(given_{i}.sum())")))
            _check(receiver.execute(f"print(total, given_{i}.flags.writeable)"), items)
    return {
        "memory copy": _memory_copy(parameters.large),
        "first copy": prepared,
        "hand-over": statistics.median(received),
        "first read": statistics.median(read),
    }


def _memory_copy(size: int) -> float:
    """How long the machine takes to copy the same amount between pages that exist already."""
    import numpy as np  # here, so that no other measure starts with it imported

    source, target = np.ones(size, dtype="uint8"), np.ones(size, dtype="uint8")
    return seconds(partial(np.copyto, target, source))


def _check(printed: str, items: int) -> None:
    total, writeable = printed.split()
    if abs(float(total) - items * (items - 1) / 2) > 1e-6 * items**2 or writeable != "True":
        raise CellFailedError(f"the receiver saw {printed!r}")


MEASURES = (
    Measure(
        name="hand-over",
        title="500 MB array from one runtime to a further one",
        run=time_hand_over,
        figures={
            "memory copy": Unit.SECONDS,
            "first copy": Unit.SECONDS,
            "hand-over": Unit.SECONDS,
            "first read": Unit.SECONDS,
        },
        rounds=3,
    ),
)
