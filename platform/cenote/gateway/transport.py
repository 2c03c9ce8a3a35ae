"""The platform's TLS: which certificate it shows to clients, what they need to know it by, and lines to machines."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import grpc

from cenote.gateway.component_lines import ComponentLines
from cenote.gateway.options import PlatformOptions
from cenote.gateway.tls import LOOPBACK_NAMES, given_certificates, kept_authority, made_certificates
from cenote_security.certificates import TlsMaterial
from cenote_security.errors import CenoteError
from cenote_worker.serving.secured import Material, for_clients

log = logging.getLogger("cenote.gateway")

_RENEW_EVERY: Final = 60.0
"""Seconds between two looks for a newer certificate, when a client connects or asks for the platform's health."""

_WILDCARDS: Final = ("0.0.0.0", "::", "[::]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """lines: to machines. material: for TLS with clients, and credentials the same for gRPC; None for none.
    authority: a file for them; empty where they need none of ours. certificates: those that run out some day, PEM by
    what people call them.
    """

    lines: ComponentLines
    material: Material | None = None
    credentials: grpc.ServerCredentials | None = None
    authority: str = ""
    certificates: Callable[[], dict[str, bytes]] = dict


def transport(options: PlatformOptions) -> Transport:
    """Raises CertificateError, SecretFileError."""
    folder = options.state.certificates
    lines = ComponentLines(kept_authority(folder), everywhere=options.tls)
    own = {"the platform's own authority": lines.authority}
    if not options.tls:
        return Transport(lines=lines, certificates=lambda: own)
    authority = ""
    if options.certificate is not None and options.key is not None:
        shown = ShownCertificate(partial(given_certificates, options.certificate, options.key))
    else:
        shown = ShownCertificate(partial(made_certificates, folder, _names(options.host)))
        authority = str(folder / "ca.pem")

    def certificates() -> dict[str, bytes]:
        return own | {"the certificate that clients are shown": shown.material().own.certificate}

    return Transport(
        lines=lines,
        material=shown.material,
        credentials=for_clients(shown.material),
        authority=authority,
        certificates=certificates,
    )


class ShownCertificate:
    """What clients are shown: renewed without a restart, from new files of the operator's, or by the platform itself.

    made: reads or makes it. What cannot be used now is not shown, and what was shown before goes on to be.
    """

    def __init__(self, made: Callable[[], TlsMaterial], clock: Callable[[], float] = time.monotonic) -> None:
        """Raises what `made` does."""
        self._made = made
        self._clock = clock
        self._lock = threading.Lock()
        self._shown = made()
        self._looked = clock()
        self._problem = ""

    def material(self) -> TlsMaterial:
        with self._lock:
            if self._clock() - self._looked >= _RENEW_EVERY:
                self._looked = self._clock()
                try:
                    self._shown = self._made()
                    self._problem = ""
                except (CenoteError, OSError) as error:
                    if self._problem != str(error):
                        log.error("the certificate for clients stays as it was: %s", error)
                    self._problem = str(error)
            return self._shown


def called(host: str, address: str) -> tuple[str, str]:
    """What clients call a platform, on this machine and on others; the second is empty where it is the first.

    A wildcard address is one to listen at, which no certificate names: it is `localhost` here, elsewhere the
    machine's name. address: as it is bound, with the port.
    """
    if host not in _WILDCARDS:
        return address, ""
    port = address.rpartition(":")[2]
    return f"localhost:{port}", f"{socket.gethostname()}:{port}"


def _names(host: str) -> list[str]:
    """What clients may call this machine."""
    names = [*LOOPBACK_NAMES, socket.gethostname(), socket.getfqdn()]
    return list(dict.fromkeys(names if host in _WILDCARDS else [*names, host]))
