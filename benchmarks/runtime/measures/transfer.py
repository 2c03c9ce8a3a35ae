"""Injection and retrieval of values, small and large."""

from __future__ import annotations

import statistics
from contextlib import closing
from functools import partial

from benchmarks.runtime.contender import CellFailedError, Contender
from benchmarks.runtime.measure import Measure, Unit
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.payload import PAYLOADS, Payload
from benchmarks.runtime.stopwatch import seconds


def _inject(contender: Contender, payload: Payload, size: int, times: int) -> float:
    value = payload.value(size)
    names = [f"{payload.name}_{i}" for i in range(times)]
    taken = [seconds(partial(contender.inject, name, value)) for name in names]
    seen = contender.execute(f"print(len({names[-1]}))").strip()
    if seen != str(len(value)):  # type: ignore[arg-type]  # every payload has a length
        raise CellFailedError(f"injected {payload.name} has length {seen}")
    contender.execute("\n".join(f"del {name}" for name in names))
    return statistics.median(taken)


def _retrieve(contender: Contender, payload: Payload, size: int, times: int) -> float:
    contender.execute(payload.source(size))
    taken = [seconds(partial(contender.retrieve, "made")) for _ in range(times)]
    if type(contender.retrieve("made")) is not type(payload.value(1000)):
        raise CellFailedError(f"retrieved {payload.name} has another type")
    contender.execute("del made")
    return statistics.median(taken)


def time_transfer(
    kind: type[Contender], parameters: Parameters, *, payload: Payload, large: bool
) -> dict[str, float]:
    size, times = (parameters.large, 1) if large else (parameters.small, parameters.transfers)
    with closing(kind()) as contender:
        contender.execute("import pandas")
        return {
            "inject": _inject(contender, payload, size, times),
            "retrieve": _retrieve(contender, payload, size, times),
        }


def _measure(payload: Payload, large: bool) -> Measure:
    size = "500 MB" if large else "1 MB"
    return Measure(
        name=f"{payload.name}-{'large' if large else 'small'}",
        title=f"{size} {payload.name}",
        run=partial(time_transfer, payload=payload, large=large),
        figures={"inject": Unit.SECONDS, "retrieve": Unit.SECONDS},
        rounds=3 if large else None,
    )


MEASURES = tuple(_measure(payload, large) for large in (False, True) for payload in PAYLOADS)
