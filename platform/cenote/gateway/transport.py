"""The gateway's TLS: which certificate it shows, and what clients need to know it by."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import grpc

from cenote.gateway.options import PlatformOptions
from cenote.gateway.tls import LOOPBACK_NAMES, given_certificates, made_certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """credentials: None for none. authority: a file for clients; empty where they need none of ours."""

    credentials: grpc.ServerCredentials | None = None
    authority: str = ""


def transport(options: PlatformOptions) -> Transport:
    """Raises CertificateError, SecretFileError."""
    if not options.tls:
        return Transport()
    if options.certificate is not None and options.key is not None:
        own = given_certificates(options.certificate, options.key).own
        return Transport(credentials=grpc.ssl_server_credentials([(own.key, own.certificate)]))
    folder = options.state.certificates
    own = made_certificates(folder, "server", _names(options.host)).own
    credentials = grpc.ssl_server_credentials([(own.key, own.certificate)])
    return Transport(credentials=credentials, authority=str(folder / "ca.pem"))


def _names(host: str) -> list[str]:
    """What clients may call this machine. A wildcard address is none of them."""
    names = [*LOOPBACK_NAMES, socket.gethostname(), socket.getfqdn()]
    return list(dict.fromkeys([*names, host] if host not in ("0.0.0.0", "::", "[::]") else names))
