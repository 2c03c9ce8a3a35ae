"""What a platform writes to its log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.behaviour.gateway.test_gateway_server import SlowNodes
from tests.support.gateway.world import BARE, World, refused

from cenote.gateway.process.logs import JsonFormatter, PrintableFormatter
from cenote_proto.v1 import platform_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceStub
from cenote_worker.wire import policies


def test_a_record_cannot_act_on_the_terminal_that_shows_it() -> None:
    """Neither by its arguments nor by the error in it; its lines stay lines."""
    error = ValueError("\x1b]0;title\x07")
    record = logging.LogRecord(
        "n", logging.ERROR, "p", 1, "lost %s", ("\x1b[2J\u202e",), (ValueError, error, None)
    )
    shown = PrintableFormatter("%(levelname)s %(message)s").format(record)
    assert "ERROR lost \\x1b[2J\\u202e\nValueError: \\x1b]0;title\\x07" == shown


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, str]]]]:
    """What the gateway's logger has written as JSON so far."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("cenote.gateway")
    logger.addHandler(handler)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    logger.removeHandler(handler)


@pytest.fixture(scope="module")
def tracing() -> None:
    if not isinstance(trace.get_tracer_provider(), TracerProvider):  # a process sets this once
        trace.set_tracer_provider(TracerProvider())


def test_an_event_is_one_line_of_json(lines: Callable[[], list[dict[str, str]]]) -> None:
    """With its error, and its runtime; nothing in it acts on a terminal."""
    try:
        raise ValueError("two\nlines \x1b[2J")
    except ValueError:
        logging.getLogger("cenote.gateway").exception("%s is lost", "rt_1", extra={"runtime": "rt_1"})
    (line,) = lines()
    assert ("ERROR", "cenote.gateway", "rt_1 is lost", "rt_1") == (
        line["level"],
        line["logger"],
        line["event"],
        line["runtime"],
    )
    assert "ValueError: two\nlines \\x1b[2J" in line["error"]
    assert line["time"].endswith("+00:00")
    assert "trace" not in line


def test_what_went_wrong_in_a_call_has_its_trace(
    tracing: None, lines: Callable[[], list[dict[str, str]]], make_world: Callable[..., World]
) -> None:
    acme = make_world(nodes=SlowNodes(failure=RuntimeError("unexpected"))).user("acme")
    traced = "0af7651916cd43dd8448eb211c80319c"
    request = platform_pb2.CreateRuntimeRequest(name="etl", policy=policies.from_policy(BARE))
    metadata = (
        ("authorization", f"Bearer {acme.token}"),
        ("traceparent", f"00-{traced}-b7ad6b7169203331-01"),
    )
    refused(lambda: PlatformServiceStub(acme.channel).CreateRuntime(request, metadata=metadata))
    (line,) = (line for line in lines() if line["event"] == "a request failed")
    assert traced == line["trace"]
    assert "unexpected" in line["error"]
