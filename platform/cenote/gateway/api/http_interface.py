"""The HTTP application of a platform, next to gRPC: the same tokens, tenants, quotas and certificates.

It calls the gateway as any client does, so that the rights of a token are decided in one place. It has its own thread
and event loop, so an HTTP client cannot delay gRPC.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self

from cenote.connection import Platform
from cenote.doors.metrics import MetricSample
from cenote.gateway.api.health import Condition
from cenote.gateway.process.daemon_lock import Running
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.tls.certificate_check import names_of
from cenote.gateway.tls.certificates import called
from cenote.runtime.remote.address import Destination
from cenote_security.auth.certificates import TlsMaterial
from cenote_security.extras import importing
from cenote_worker.serving.endpoints import Material

OPTION: Final = "--http HOST:PORT, or none with --no-http"


class HttpInterface:
    """One server. Its port is bound in the constructor, so that a taken port fails before a cluster is started."""

    def __init__(self, options: PlatformOptions, material: Material | None) -> None:
        """material: for TLS with clients. Raises UnavailableError, MissingExtraError."""
        with importing("the HTTP interface (--no-http leaves it out)", "http"):
            from cenote.doors.http_server import HttpThread, listen

        self._host, port = options.http_address
        self._listening = listen(self._host, port, OPTION)
        self._material = material
        self._thread: HttpThread | None = None

    def start(
        self,
        running: Running,
        condition: Callable[[], Awaitable[Condition]],
        metrics: Callable[[], list[MetricSample]],
    ) -> str:
        """Starts serving and returns the URL. running: the gateway, which already answers. condition: of the
        platform, from any loop.

        metrics: of the whole platform, from any thread.
        """
        from cenote.doors.callers import PlatformCallers
        from cenote.doors.http_app import LOOPBACK, http_app
        from cenote.doors.http_server import HttpThread, url_of
        from cenote.doors.open_runtimes import OpenRuntimes, PlatformSource

        def connected(token: str) -> Platform:
            return Platform(Destination(running.address, token, running.authority, wait=0.0))

        async def health() -> dict[str, object]:
            found = await condition()
            causes = [
                {"subject": cause.subject, "text": cause.text, "warning": cause.warning}
                for cause in found.causes
            ]
            return {"ready": found.ready, "causes": causes}

        def opened(platform: Platform) -> OpenRuntimes:
            return OpenRuntimes(PlatformSource(platform))

        callers = PlatformCallers(connected, opened, metrics)
        names = [*LOOPBACK, self._host, *self._certified()]
        app = http_app(callers, list(dict.fromkeys(names)), health=health)
        self._thread = HttpThread(app, self._listening, _context(self._material) if self._material else None)
        self._thread.start()
        here, _, _ = called(self._host, f"{self._host}:0")[0].rpartition(":")
        return url_of("https" if self._material else "http", here, self._listening)

    def close(self) -> None:
        """Ends the server. Call it before closing the gateway that it calls."""
        if self._thread is not None:
            self._thread.close()
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _certified(self) -> Sequence[str]:
        """Names that clients may use in `Host`: those in the certificate."""
        return [] if self._material is None else names_of(self._material().own.certificate)


def _context(material: Material) -> ssl.SSLContext:
    """Looks up gRPC's certificate at each handshake, so that it is renewed without a restart."""
    shown = material()
    current = _made(shown)

    def renewed(handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal shown, current
        former, shown = shown, material()
        if former != shown:
            current = _made(shown)
        handshake.context = current

    outer = _made(shown)
    outer.sni_callback = renewed
    return outer


def _made(material: TlsMaterial) -> ssl.SSLContext:
    """Uses an unnamed temporary file, since Python reads certificates and keys only from files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.TemporaryFile() as file:
        file.write(material.own.certificate + material.own.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context
