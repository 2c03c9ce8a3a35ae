"""The addresses of a server of runtimes, and its TLS: mutual for the platform's components, one-sided for clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc

from cenote_security.auth.certificates import TlsMaterial


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Addresses, as `host:port`.

    components: for processes of the platform, which show a certificate where the server is secured. clients: for
    holders of a capability; the same address where the server is not secured, empty where only components connect.
    """

    components: str
    clients: str


Material = Callable[[], TlsMaterial]
"""Gives the server's current certificate and trust; called at each handshake, so renewal needs no restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """How a server is secured. clients: whether it also has an endpoint for clients, which have no certificates."""

    material: Material
    clients: bool


def for_components(material: Material) -> grpc.ServerCredentials:
    """The peer must show a client certificate of the same authority, or the handshake fails."""
    return _credentials(material, mutual=True)


def for_clients(material: Material) -> grpc.ServerCredentials:
    """The peer needs no certificate, only a capability."""
    return _credentials(material, mutual=False)


def _credentials(material: Material, *, mutual: bool) -> grpc.ServerCredentials:
    shown = material()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        former, shown = shown, material()
        return None if former == shown else _configuration(shown)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(shown),
        renewed,  # type: ignore[arg-type]  # gRPC takes None for "as before", its stubs do not know
        require_client_authentication=mutual,
    )


def _configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    pair = (material.own.key, material.own.certificate)
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=material.authority or None)
