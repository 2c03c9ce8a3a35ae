"""Functions of jails over Ray Datasets, on a Ray cluster started by a script."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

BAD = [*range(10), 700, 701]
FINE = [number for number in range(1000) if number not in BAD]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_020)]
"""Time limit for a cluster and its Ray jobs on a busy machine."""


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, Any]]:
    """The script's output. Its folder has a short name, since it contains Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="ct-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.data.over_ray", folder],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "CENOTE_MODEL"}
            | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=1_000,
            check=False,
        )
        assert 0 == done.returncode, done.stderr
        yield json.loads(done.stdout.splitlines()[-1])


def test_each_row_is_worked_on_once(told: dict[str, Any]) -> None:
    """Except failed rows, which are kept with the error and can be retrieved."""
    assert [[number, ("zero", "one")[number % 2]] for number in FINE] == told["good"]
    assert BAD == told["failed"]
    assert ["ValueError: seven hundred" in error for error in told["errors"]] == [True] * len(BAD)


def test_what_was_written_is_read(told: dict[str, Any]) -> None:
    """By pandas, PyArrow and Ray, whichever block comes first: all values, and all errors."""
    assert 1 == told["schemas"]
    for reader in ("pandas", "pyarrow", "ray"):
        *values, errors = told["read"][reader]
        assert [[number, ("zero", "one")[number % 2], None] for number in FINE] == values, reader
        assert ["ValueError: seven hundred" in error for error in errors] == [True] * len(BAD), reader


def test_a_process_of_rays_was_killed_over_that(told: dict[str, Any]) -> None:
    """Ray gave its batches to another process, and its jail ended with it."""
    assert told["killed"]


def test_an_error_ends_the_job_if_nobody_keeps_it(told: dict[str, Any]) -> None:
    """Ray's error contains the text that says what failed, and what to do."""
    assert "`name` failed on a batch of 500 rows" in told["raised"]
    assert "`errors_to` keeps the rows that it fails on" in told["raised"]


def test_code_that_asks_for_too_much_is_told_what_to_do(told: dict[str, Any]) -> None:
    """`examples/large_dataset.py` shows a size that works."""
    assert [
        "'numbers' has more than the 2000 bytes that may be loaded; make it smaller with map",
        "no dataset 'nambers'; the nearest names are numbers",
        "head gives 1 to 1000 rows, not 0; map and load are for more",
        "None",
        "no function 'names' was put; the nearest names are name",
        "None",
        "no dataset 'numbers'; there are none",
    ] == told["asked"].splitlines()


def test_the_example_shows_what_it_claims(told: dict[str, Any]) -> None:
    """An agent runs its functions over all rows, and leaves out those they cannot read."""
    *lines, read = told["example"].splitlines()
    assert [
        "answer: The stations' means are in `means`.",
        "means: {'north': 10.45, 'south': 11.45, 'west': 12.45}",
        "rows that were left out: 3",
    ] == lines
    assert re.fullmatch(r"the model read [12]k tokens in 3 steps", read)
