"""Where a server of Cenote's sends its spans: a collector that takes OTLP over HTTP."""

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
"""Seconds between two complaints of the exporter, which has one or more for each of its tries."""


def check_collector(url: str) -> str:
    """The place of its traces. Raises UsageError for what is no URL, and for a password, which any list of processes
    would show.
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
    """Sets up the tracer provider of this process. What it returns sends what is left, and ends it.

    Headers, such as a key, are what OTEL_EXPORTER_OTLP_HEADERS says. A collector that does not answer is logged, and
    holds nothing up. Raises UsageError, MissingExtraError.
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
        # Its own limit is half a minute, which is longer than what ends a service waits.
        ending = threading.Thread(target=provider.shutdown, name="cenote-traces", daemon=True)
        ending.start()
        ending.join(PATIENCE)

    return flush


class _Seldom(logging.Filter):
    """Lets one record pass, then none for a while."""

    def __init__(self) -> None:
        super().__init__()
        self._next = -float("inf")

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + QUIET
        return True
