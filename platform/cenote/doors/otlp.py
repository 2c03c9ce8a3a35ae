"""Sends the spans of a Cenote server to a collector that takes OTLP over HTTP."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from cenote_security.errors import UsageError
from cenote_security.extras import importing

TRACES: Final = "/v1/traces"

PATIENCE: Final = 2.0
"""Seconds that the end of a process waits for its last spans to be sent."""

QUIET: Final = 60.0
"""Seconds between two log records of the exporter, which logs one or more for each attempt."""


def check_collector(url: str) -> str:
    """The URL for traces. Raises UsageError for an invalid URL, and for one with a password, which any list of
    processes would show.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise UsageError(f"a collector is at a URL such as http://localhost:4318, not {url!r:.200}")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "the URL of a collector has no name and password; put them into OTEL_EXPORTER_OTLP_HEADERS"
        )
    return urlunsplit(parts) if parts.path.strip("/") else urlunsplit(parts._replace(path=TRACES))


def export_to(url: str, service: str) -> Callable[[], None]:
    """Sets up the tracer provider of this process. The returned function sends the remaining spans, and ends it.

    Headers, such as a key, come from OTEL_EXPORTER_OTLP_HEADERS. A collector that does not answer is logged, and
    delays nothing. Raises UsageError, MissingExtraError.
    """
    endpoint = check_collector(url)
    with importing("--otlp", "otel"):
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    logging.getLogger(OTLPSpanExporter.__module__).addFilter(_Seldom())
    resource = Resource.create({"service.name": service, "service.version": version("cenote")})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)

    def flush() -> None:
        # Its own limit is half a minute, which is longer than a service manager waits.
        ending = threading.Thread(target=provider.shutdown, name="cenote-traces", daemon=True)
        ending.start()
        ending.join(PATIENCE)

    return flush


class _Seldom(logging.Filter):
    """Passes one record, then none for a while."""

    def __init__(self) -> None:
        super().__init__()
        self._next = -float("inf")

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + QUIET
        return True
