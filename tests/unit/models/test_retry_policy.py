"""Retries are decided without a clock, a sleep or randomness."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.models.errors import ModelRequestError, ModelResponseError, ModelUnavailableError
from cenote.models.retry import RetryPolicy, retry_after
from cenote_security.errors import UsageError

NOW = 1_800_000_000.0


def unavailable(wait: float | None = None) -> ModelUnavailableError:
    error = ModelUnavailableError("busy", status=503)
    error.retry_after = wait
    return error


def test_waits_double_up_to_the_cap() -> None:
    """The range of a wait doubles with each attempt."""
    policy = RetryPolicy(attempts=7, base=1.0, cap=10.0)
    tops = [policy.delay(attempt=n, error=unavailable(), draw=1.0) for n in range(1, 7)]
    assert [1.0, 2.0, 4.0, 8.0, 10.0, 10.0] == tops


def test_the_last_attempt_is_the_last() -> None:
    """`attempts` counts requests, not repetitions."""
    policy = RetryPolicy(attempts=2)
    assert 0.0 == policy.delay(attempt=1, error=unavailable(), draw=0.0)
    assert None is policy.delay(attempt=2, error=unavailable(), draw=0.0)


@pytest.mark.parametrize("error", [ModelRequestError("no", status=400), ModelResponseError("what?")])
def test_what_waiting_cannot_mend_is_not_tried_again(error: ModelRequestError) -> None:
    """A refusal stays a refusal."""
    assert None is RetryPolicy().delay(attempt=1, error=error, draw=0.0)


def test_retry_after_is_obeyed() -> None:
    """Never before the time that the server named, and not all exactly at that time."""
    policy = RetryPolicy(base=1.0)
    assert 7.0 == policy.delay(attempt=1, error=unavailable(7.0), draw=0.0)
    assert 7.5 == policy.delay(attempt=1, error=unavailable(7.0), draw=0.5)


@pytest.mark.parametrize(("wait", "given_up"), [(60.0, False), (60.1, True)])
def test_too_long_a_retry_after_is_left_to_the_caller(wait: float, given_up: bool) -> None:
    """A program should not sleep for an hour without its caller knowing."""
    delay = RetryPolicy(longest_wait=60.0).delay(attempt=1, error=unavailable(wait), draw=0.0)
    assert given_up is (delay is None)


@given(
    attempt=st.integers(1, 10_000),
    wait=st.none() | st.floats(0, 1e9),
    draw=st.floats(0, 1, exclude_max=True),
)
@settings(deadline=None)
def test_a_delay_is_within_its_bounds(attempt: int, wait: float | None, draw: float) -> None:
    """For any server response and any number of failures."""
    policy = RetryPolicy(attempts=10_001)
    delay = policy.delay(attempt=attempt, error=unavailable(wait), draw=draw)
    if wait is not None and wait > policy.longest_wait:
        assert None is delay
    else:
        assert delay is not None
        assert (wait or 0.0) <= delay <= max(policy.cap, policy.longest_wait + policy.base)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"base": -1.0}, {"cap": -0.1}])
def test_impossible_policies_are_refused(wrong: dict[str, float]) -> None:
    """At least one attempt, and no negative time."""
    with pytest.raises(UsageError):
        RetryPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Mon, 99 Foo 2026 00:00:00 GMT"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, an HTTP date, milliseconds in a separate header; nonsense counts as absent."""
    assert seconds == retry_after(headers, NOW)


@given(st.text(max_size=40))
@settings(deadline=None)
def test_no_header_breaks_the_reader(value: str) -> None:
    """A server may send anything."""
    seconds = retry_after({"retry-after": value}, NOW)
    assert seconds is None or seconds >= 0
