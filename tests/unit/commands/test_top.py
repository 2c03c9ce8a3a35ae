"""`cenote top`: what it shows of a fleet, how that fits a terminal, and that the terminal comes back."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from cenote.cli.platform.top import FleetSnapshot, age, page, steps_per_second
from cenote.terminal.screen import fitted, live_screen, table


def runtime(name: str, *, steps: int = 0, state: str = "ready") -> dict[str, object]:
    return {
        "id": f"rt_{name}",
        "name": name,
        "state": state,
        "steps": steps,
        "clients": 1,
        "policy": {"memory": 2 << 30},
        "created": "1970-01-01T00:00:00+00:00",
        "node": "local",
    }


def fleet(*runtimes: dict[str, object], at: float = 100.0) -> FleetSnapshot:
    machine = {"id": "local", "runtimes": 2, "references": 1, "reference_bytes": 1 << 20, "silent": False}
    return FleetSnapshot(at=at, now=7200.0, ready=True, causes=(), machines=(machine,), runtimes=runtimes)


def test_the_busiest_runtime_comes_first() -> None:
    before = fleet(runtime("idle", steps=5), runtime("busy", steps=5), at=98.0)
    lines = page(fleet(runtime("idle", steps=5), runtime("busy", steps=25)), before)
    assert lines[0] == "ready   2 runtimes (2 ready)   10.0 steps/s"
    assert lines[1] == "  machine local: 2 runtimes, 1 shared value (1 MiB)"
    assert ["busy", "idle"] == [line.split()[0] for line in lines[-2:]]
    assert ["busy", "ready", "25", "10.0", "1", "2", "GiB", "2h", "local"] == lines[-2].split()


def test_runtimes_that_work_come_before_those_that_sleep() -> None:
    lines = page(fleet(runtime("a", state="hibernated"), runtime("b", state="lost"), runtime("c")), None)
    assert ["c", "b", "a"] == [line.split()[0] for line in lines[-3:]]


def test_what_is_wrong_is_above_all() -> None:
    lines = page(replace(fleet(), ready=False, causes=("disk: full",)), None)
    assert ("NOT READY   no runtimes   0.0 steps/s", "  disk: full") == (lines[0], lines[1])
    assert "no runtimes; `cenote runtime create NAME` makes one" == lines[-1]


def test_a_rollback_and_a_new_runtime_have_no_rate() -> None:
    before = fleet(runtime("a", steps=9), at=99.0)
    assert {"rt_a": 0.0} == steps_per_second(fleet(runtime("a", steps=3), runtime("new", steps=7)), before)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (200_000, "2d")],
)
def test_an_age_has_one_unit(seconds: float, shown: str) -> None:
    assert shown == age(seconds)


def test_columns_are_as_wide_as_they_need() -> None:
    assert ["A     B", "long  x"] == table(("A", "B"), [("long", "x")])


@pytest.mark.parametrize(
    ("lines", "columns", "rows", "shown"),
    [
        (["abc", "defgh"], 4, 5, ["abc", "def…"]),
        (["a", "b", "c"], 10, 3, ["a", "b", "c"]),
        (["a", "b", "c", "d"], 20, 3, ["a", "b", "… and 2 more"]),
        ([], 10, 3, []),
    ],
)
def test_a_page_fits_its_terminal(lines: list[str], columns: int, rows: int, shown: list[str]) -> None:
    assert shown == fitted(lines, columns, rows)


def test_the_terminal_comes_back_after_an_error() -> None:
    """With its cursor and its former content; nothing drawn acts on it."""
    out = io.StringIO()

    def drawn() -> None:
        with live_screen(out) as screen:
            screen.draw(["a\x1b[2Jb"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drawn()
    assert out.getvalue().startswith("\x1b[?1049h\x1b[?25l")
    assert out.getvalue().endswith("\x1b[?25h\x1b[?1049l")
    assert "a\\x1b[2Jb" in out.getvalue()
