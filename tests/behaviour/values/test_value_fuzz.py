"""Any bytes give a value or a CenoteError, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_security.errors import CenoteError
from cenote_security.values import decode

FUZZER = Path(__file__).resolve().parents[2] / "support" / "values" / "decoder_fuzzer.py"
MEMORY_PER_BYTE = 96  # of header: an empty deque is the worst, 15 bytes of text for a kilobyte of memory

AN_ARRAY = b'[1,null,[["array",["<i8",[0],"C","ndarray",[0,0]]]]]'

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["list", "tuple"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["q", "d", "x"]), inner, max_size=1)
    ),
    max_leaves=12,
)


def attempt(header: bytes, region: bytes = b"") -> None:
    """It is decoded or refused, in little time."""
    started = time.process_time()
    with suppress(CenoteError):
        decode(header, region)
    assert 10 > time.process_time() - started


@settings(max_examples=300)
@given(st.binary(max_size=200), st.binary(max_size=50))
def test_random_bytes(header: bytes, region: bytes) -> None:
    """Noise is refused."""
    attempt(header, region)


@pytest.mark.slow
@settings(max_examples=300)
@given(JSON, st.lists(JSON, max_size=4), st.binary(max_size=50))
def test_random_json(root: object, nodes: list[object], region: bytes) -> None:
    """Text that is JSON, around a valid frame."""
    attempt(json.dumps([1, root, nodes]).encode(), region)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_broken_encodings(seed: int) -> None:
    """Valid encodings of every kind, with changed parts; used afterwards as a reader would. Nothing crashes."""
    done = subprocess.run(
        [sys.executable, str(FUZZER), str(seed), "1500"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["refused"] > 500
    assert result["values"] > 50
    assert result["slowest"] < 5.0


@pytest.mark.sweep
@pytest.mark.parametrize(
    "header",
    [
        b'[1,[0],[["list",null,[' + b",".join([b"0"] * 50_000) + b"]]]]",
        b"[1,null,[" + b",".join([b'["list",null,[]]'] * 10_000) + b"]]",
        b'[1,null,[["list",null,[' + b",".join([b"[0]"] * 25_000) + b"]]]]",
        b"[1,[" + b",".join([b"[]"] * 50_000) + b"],[]]",
        b"[1,null,[" + b",".join([b'["deque",1,[]]'] * 10_000) + b"]]",
        b'[1,null,[["deque",4000000000,[]]]]',
        b'[1,null,[["array",["<i8",[0,1048576],"C","ndarray",[0,0]]]]]',
    ],
    ids=["zeros", "empty lists", "references", "brackets", "deques", "bound", "empty array"],
)
def test_memory_is_a_small_multiple_of_the_input(header: bytes) -> None:
    """A few bytes allocate little, besides the libraries that the first array loads."""
    attempt(AN_ARRAY)
    tracemalloc.start()
    try:
        attempt(header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20 + MEMORY_PER_BYTE * len(header)
