"""The platform's TLS: which certificate it shows to clients, what they need to know it by, and lines to machines."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final

import grpc

from cenote.gateway.component_lines import ComponentLines
from cenote.gateway.options import PlatformOptions
from cenote.gateway.tls import LOOPBACK_NAMES, given_certificates, kept_authority, made_certificates

_WILDCARDS: Final = ("0.0.0.0", "::", "[::]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """lines: to machines. credentials: for clients, None for none. authority: a file for them; empty where they need
    none of ours.
    """

    lines: ComponentLines
    credentials: grpc.ServerCredentials | None = None
    authority: str = ""


def transport(options: PlatformOptions) -> Transport:
    """Raises CertificateError, SecretFileError."""
    folder = options.state.certificates
    lines = ComponentLines(kept_authority(folder), everywhere=options.tls)
    if not options.tls:
        return Transport(lines=lines)
    if options.certificate is not None and options.key is not None:
        own = given_certificates(options.certificate, options.key).own
        return Transport(lines=lines, credentials=grpc.ssl_server_credentials([(own.key, own.certificate)]))
    own = made_certificates(folder, _names(options.host)).own
    credentials = grpc.ssl_server_credentials([(own.key, own.certificate)])
    return Transport(lines=lines, credentials=credentials, authority=str(folder / "ca.pem"))


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
