"""A value of one namespace goes to others, on the same machine or another one."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial

from benchmarks.platform.measure import Measure
from benchmarks.platform.parameters import Parameters
from benchmarks.platform.service import AnyService, Namespace
from benchmarks.runtime.contender import CellFailedError
from benchmarks.runtime.measure import Unit
from benchmarks.runtime.payload import ARRAY, FRAME, Payload
from benchmarks.runtime.stopwatch import seconds

READS = {
    ARRAY.name: "total, writable = float(given.sum()), given.flags.writeable",
    FRAME.name: "total, writable = float(given['price'].sum()), None",
}


def time_hand_over(
    service: AnyService, parameters: Parameters, *, payload: Payload, large: bool, apart: bool = False
) -> dict[str, float]:
    """apart: givers and receivers are on two machines."""
    machines = service.apart() if apart else nullcontext((service.open, service.open))
    with machines as (near, far):
        return _timed(near, far, parameters, payload, parameters.large if large else parameters.small)


def _timed(
    near: Callable[[], Namespace],
    far: Callable[[], Namespace],
    parameters: Parameters,
    payload: Payload,
    size: int,
) -> dict[str, float]:
    """`first` is the time until the first consumer has the value, sharing included; each further one pays
    `further`."""
    received, read, writable = [], [], "None"
    with closing(near()) as giver:
        giver.execute(payload.source(size))
        parcel: list[object] = []
        shared = seconds(lambda: parcel.append(giver.share("made")))
        for _ in range(parameters.receivers):
            with closing(far()) as receiver:  # in sequence: not all services share memory
                receiver.execute("import pandas")
                received.append(seconds(partial(receiver.receive, "given", parcel[0])))
                read.append(seconds(partial(receiver.execute, READS[payload.name])))
                writable = _checked(receiver.execute("print(total, writable)"), payload.items(size))
    figures = {
        "first": shared + received[0],
        "further": statistics.median(received[1:]),
        "read": statistics.median(read),
    }
    return figures if writable == "None" else figures | {"writable": float(writable == "True")}


def _checked(printed: str, items: int) -> str:
    """Whether the consumer may write to the value, if that is known. Raises CellFailedError."""
    total, writable = printed.split()
    if abs(float(total) - items * (items - 1) / 2) > 1e-6 * items**2:
        raise CellFailedError(f"the receiver saw {printed!r}")
    return writable


_FIGURES = {
    "first": Unit.SECONDS,
    "further": Unit.SECONDS,
    "read": Unit.SECONDS,
    "writable": Unit.COUNT,
}

_CROSSING = ("cenote", "ray actors", "cloudpickle over gRPC")
"""Services whose namespaces may be on several machines."""

MEASURES = (
    Measure(
        name="array-small",
        title="8 MB array to a first and to further namespaces, then a cell that sums it",
        run=partial(time_hand_over, payload=ARRAY, large=False),
        figures=_FIGURES,
        rounds=2,
    ),
    Measure(
        name="array-large",
        title="the same with 512 MB",
        run=partial(time_hand_over, payload=ARRAY, large=True),
        figures=_FIGURES,
        rounds=2,
    ),
    Measure(
        name="frame-large",
        title="the same with a frame of 512 MB, with strings",
        run=partial(time_hand_over, payload=FRAME, large=True),
        figures={name: unit for name, unit in _FIGURES.items() if name != "writable"},
        rounds=1,
    ),
    Measure(
        name="far-array-small",
        title="8 MB array to a first and to further namespaces on another machine, then a cell that sums it",
        run=partial(time_hand_over, payload=ARRAY, large=False, apart=True),
        figures=_FIGURES,
        rounds=1,
        limit=240.0,
        only=_CROSSING,
    ),
    Measure(
        name="far-array-large",
        title="the same with 512 MB",
        run=partial(time_hand_over, payload=ARRAY, large=True, apart=True),
        figures=_FIGURES,
        rounds=1,
        limit=240.0,
        only=_CROSSING,
    ),
    Measure(
        name="far-frame-large",
        title="the same with a frame of 512 MB, with strings",
        run=partial(time_hand_over, payload=FRAME, large=True, apart=True),
        figures={name: unit for name, unit in _FIGURES.items() if name != "writable"},
        rounds=1,
        limit=240.0,
        only=_CROSSING,
    ),
)
